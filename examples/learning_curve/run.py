"""From a model that sees and reads to one that looks again: cold start, GRPO, and held-out accuracy after each.

Usage: python -m examples.learning_curve.run --method videozoomer [--seed 0] [--out FOLDER] [--ablation]

`--method compose_temporal` is the packaged composition `demo`, `compose_spatial` the composition `spatial` on
NeedleClips' questions in space, and `direct` answers without tools.

Every stage is one of the package's own commands, on NeedleClips and the tiny model:

    data   videos, training rows, held-out rows (each also as a row of the method `direct`, which has no tools)
    cold   rollouts of a scripted expert that skips tool calls: most of them answer without looking
    sft    `vvt train sft` on them
    rl     `vvt train grpo`; it measures held-out accuracy before its first step and after its last, and at each quarter
           on some of the questions
    rft    LongVT only: `vvt train rft` on its good rollouts and as many rows of the cold start; accuracy after it
    ablation  with --ablation: `rl` once more from the same start, with what the method's paper advises against

Started again, it goes on where it was stopped: finished stages are skipped, and training resumes from checkpoints. A
folder belongs to one method, seed and plan, told in `plan.json`; only more steps may be asked of it later.
`results.json` holds what was measured, and where; `learn_all.py` makes many runs, and `tables.py` what pages show.
OMP_NUM_THREADS=1 leaves a core to another seed beside it. Without it, fine-tuning takes all cores.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console

from examples.learning_curve.measured import interim_first
from examples.learning_curve.plans import (
    ABLATIONS,
    MINUTES,
    NO_TOOLS,
    PLAN_BEFORE,
    PLANS,
    SECONDS_PER_STEP,
    Ablation,
    Plan,
    RolloutTuning,
    plan_of,
)
from examples.learning_curve.provenance import Starts
from examples.learning_curve.report import results_of
from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.files import write_json, write_text
from verl_video_tools.data.sft import export_sft
from verl_video_tools.data.synthetic_rows import load_rows, question_from_row
from verl_video_tools.grading.choices import grade_multiple_choice
from verl_video_tools.launch.train import Stage
from verl_video_tools.methods import get_method
from verl_video_tools.methods.toolkit.oracle import synthetic_fields
from verl_video_tools.services.retrieval import local_from_fields

VVT = Path(sys.executable).with_name("vvt")
RESULTS = "results.json"
"""Of a run that is finished, in its folder."""


class StageError(Exception):
    """A stage's program failed; what it printed says why."""


