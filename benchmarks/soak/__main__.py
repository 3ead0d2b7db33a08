"""`python -m benchmarks.soak --hours 1`: train for hours with faults at random, and tell what grows.

May be interrupted at any moment; started again, it goes on until the hours are full. `--earlier FOLDER` counts and
shows segments of another machine, too; `--docs` keeps those that a page was made from in `benchmarks/soak/segments`.
With `--leak-mb 1` the agent loop worker keeps 1 MB more with every step, which has to be found.

Exit code: 0, or 1 where something grows by more than its bound, 2 where a run ended by itself or was too short to tell.
"""

from __future__ import annotations

import argparse
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.soak import page, picture
from benchmarks.soak.growth import Verdict, all_growth
from benchmarks.soak.prepare import prepare
from benchmarks.soak.run import Options, SegmentError, run_segment
from benchmarks.soak.segments import SegmentsDifferError, copy_segments, read_segments, soaked_hours

KEPT = Path(__file__).parent / "segments"
"""What docs/reliability.md shows."""
FULL = 0.97
"""Of the hours, when they count as full: a segment's last sample comes up to a step before its end."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=float, default=1.0, help="to be soaked in all, earlier sittings included")
    parser.add_argument("--minutes", type=float, default=30.0, help="of a segment, after its first step")
    parser.add_argument("--most-segments", type=int, help="of this sitting")
    parser.add_argument("--seed", type=int, default=0, help="of the faults")
    parser.add_argument("--leak-mb", type=float, default=0.0, help="planted in the agent loop worker, per step")
    parser.add_argument("--out", type=Path, help="default: outputs/soak, or outputs/soak_leak with a planted leak")
    parser.add_argument("--earlier", type=Path, help="folder of segments to go on from")
    parser.add_argument("--docs", action="store_true", help="put table and picture into docs/reliability.md")
    options = parser.parse_args()
    # Absolute: the recipes' programs work in the folder itself, and are given its path.
    out = (options.out or Path("outputs", "soak_leak" if options.leak_mb else "soak")).absolute()
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        if options.earlier is not None:
            copy_segments(options.earlier, out)
        soak(Options(out, 60 * options.minutes, options.seed, options.leak_mb), options.hours, options.most_segments)
    except KeyboardInterrupt:
        print(f"soak: interrupted; the same command goes on ({_state(out)})", file=sys.stderr)
        return 130
    except (SegmentError, SegmentsDifferError) as error:
        print(f"soak: {error}", file=sys.stderr)
        return 2
    return tell(out, options.docs)


def soak(options: Options, hours: float, most_segments: int | None) -> None:
    """Run segments until so many hours are full, or so many segments were run; the last takes what is left."""
    num_segments = 0
    while (soaked := soaked_hours(read_segments(options.out))) < FULL * hours and num_segments != most_segments:
        prepare(options.out)
        outcome = run_segment(replace(options, seconds=min(options.seconds, 3600 * (hours - soaked))))
        num_segments += 1
        print(f"soak: segment ended ({outcome}); {_state(options.out)}", flush=True)


def tell(out: Path, docs: bool) -> int:
    """Write table and picture, and print what grows."""
    segments = [segment for segment in read_segments(out) if segment.samples]
    if not segments:
        print(f"soak: no sample in {out}; soak first (--hours)", file=sys.stderr)
        return 2
    growth = all_growth(segments)
    text = page.report(segments, growth)
    (out / "soak.md").write_text(text)
    picture.draw(segments, out / "soak.svg")
    print(text)
    if docs:
        page.into_page(text)
        page.PICTURE.write_bytes((out / "soak.svg").read_bytes())
        copy_segments(out, KEPT, compressed=True)
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
