"""All that a recipe prints, from data to the exported model, with logs as verl writes them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.recipes.options import RECIPES
from verl_video_tools.verl_plugin.log_lines import MARK

STUB = f"""#!{sys.executable}
import os, sys
arguments = " ".join(sys.argv[1:])
ray = "\\x1b[36m(TaskRunnerV1 pid=219)\\x1b[0m "
if "supervise" in arguments or "verl_plugin.config" in arguments:
    os.execv({sys.executable!r}, [{sys.executable!r}, *sys.argv[1:]])
elif "cpu_sft" in arguments:
    folder = os.path.join(os.environ["OUTPUT_DIR"], "framethinker_sft", "huggingface")
    os.makedirs(folder, exist_ok=True)
    open(os.path.join(folder, "config.json"), "w").write("{{}}")
    print("Total steps: 110, num_warmup_steps: 5")
    for step in range(1, 111):
        bar = f"Epoch 1/2:   1%|          | {{step}}/55 [00:01<06:16,  1.03s/it]"
        print(f"{{bar}}step:{{step}} - train/loss:1.5 - train/lr:0.001")
elif "main_ppo" in arguments:
    print(f"{{ray}}INFO:2026-01-01 00:00:00,150:Total training steps: 20")
    print(f"{{ray}}[verl_video_tools] node 192.0.2.2: 1 x training worker")
    for step in range(1, 21):
        for line in range(200):
            print(f"{{ray}}WARNING: target_num_threads 8 should not exceed total physical CPU cores 2")
        for row in range(4):
            print(f"{{ray}}[verl_video_tools] warning: rollout of row {{row}}: /v/{{row}}.mp4: no such video file")
        metrics = "rollout/score/mean:0.5 - rollout/acc/mean:0.25 - perf/time_per_step:21.2"
        print(f"{{ray}}step:{{step}} - {{metrics}}", flush=True)
    if "FAIL" in os.environ:
        sys.exit("ValueError: it failed")
    open(os.path.join(os.environ["OUTPUT_DIR"], "framethinker_grpo", "latest_checkpointed_iteration.txt"), "w")
else:
    print("stub of", sys.argv[2])
"""


def run(folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    (folder / "bin").mkdir()
    (folder / "bin" / "python").write_text(STUB)
    (folder / "bin" / "vvt").write_text('#!/bin/sh\nseq -f "vvt $1: %g" 9\n')
    for program in ("python", "vvt"):
        (folder / "bin" / program).chmod(0o755)
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(RECIPES.parent),
        "HOME": str(folder),
        "PYTHON": str(folder / "bin" / "python"),
        "OUTPUT_DIR": str(folder / "outputs"),
        "DEVICE": "cpu",
        **variables,
    }
    command = ["bash", str(RECIPES / "demo.sh")]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.slow
def test_the_demo_prints_fewer_than_80_lines(tmp_path: Path) -> None:
    demo = run(tmp_path)
    shown = demo.stdout.splitlines()
    assert (demo.returncode, demo.stderr) == (0, "")
    assert len(shown) < 80 - 20, "with the lines of steps that last longer than these"
    assert sum(line.startswith("step 20/20  reward 0.500, accuracy 0.250, 21 s") for line in shown) == 1
    assert sum(line.startswith("step 110/110  loss 1.5000") for line in shown) == 1
    assert sum("no such video file" in line for line in shown) == 3
    assert f"{MARK} node 192.0.2.2: 1 x training worker" in shown
    told = [line.removeprefix(f"{MARK} framethinker_") for line in shown if " TRAIN_FILES=" in line]
    model, rows = f"{tmp_path}/outputs/framethinker_sft", f"TRAIN_FILES={tmp_path}/outputs/"
    assert told[0].startswith("sft: DEVICE=cpu MODEL_PATH=") and f"{rows}framethinker_sft/train.parquet" in told[0]
    assert told[1].startswith(f"grpo: DEVICE=cpu MODEL_PATH={model}/huggingface {rows}")
    assert told[1].endswith("TRAIN_BATCH_SIZE=4 ROLLOUT_N=8")
    outputs = tmp_path / "outputs"
    assert (outputs / "framethinker_grpo" / "run.log").read_text().count("target_num_threads") == 4000
    assert (outputs / "framethinker_sft" / "run.log").read_text().count("train/loss") == 110


def test_verbose_prints_everything(tmp_path: Path) -> None:
    demo = run(tmp_path, VERBOSE="1")
    assert demo.returncode == 0
    assert demo.stdout.count("target_num_threads") == 4000 and demo.stdout.count("train/loss") == 110


@pytest.mark.slow
def test_a_run_that_fails_says_why_and_where_its_log_is(tmp_path: Path) -> None:
    demo = run(tmp_path, FAIL="1")
    assert demo.returncode == 1
    shown = demo.stdout.splitlines()
    log = tmp_path / "outputs" / "framethinker_grpo" / "run.log"
    assert shown.index(f"{MARK} failed with exit code 1; the end of {log}:") < shown.index("  ValueError: it failed")
    assert not any("target_num_threads" in line for line in shown)


@pytest.mark.parametrize(("node_rank", "name"), [("0", "run.log"), ("1", "run_node1.log")])
def test_nodes_of_a_fine_tuning_run_have_logs_of_their_own(node_rank: str, name: str, tmp_path: Path) -> None:
    variables = "EXPERIMENT_NAME=x; MODEL_PATH=/m; TRAIN_FILES=/t.parquet; TRAIN_BATCH_SIZE=8"
    functions = f'METHOD=longvt; source "{RECIPES}/common.sh"; {variables}; log_quietly /runs; echo "${{QUIETLY[*]}}"'
    shell = subprocess.run(
        ["bash", "-c", functions],
        env={"PATH": os.environ["PATH"], "PYTHON": sys.executable, "DEVICE": "cpu", "NODE_RANK": node_rank},
        capture_output=True,
        text=True,
        check=True,
    )
    assert shell.stdout.splitlines()[-1] == f"--log /runs/{name}"
