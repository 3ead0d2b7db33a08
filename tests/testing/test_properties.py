"""What is said of the properties, and where example turns come from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

from tests.testing.conftest import Check, failures
from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.types import FrameRecord, FrameRequest, ImagePart, VideoInfo
from verl_video_tools.methods import toolkit as vt
from verl_video_tools.methods.direct import Direct
from verl_video_tools.testing.config_and_prompt import false_label, request_fault
from verl_video_tools.testing.run import PROPERTIES
from verl_video_tools.testing.world import QWEN


def test_the_page_lists_each() -> None:
    page = (Path(__file__).parents[2] / "docs" / "check-method.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    assert sorted(rows) == sorted(f"| `{each.name}` | {each.must} |" for each in PROPERTIES.values())


@dataclass(frozen=True, kw_only=True)
class Unbuildable(Direct):
    name: ClassVar[str] = "unbuildable"

    max_turns: int = 0


def test_a_class_that_cannot_be_built_is_refused(check: Check) -> None:
    with pytest.raises(UsageError, match="max_turns"):
        check(Unbuildable)


@dataclass(frozen=True, kw_only=True)
class Mute(Direct):
    """A method with a grammar of its own, and without examples."""

    name: ClassVar[str] = "mute"
    oracle: ClassVar[str | None] = None

    def parse(self, text: str) -> vt.ParsedTurn:
        before, mark, answer = text.partition("::")
        return vt.ParsedTurn(thought=before, answer=answer.strip() if mark else None, well_formed=bool(mark))


@dataclass(frozen=True, kw_only=True)
class Taught(Mute):
    check_examples: ClassVar[tuple[str, ...]] = ("so:: B",)


def test_a_method_without_examples_is_asked_for_some(check: Check) -> None:
    found = check(Mute)
    assert "--turns FILE" in (failures(found)["example_turns_work"] or "")
    assert "example_turns_work does not hold" in (found["grading_separates_right_from_wrong"].reason or "")


def test_turns_of_the_user_and_of_the_author_are_taken(check: Check) -> None:
    by_user, by_author = check(Mute, turns=["so:: B"]), check(Taught)
    assert failures(by_user) == failures(by_author)
    assert by_user["example_turns_work"].status == by_author["grading_separates_right_from_wrong"].status == "pass"


@dataclass(frozen=True, kw_only=True)
class Unprompted(Direct):
    """Its prompt is in a file that does not exist."""

    name: ClassVar[str] = "unprompted"

    def prompt(self, sample: vt.Sample, info: vt.VideoInfo, images: Sequence[vt.ImagePart]) -> list[vt.Message]:
        return [vt.Message("user", (vt.load_prompt("tests", "no_such_prompt.txt", None), sample.question, *images))]


def test_a_missing_file_is_named(check: Check) -> None:
    reason = failures(check(Unprompted))["prompt_is_repeatable"]
    assert reason is not None and "no_such_prompt.txt" in reason


FRAMES = [FrameRecord(30, 6.0, 56, 56), FrameRecord(61, 12.2, 56, 56)]
TRUE_LABELS = (
    *("", "frame: ", "{t:.2f} s: ", "{t:.1f}s", "{t:.0f} s", "Frame {n}: ", "Frame {n} at {t:.2f} s: ", "{clock} "),
    *("Image {i}: ", "Picture {place} of 2: ", "Frame {n} ({clock}): ", "at {t:.3f} seconds (5.00 fps): "),
)
FALSE_LABELS = ("{late:.1f} s: ", "Frame 5{n}: ", "Frame {n} at {late:.2f} s: ", "1:{n} ", "99.0: ")


@pytest.mark.parametrize("form", [*TRUE_LABELS, *FALSE_LABELS])
def test_labels(form: str) -> None:
    parts: list[str | ImagePart] = ["Watch 3 frames of 20.00 s.\n"]
    for place, frame in enumerate(FRAMES):
        seconds = frame.timestamp_seconds
        clock = f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
        parts += [form.format(t=seconds, late=seconds + 0.5, n=frame.index, i=place, place=place + 1, clock=clock)]
        parts += [ImagePart(frame), "\n"]
    fault = false_label(tuple(parts))
    assert fault is None if form in TRUE_LABELS else fault is not None and "6 s" in fault


@pytest.mark.parametrize(
    ("frames", "fault"),
    [
        ({"indices": (0, 50, 99)}, None),
        ({"seconds": (0.0, 7.5, 20.0)}, None),
        ({"indices": ()}, None),
        ({"indices": (4, 4)}, None),
        ({"indices": (0, 100)}, "the place 100 is not within 0 to 99"),
        ({"seconds": (-0.1,)}, "the place -0.1 is not within 0 to 20"),
        ({"seconds": (3.0, 2.0)}, "the frames are not in order of time"),
        ({"indices": (1,), "width": 0}, "a size of 0x56 pixels, which the processor changes"),
        ({"indices": (1,), "width": 60}, "a size of 60x56 pixels, which the processor changes"),
    ],
)
def test_frames_that_cannot_be_shown_in_order(frames: dict[str, tuple[float, ...]], fault: str | None) -> None:
    request = FrameRequest(**{"width": 56, "height": 56, **frames})  # type: ignore[arg-type]  # of several types
    assert request_fault(request, VideoInfo(20.0, 100, 5.0, 56, 56), QWEN) == fault
