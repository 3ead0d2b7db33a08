# Every target uses the environment in .venv; `make install` makes it. DEVICE=cpu|gpu overrides the detection.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

VENV := $(CURDIR)/.venv
export PATH := $(VENV)/bin:$(PATH)
export VIRTUAL_ENV := $(VENV)
PYTEST := python -m pytest
# Where it is set, each of a run's many processes compiles the package again: seconds of a core.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help install demo test test-long test-fast mutants fuzz test-recipes test-next test-next-fast test-oldest-python test-engine test-grpo test-faults test-cluster test-gpu first-gpu lint format docs audit bench bench-gpu bench-video bench-retrieval bench-ladder bench-needle bench-scale learn learn-all learn-claims learn-smollm soak clean

help:  ## print this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*##/\t/' | expand -t 16

install:  ## install the pinned environment into .venv; a second run repairs it
	@VENV="$(VENV)" bash requirements/install.sh

demo: install  ## make synthetic videos, then run SFT and GRPO steps of FrameThinker on this machine
	bash recipes/demo.sh

WITHOUT_RAY = not integration and not recipes and not cluster and not gpu and not faults
WITH_RAY = integration and not recipes and not gpu
IN_PARALLEL = -n logical --maxprocesses 8 --dist loadfile --no-loadscope-reorder
# One after the other, in a worker of its own: where a test hangs in native code, only another process can go on.
IN_TURN = -n 1

test: install  ## run the tests without Ray and vLLM, then those that share a few real runs of verl and vLLM (no GPU)
	$(PYTEST) $(IN_PARALLEL) --durations=40 -m "$(WITHOUT_RAY) and not long"
	$(PYTEST) $(IN_TURN) --durations=40 -m "$(WITH_RAY) and not long"

test-long: install  ## run the longest tests of both kinds, including the tutorial and a short RL run that must improve accuracy
	$(PYTEST) $(IN_PARALLEL) --durations=40 -m "$(WITHOUT_RAY) and long"
	$(PYTEST) $(IN_TURN) --durations=40 -m "$(WITH_RAY) and long"

test-fast: install  ## run the tests without Ray, vLLM and the slow ones: one process per core, three minutes
	$(PYTEST) $(IN_PARALLEL) -m "$(WITHOUT_RAY) and not slow and not long"

mutants: install  ## plant the faults of tests/mutants one at a time; the tests without Ray must notice 95 % of them
	python -m tests.mutants

fuzz: install  ## send random hostile inputs for MINUTES=10, to all surfaces or to SURFACE=...; continues after the last round
	python -m tests.fuzz --minutes $(or $(MINUTES),10) $(if $(SURFACE),--surface $(SURFACE))

test-recipes: install  ## run every recipe for two steps, separate devices for engine and trainer, and a smoke test with the options of a real run
	$(PYTEST) $(IN_TURN) -m recipes

NEXT = PINS=next DEVICE=cpu $(MAKE) VENV="$(CURDIR)/.venv-next"
test-next:  ## run fast tests and GRPO steps with the newest engine within our bounds, in .venv-next
	$(NEXT) test-engine test-fast test-grpo

test-next-fast:  ## run only those tests of test-next that depend on verl and the engine; takes minutes
	$(NEXT) test-engine

test-oldest-python:  ## run the fast tests on the oldest supported Python, in .venv-3.11
	PYTHON_VERSION=3.11 DEVICE=cpu $(MAKE) VENV="$(CURDIR)/.venv-3.11" test-fast

LEANS_ON_THE_ENGINE = $(addprefix tests/verl_plugin/,test_vllm_front_end.py test_plugin.py test_tied_heads.py \
	test_agent_loop.py test_agent_loop_worker.py test_stored_rows.py test_shared_images.py \
	test_trainer_advantages.py test_trainer_validation.py test_sft_trainer.py test_reward_manager.py \
	test_varlen_attention.py)
test-engine: install  ## run the tests that depend on verl, vLLM and torch, without Ray
	$(PYTEST) $(IN_PARALLEL) -m "$(WITHOUT_RAY)" $(LEANS_ON_THE_ENGINE)

test-grpo: install  ## run three GRPO steps of all methods, and compare engine and actor with plain transformers
	$(PYTEST) $(IN_TURN) -m integration tests/integration/test_grpo.py

FAULT_OUTPUTS ?= $(CURDIR)/outputs/faults
test-faults: install  ## run the fault plan in real runs, which takes minutes per cell; skips cells that have passed; CELLS="engine_core:generation ..." FRESH=1
	CELLS="$(CELLS)" FRESH="$(FRESH)" VVT_TEST_OUTPUT_DIR="$(FAULT_OUTPUTS)" $(PYTEST) $(IN_TURN) -m faults tests/faults/test_cells.py

