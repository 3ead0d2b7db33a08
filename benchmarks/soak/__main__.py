"""`python -m benchmarks.soak --hours 1`: train for hours with faults at random, and tell what grows.

May be interrupted at any moment; started again, it goes on until the hours are full.

Exit code: 0, or 1 where something grows by more than its bound, 2 where a run ended by itself or was too short to tell.
"""

from __future__ import annotations

import argparse
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.soak import report
from benchmarks.soak.growth import Verdict, all_growth
from benchmarks.soak.prepare import prepare
from benchmarks.soak.run import Options, SegmentError, run_segment
from benchmarks.soak.segments import read_segments, soaked_hours

FULL = 0.97
"""Of the hours, when they count as full: a segment's last sample comes up to a step before its end."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=float, default=1.0, help="to be soaked in all, earlier sittings included")
    parser.add_argument("--minutes", type=float, default=30.0, help="of a segment, after its first step")
    parser.add_argument("--seed", type=int, default=0, help="of the faults")
    parser.add_argument("--out", type=Path, default=Path("outputs", "soak"))
    options = parser.parse_args()
    # Absolute: the recipes' programs work in the folder itself, and are given its path.
    out = options.out.absolute()
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        soak(Options(out, 60 * options.minutes, options.seed), options.hours)
    except KeyboardInterrupt:
        print(f"soak: interrupted; the same command goes on ({_state(out)})", file=sys.stderr)
        return 130
    except SegmentError as error:
        print(f"soak: {error}", file=sys.stderr)
        return 2
    return tell(out)


def soak(options: Options, hours: float) -> None:
    """Run segments until so many hours are full; the last takes what is left."""
    while (soaked := soaked_hours(read_segments(options.out))) < FULL * hours:
        prepare(options.out)
        outcome = run_segment(replace(options, seconds=min(options.seconds, 3600 * (hours - soaked))))
        print(f"soak: segment ended ({outcome}); {_state(options.out)}", flush=True)


def tell(out: Path) -> int:
    """Print what grows, and write it."""
    segments = [segment for segment in read_segments(out) if segment.samples]
    if not segments:
        print(f"soak: no sample in {out}; soak first (--hours)", file=sys.stderr)
        return 2
    growth = all_growth(segments)
    text = report.report(segments, growth)
    (out / "soak.md").write_text(text)
    print(text)
    verdicts = {each.verdict for each in growth}
    if verdicts == {Verdict.OPEN}:
        print("soak: too few steps to tell of anything whether it grows; soak longer (--hours)", file=sys.stderr)
        return 2
    return int(Verdict.GROWS in verdicts)


def _state(out: Path) -> str:
    segments = read_segments(out)
    return f"{60 * soaked_hours(segments):.0f} minutes soaked in {len(segments)} segments"


def _interrupt(*_: Any) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