class Learning:
    """The stages of one method and seed, in a folder of their own."""

    minutes: ClassVar[Mapping[str, int]] = MINUTES
    """What each stage takes on two idle cores; `rl` and `ablation` without their steps."""
    num_rl_checkpoints: ClassVar[int] = 4

    def __init__(self, method: str, seed: int, out: Path, plan: Plan, ablation: Ablation | None = None) -> None:
        self.name, self.method = method, "compose" if plan.composition else method
        self.seed, self.out, self.plan, self.ablation = seed, out.resolve(), plan, ablation
        self.begun = self.out / "plan.json"
        self.data, self.train = self.out / "data", self.out / "train.parquet"
        self.base = self.data / "base"  # the model that is fine-tuned
        self.validation = self.data / "validation.parquet"
        self.validation_twice = self.data / "validation_and_without_tools.parquet"
        self.sft, self.rl, self.rft = self.out / "sft", self.out / "rl", self.out / "rft"
        self.console = Console()

    @property
    def stages(self) -> dict[str, Callable[[], None]]:
        """What is done, in order."""
        stages: dict[str, Callable[[], None]] = {
            "data": self.make_data,
            "cold": self.make_cold_start,
            "sft": self.fine_tune,
            "rl": self.reinforce,
        }
        if rft := self.plan.rft:
            stages["rft"] = lambda: self.reinforcement_fine_tune(rft)
        if ablation := self.ablation:
            stages["ablation"] = lambda: self.reinforce_otherwise(ablation)
        return stages

    def run(self) -> None:
        """All stages that are not done.

        Raises:
            UsageError: the folder holds another run's stages.
            StageError: a stage failed.
        """
        stages, starts = self.stages, Starts(self.out)
        self._claim_folder()
        started = time.monotonic()
        for number, (name, stage) in enumerate(stages.items(), start=1):
            if self.done(name).exists():
                self._say(f"{number}/{len(stages)} {name}: done before")
                continue
            self._say(
                f"{number}/{len(stages)} {name}: about {self._minutes(name):.0f} min; "
                f"{self.minutes_left():.0f} min to the end"
            )
            starts.add(name)
            stage_started = time.monotonic()
            with _failing(name):
                stage()
            seconds = round(time.monotonic() - stage_started)
            write_json(self.done(name), {"seconds_since_last_start": seconds})
        self._say(f"finished after {(time.monotonic() - started) / 60:.0f} min")
        self.report()

    def minutes_left(self) -> float:
        """Estimate of what the stages that are not done take on two idle cores."""
        return sum(self._minutes(name) for name in self.stages if not self.done(name).exists())

    def is_own(self, found: Mapping[str, Any]) -> bool:
        """Whether a plan that was written down is this run's, or the same with fewer steps."""
        own = self.told()
        plan = PLAN_BEFORE | found["plan"]
        longer = plan | {"rl_steps": self.plan.rl_steps}
        return {**found, "plan": longer} == own and plan["rl_steps"] <= self.plan.rl_steps

    def told(self) -> dict[str, Any]:
        """Method, seed and plan, as they are written down."""
        return {"method": self.name, "seed": self.seed, "plan": self.plan.written()}

    def _claim_folder(self) -> None:
        """Raises UsageError if the folder holds another run's stages."""
        path, own = self.begun, self.told()
        if path.exists():
            found = json.loads(path.read_text())
            if not self.is_own(found):
                raise UsageError(f"{path}: the folder was begun with {found}, not with {own}; give another --out")
            if found["plan"]["rl_steps"] < self.plan.rl_steps:  # what follows from the shorter run is out of date
                for name in ("rl", "rft", "ablation"):
                    self.done(name).unlink(missing_ok=True)
                for folder in (self.rft, self.out / "rft_validation"):
                    shutil.rmtree(folder, ignore_errors=True)
        self.out.mkdir(parents=True, exist_ok=True)
        write_json(path, own)

    def done(self, stage: str) -> Path:
        return self.out / f"{stage}.done"

    def _minutes(self, stage: str) -> float:
        """Estimate of what is left of a stage."""
        if stage not in ("rl", "ablation"):
            return self.minutes[stage]
        saved = self.out / stage / "latest_checkpointed_iteration.txt"
        text = saved.read_text().strip() if saved.exists() else ""  # verl empties it before it writes
        num_steps = self.plan.rl_steps - (int(text) if text.isdecimal() else 0)
        return self.minutes[stage] + num_steps * self._seconds_per_step() / 60

    def _seconds_per_step(self) -> int:
        return SECONDS_PER_STEP[self.name]

    # ---------------------------------------------------------------------------------------------------------- stages

    def make_data(self) -> None:
        """`vvt demo`, and held-out rows for the method and, the same questions, for none."""
        plan = self.plan
        run_program(
            VVT, "demo", f"--{plan.world}", "--out", self.data, "--agent-name", self.method, "--seed", self.seed,
            "--train-videos", plan.num_train_videos, "--test-videos", plan.num_validation_videos,
        )  # fmt: skip
        write_rows(self._asked("train"), self.train)
        rows = interim_first(self._asked("test"), plan.interim_questions)
        write_rows(rows, self.validation)
        write_rows([*rows, *(row | {"agent_name": NO_TOOLS} for row in rows)], self.validation_twice)

    def make_cold_start(self) -> None:
        """What the scripted expert writes, and rows answered without tools, so that these can be asked for later."""
        plan = self.plan
        habits: dict[str, Any] = {"answers_in_words": True, "keep_wrong": True, "seed": self.seed}
        retriever = local_from_fields({"model": str(self.data / "clip")}) if self.method == "videobrain" else None
        report = export_sft(
            self.data / "train.parquet",
            self.out / "with_tools.parquet",
            questions_per_video=plan.questions_per_video,
            kinds=plan.kinds,
            imperfection=plan.imperfection,
            skip_rate=plan.skip_rate,
            settings=self._fields(self.method),
            retriever=retriever,
            **habits,
        )
        self._say(f"the expert's rollouts: {report}")
        written = load_rows(self.out / "with_tools.parquet")
        if plan.num_direct_rows:
            rows = load_rows(self.train)
            random.Random(self.seed).shuffle(rows)
            write_rows(
                [row | {"agent_name": NO_TOOLS} for row in rows[: plan.num_direct_rows]], self.out / "no_tools.parquet"
            )
            out = self.out / "no_tools_sft.parquet"
            export_sft(self.out / "no_tools.parquet", out, settings=self._fields(NO_TOOLS), **habits)
            written += load_rows(out)
        random.Random(self.seed).shuffle(written)
        write_rows(written, self.out / "cold_start.parquet")

    def fine_tune(self) -> None:
        self._train_model(
            "sft",
            f"model.path={self.base}",
            f"trainer.seed={self.seed + 1}",
            f"trainer.default_local_dir={self.sft}",
            f"data.train_files={self.out / 'cold_start.parquet'}",
            f"trainer.total_epochs={self.plan.epochs}",
            "data.max_length=1664",
        )

    def reinforce(self) -> None:
        validation = self.validation_twice if self.plan.compares_without_tools else self.validation
        measuring = ["trainer.val_before_train=True"]
        if num_interim := min(self.plan.interim_questions, self.plan.num_validation_videos):
            measuring.append(f"trainer.test_freq={math.ceil(self.plan.rl_steps / 4)}")
            measuring.append(f"video_tools.trainer.interim_validation_rows={num_interim}")
        self._train("rl", validation, measuring=measuring)

    def reinforce_otherwise(self, ablation: Ablation) -> None:
        """With a changed method, but from the same start, on the same questions in the same order."""
        self._train("ablation", self.validation, *self._as_options(ablation.fields))

    def reinforcement_fine_tune(self, rft: RolloutTuning) -> None:
        """On the policy's good rollouts, and on what deserves imitation of the scripted expert's."""
        good = [row for row in load_rows(self.out / "with_tools.parquet") if deserves_imitation(row)]
        write_rows(good, self.out / "good_cold_start.parquet")
        self._train_model(
            "rft",
            f"trainer.default_local_dir={self.rft}",
            f"model.path={self.rl / 'huggingface'}",
            f"video_tools.rft.records_dir={self.rl / 'trajectories'}",
            f"video_tools.rft.cold_start=[{self.out / 'good_cold_start.parquet'}]",
            f"video_tools.rft.cold_share={rft.cold_share}",
            f"video_tools.rft.min_step={round(self.plan.rl_steps * (1 - rft.last_share)) + 1}",
            f"data.train_files={self.rft / 'train.parquet'}",
            f"data.train_batch_size={rft.batch_size}",
            f"data.micro_batch_size_per_gpu={rft.batch_size}",
            f"optim.lr={rft.learning_rate}",
            f"trainer.total_epochs={rft.epochs}",
        )
        self._measure("rft_validation", self.rft / "huggingface", self.validation)

    # ---------------------------------------------------------------------------------------------------------- result

    def report(self) -> None:
        """Prints the table of accuracies, writes `results.json`, and the files of `vvt report`."""
        results = results_of(self, self.console)
        write_text(self.out / RESULTS, json.dumps(results, indent=1) + "\n")
        run_program(VVT, "report", self.rl, "--out", self.out / "report", "--name", f"{self.name}, seed {self.seed}")
        if self.ablation:
            run_program(VVT, "report", self.rl, self.out / "ablation", "--out", self.out / "ablation_report",
                 "--name", f"{self.name}, seed {self.seed}", "--name", self.ablation.title)  # fmt: skip

    def measured(self, run: str, step: int) -> Path:
        """Held-out rollouts of a run's policy after so many steps."""
        return self.out / run / "trajectories" / f"val_step_{step:06d}.jsonl"

    # ----------------------------------------------------------------------------------------------------------- tools

    def _asked(self, split: str) -> list[dict[str, Any]]:
        """The rows of a split that ask what the plan wants asked."""
        rows = load_rows(self.data / f"{split}.parquet")
        return [row for row in rows if question_from_row(row)[1].kind in self.plan.kinds]

    def _fields(self, method: str) -> dict[str, Any]:
        fields = synthetic_fields(type(get_method(method)), self.data / "prompts")
        return fields | ({"file": self.plan.composition} if method == "compose" else {})

    def _as_options(self, fields: Sequence[str]) -> list[str]:
        """Options of a run for assignments to fields of the method."""
        return [f"video_tools.{self.method}.{field}" for field in fields]

    def _own_options(self) -> list[str]:
        """Fields that all runs have in common."""
        return self._as_options([f"file={self.plan.composition}"]) if self.plan.composition else []

    def _train(self, name: str, validation: Path, *fields: str, measuring: Sequence[str] = ()) -> None:
        plan, model = self.plan, self.sft / "huggingface"
        self._train_policy(
            name,
            model,
            validation,
            f"trainer.test_freq={plan.rl_steps}",
            f"data.seed={self.seed + 1}",
            *measuring,
            *fields,
            f"trainer.total_training_steps={plan.rl_steps}",
            # A run that is killed repeats no more.
            f"trainer.save_freq={math.ceil(plan.rl_steps / self.num_rl_checkpoints)}",
            f"data.train_batch_size={plan.batch_size}",
            f"actor_rollout_ref.actor.optim.lr={plan.learning_rate}",
            f"actor_rollout_ref.actor.ppo_mini_batch_size={plan.mini_batch_size}",
            # Rollouts differ in length, and a batch is padded to its longest.
            "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4",
            "trainer.total_epochs=1000",  # the number of steps ends it
        )
        if not self.measured(name, plan.rl_steps).exists():
            # verl saves its last checkpoint before it measures: stopped in between, there was nothing left to train.
            self._measure(name, model, validation, *fields)

    def _measure(self, name: str, model: Path, validation: Path, *fields: str) -> None:
        """Greedy rollouts on held-out rows: of a run's last checkpoint, or, where it has none, of a model."""
        self._train_policy(name, model, validation, "trainer.val_only=True", "trainer.val_before_train=True", *fields)

    def _train_policy(self, name: str, model: Path, validation: Path, *options: str) -> None:
        self._train_model(
            "grpo",
            f"trainer.default_local_dir={self.out / name}",
            f"actor_rollout_ref.model.path={model}",
            f"data.train_files={self.train}",
            f"data.val_files={validation}",
            *options,
        )

    def _train_model(self, stage: Stage, *options: str) -> None:
        """`vvt train` on the tiny model and the videos of this run; rows may be of the method without tools as well."""
        groups = [f"+video_tools={self.method}_{stage}"]
        if self.method != NO_TOOLS:
            groups += [
                f"+video_tools/fields={NO_TOOLS}",
                f"+video_tools/synthetic=[{self.method}_{stage},{NO_TOOLS}]",
            ]
        environment = {"DEVICE": "cpu", "OUTPUT_DIR": self.out}
        if stage != "grpo":
            environment["OMP_NUM_THREADS"] = os.environ.get("OMP_NUM_THREADS", os.cpu_count() or 1)
        run_program(
            VVT, "train", stage, *groups, f"video_tools.demo_dir={self.data}", "video_tools.demo.is_made=true",
            *self.plan.options(stage), *self._own_options(), *options, **environment,
        )  # fmt: skip

    def _say(self, text: str) -> None:
        self.console.print(f"[bold]learn {self.name}[/bold] {text}", highlight=False)