test-cluster: install  ## test a Ray cluster of two machines in network namespaces (needs root): job, lost node, resuming, training on both
	$(PYTEST) $(IN_TURN) -m cluster

test-gpu: install  ## run the tests that need a GPU; without one they are skipped
	$(PYTEST) -m gpu tests/gpu

first-gpu: install  ## the first hour on a GPU: doctor, attention, memory, test-gpu, weight transfer, two GRPO steps of METHOD=... with the weights of MODEL=..., a page; without a GPU what needs none
	python -m benchmarks.first_gpu $(if $(MODEL),--model $(MODEL)) $(if $(filter command line environment,$(origin METHOD)),--method $(METHOD))

lint: install  ## run ruff (rules and format), mypy and import-linter
	ruff check .
	ruff format --check .
	mypy
	lint-imports

format: install  ## let ruff rewrite what it can
	ruff check --fix .
	ruff format .

docs: install  ## build the documentation site into site/
	NO_MKDOCS_2_WARNING=1 mkdocs build --strict

audit: install  ## list known vulnerabilities of the pinned versions; needs the network
	python requirements/audit.py requirements/cpu.txt requirements/gpu.txt

bench: install  ## run every program in benchmarks/ that this machine can run
	@shopt -s nullglob; found=0; \
	for program in benchmarks/[!_]*.py; do \
		if [[ $$program == benchmarks/gpu.py ]] && ! nvidia-smi -L >/dev/null 2>&1; then continue; fi; \
		found=1; echo "== $$program"; python -m "benchmarks.$$(basename "$$program" .py)"; \
	done; \
	if [[ $$found == 0 ]]; then echo "bench: benchmarks/ holds no programs, nothing was measured" >&2; exit 1; fi

bench-gpu: install  ## the actor's parts from configurations alone, against the plan; decode and token throughput; MODEL=... for another than the tiny model; ALLOW_CPU=1 measures what a machine without a GPU can
	python -m benchmarks.gpu --check $(if $(ALLOW_CPU),--allow-cpu)
	python -m benchmarks.gpu_model
	python -m benchmarks.gpu $(if $(MODEL),--model $(MODEL)) $(if $(ALLOW_CPU),--allow-cpu)

bench-video: install  ## compare the cost of reading frames with other readers; writes outputs/bench_video
	python -m benchmarks.video_io

bench-retrieval: install  ## measure searches for frames by text: recall, cost of first and later queries; writes outputs/bench_retrieval
	python -m benchmarks.retrieval

bench-ladder: install  ## compare the cost of the initial frames of a FrameMind group with that of one rollout
	python -m benchmarks.ladder

bench-needle: install  ## measure what the initial frames alone, and an oracle, achieve on NeedleClips, method by method
	python -m benchmarks.needle_bounds
	python -m benchmarks.spatial_bounds

bench-scale: install  ## measure the host work of a step of each method at full size, without a GPU; METHODS="longvt ..."
	python -m benchmarks.scale $(if $(METHODS),--methods $(METHODS))

METHOD ?= framethinker
SEED ?= 0
learn: install  ## run cold start and GRPO of METHOD=... on NeedleClips, SEED=0, with held-out accuracy before and after, and a report
	python -m verl_video_tools.launch.supervise -- python -m examples.learning_curve.run --method $(METHOD) --seed $(SEED)

learn-all: install  ## run examples/learning_curve/schedule.py, resumable; MINUTES=240 starts no run that would end later; AGAIN=1 repeats runs whose results are in the repository
	python -m examples.learning_curve.learn_all $(if $(MINUTES),--minutes $(MINUTES)) $(if $(AGAIN),--again)

learn-claims: install  ## run all comparisons of the papers' claims (docs/decisions/claims.md), resumable
	python -m verl_video_tools.launch.supervise -- python -m examples.learning_curve.claims all

learn-smollm: install  ## train a real language model, SmolLM2-135M, with a vision tower: cold start and GRPO on NeedleClips, SEED=0; resumable, needs the network once
	python -m verl_video_tools.launch.supervise -- python -m examples.smollm.run --seed $(SEED)

HOURS ?= 1
soak: install  ## train for HOURS=1 with random faults and report what grows; continues an earlier soak
	python -m benchmarks.soak --hours $(HOURS)

clean:  ## remove caches and build products; keeps .venv and the outputs of runs
	rm -rf build dist site .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -path "./.venv*" -prune -o -type d -name __pycache__ -prune -exec rm -rf {} +
