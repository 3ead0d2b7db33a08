"""What a smoke test has shown of a run, and what only a GPU can show.

    python -m verl_video_tools.records.rehearsal DEVICE RUN_DIR

prints both at the end of a smoke test (`vvt train grpo ... --smoke-test`).
"""

from __future__ import annotations

import sys
from pathlib import Path

from verl_video_tools.core.environment import ONLY_ON_A_GPU
from verl_video_tools.records.report import LOG_NAMES, read_log

TESTED = (
    "packed sequences",
    "two ranks with Ulysses",
    "bfloat16",
    "gradient checkpointing",
    "the method's own options",
    "checkpoint and resumption",
)
GAP = "training/rollout_probs_diff_mean"
"""verl's name for the mean difference between probabilities of sampled tokens in the engine and in the actor."""


def report(device: str, run_dir: Path) -> str:
    """A paragraph for people.

    Args:
        device: `cpu` or `gpu`, where it ran.
        run_dir: the smoke test's folder, with the logs of verl's file logger.
    """
    values = {step: found for path in sorted(run_dir.glob(LOG_NAMES)) for step, found in read_log(path).items()}
    gaps = [found[GAP] for found in values.values() if GAP in found]
    facts = f"steps {', '.join(map(str, sorted(values)))}"
    if gaps:
        facts += f"; a token's probability differs by {max(gaps):.4f} between engine and actor (worst step's mean)"
    lines = [f"smoke test on DEVICE={device}: {', '.join(TESTED)}", facts]
    if device == "cpu":
        lines.append(f"only a GPU can show: {', '.join(ONLY_ON_A_GPU)}")
    return "\n".join(f"[verl_video_tools] {line}" for line in lines)


def main() -> None:
    """Command line: see the module's docstring."""
    print(report(sys.argv[1], Path(sys.argv[2])))


if __name__ == "__main__":
    main()
