"""What `vvt train ... --dry-run` starts in place of verl's trainer.

    python -m verl_video_tools.dry_run --kind KIND --device DEVICE [--stand-in FOLDER] -- OPTION=VALUE ...

Exit code: 1 where something has to be fixed before the run. Environment variables: DRY_RUN_ROWS (rows of a file that
are looked at, default 100), DRY_RUN_GPU (kind of GPU to plan for), DRY_RUN_REPORT (file that gets the table as JSON).
"""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from contextlib import redirect_stdout
from pathlib import Path


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", choices=("grpo", "sft"), required=True)
    parser.add_argument("--device", choices=("cpu", "gpu"), required=True)
    parser.add_argument("--stand-in", help="folder of a model whose tokenizer and processor stand for the run's")
    parser.add_argument("overrides", nargs="*", help="after --")
    options = parser.parse_args()
    num_rows = os.environ.get("DRY_RUN_ROWS") or "100"
    if not num_rows.isdecimal() or int(num_rows) < 1:
        print(f"DRY_RUN_ROWS must be a whole number above 0, got {num_rows!r}", file=sys.stderr)
        return 2
    # The frames of a dry run are shown to nobody: they stay out of caches.
    os.environ["VVT_FRAME_CACHE_BYTES"] = "0"
    os.environ.pop("VVT_FRAME_CACHE_DISK", None)
    with redirect_stdout(sys.stderr):  # libraries print while they are imported, and verl while it checks
        warnings.simplefilter("ignore")
        from verl_video_tools.dry_run.report import DryRun, as_json, render

        run = DryRun(
            options.kind,
            options.overrides,
            options.device,
            int(num_rows),
            options.stand_in,
            os.environ.get("DRY_RUN_GPU") or None,
        )
        checks = run.checks()
    if report := os.environ.get("DRY_RUN_REPORT"):
        Path(report).write_text(as_json(run, checks) + "\n", encoding="utf-8")
    print(render(run, checks))
    return int(any(check.status == "failed" for check in checks))


if __name__ == "__main__":
    sys.exit(main())