def deserves_imitation(row: Mapping[str, Any]) -> bool:
    """Whether a row of the cold start is right, and no guess: it looked, or the initial frames show the answer."""
    _, question = question_from_row(row)
    said = get_method(row["agent_name"]).parse(row["turns"][-1]).answer
    is_right = grade_multiple_choice(said, row["reward_model"]["ground_truth"], row["extra_info"]["options"])
    return is_right and (len(row["turns"]) > 1 or question.kind == "direct")


@contextmanager
def _failing(stage: str) -> Iterator[None]:
    """Raises StageError where a program of the stage fails."""
    try:
        yield
    except subprocess.CalledProcessError as error:
        raise StageError(
            f"stage {stage}: vvt {error.cmd[1]} ended with exit code {error.returncode}; it says why above"
        ) from None


def run_program(*command: Any, **environment: Any) -> None:
    """Runs a program to its end. Raises CalledProcessError where it fails."""
    subprocess.run(
        [str(part) for part in command], check=True, env={**os.environ, **{k: str(v) for k, v in environment.items()}}
    )


def write_rows(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(list(rows)), path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--method", choices=sorted({*ABLATIONS, *PLANS}), default="framethinker")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="default: outputs/learn_<method>_<seed>")
    parser.add_argument(
        "--ablation", action="store_true", help="also train with what the method's paper advises against"
    )
    arguments = parser.parse_args()
    if arguments.ablation and arguments.method not in ABLATIONS:
        parser.error(f"no paper advises against a choice of {arguments.method}; leave --ablation out")
    out = arguments.out or Path("outputs") / f"learn_{arguments.method}_{arguments.seed}"
    ablation = ABLATIONS[arguments.method] if arguments.ablation or (out / "ablation.done").exists() else None
    try:
        Learning(arguments.method, arguments.seed, out, plan_of(arguments.method), ablation).run()
    except (UsageError, StageError) as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
