"""Cognitive Consistency Verification over executed calls, in both profiles."""

import pytest

from verl_video_tools.core.errors import CallError
from verl_video_tools.core.types import CallRecord, Turn
from verl_video_tools.methods.framethinker.grammar import Profile, last_two_numbers
from verl_video_tools.rewards import verify_consistency

NUM_VIDEO_FRAMES = 3000


def choose(start: int, end: int, thought: str | None = "") -> Turn:
    """A turn that zoomed; its thought names the segment unless another is given."""
    thought = f"between {start} and {end}" if thought == "" else thought
    call = CallRecord("choose_frames", {"start_frame": start, "end_frame": end}, ok=True)
    return Turn("", [call], thought=thought)


def get(time: str, frame_number: int) -> Turn:
    call = CallRecord("get_frame_number", {"time": time}, ok=True, result={"frame_number": frame_number})
    return Turn("", [call], thought="when")


ANSWER = Turn("", thought="done", answer="B")
TIME_AND_ZOOM = [get("0:34", 815), choose(700, 900)]


def failed(turns: list[Turn], profile: Profile, min_gap: int = 8) -> str | None:
    """Name of the check that failed, None if consistent."""
    verdict = verify_consistency(turns, profile, min_gap, NUM_VIDEO_FRAMES)
    assert verdict.ok == (verdict.failed is None) == (verdict.reason == "")
    return verdict.failed


SEQUENCES = [
    # turns                                              training         inference
    ([ANSWER], None, None),
    ([choose(100, 200), ANSWER], None, None),
    ([choose(100, 200, "at 200 and 100"), ANSWER], "fidelity", None),
    ([choose(100, 200, "no numbers"), ANSWER], "fidelity", None),
    ([choose(100, 200), choose(100, 200), ANSWER], "redundancy", "redundancy"),
    ([choose(100, 200), choose(300, 400), choose(100, 200), ANSWER], "redundancy", "redundancy"),
    ([choose(100, 200), choose(101, 200), ANSWER], None, None),
    ([choose(100, 200), choose(99, 201), ANSWER], None, None),
    ([choose(100, 200), choose(101, 199), ANSWER], "redundancy", None),
    ([choose(0, 2999), ANSWER], "redundancy", None),
    ([choose(0, 3000), ANSWER], None, None),
    ([choose(100, 109), ANSWER], None, None),
    ([choose(100, 108), ANSWER], "min_gap", "min_gap"),
    ([get("0:34", 815), choose(700, 900), ANSWER], None, None),
    ([get("0:34", 815), choose(815, 900), ANSWER], None, None),
    ([get("0:34", 815), choose(700, 815), ANSWER], None, None),
    ([get("0:34", 815), choose(565, 645), ANSWER], "logical_flow", "logical_flow"),
    ([get("0:34", 815), ANSWER], "logical_flow", "logical_flow"),
    ([get("0:10", 239), get("0:34", 815), choose(700, 900), ANSWER], None, "logical_flow"),
    ([get("0:10", 239), get("0:34", 815), choose(200, 300), ANSWER], "logical_flow", "logical_flow"),
    ([*TIME_AND_ZOOM, get("0:34", 815), choose(800, 900), ANSWER], "redundancy", "redundancy"),
    ([*TIME_AND_ZOOM, get("00:34", 815), choose(800, 900), ANSWER], None, None),
    ([get("0:00", 0), choose(0, 100), ANSWER], None, None),
]


def test_sequences() -> None:
    for turns, training, inference in SEQUENCES:
        assert failed(turns, "train") == training
        assert failed(turns, "inference") == inference


def test_the_gap_follows_the_frames_of_a_zoom() -> None:
    """Nine frames apart are enough for 8 frames shown, not for 12."""
    turns = [choose(100, 109), ANSWER]
    assert failed(turns, "inference", min_gap=8) is None
    assert failed(turns, "inference", min_gap=12) == "min_gap"


REFUSED = Turn(
    "",
    [CallRecord("choose_frames", {"start_frame": 5, "end_frame": 1}, ok=False, error=CallError("", "x"))],
    thought="so",
)


@pytest.mark.parametrize(
    "turns",
    [
        [],
        [choose(100, 200)],
        [Turn("", thought=None, answer="B")],
        [choose(100, 200, thought=None), ANSWER],
        [REFUSED, ANSWER],
        [Turn("", thought="idle"), ANSWER],
        [Turn("", choose(100, 200).calls + choose(300, 400).calls, thought="300 and 400"), ANSWER],
        [Turn("", choose(100, 200).calls, thought="100 and 200", answer="B")],
        [Turn("", [CallRecord("crop", {}, ok=True)], thought="so"), ANSWER],
    ],
)
@pytest.mark.parametrize("profile", ["train", "inference"])
def test_structure(turns: list[Turn], profile: Profile) -> None:
    assert failed(turns, profile) == "structure"


THOUGHTS = [
    ("100 and 200", (100, 200)),
    ("200 then 100", (200, 100)),
    ("100 to 200, 8 frames", (200, 8)),
    ("100 to 200 near 00:34", (100, 200)),
    ("between 100 and 200:", None),
    ("1,400 and 1,500", (1, 500)),
    ("3 people, 100 to 200", (100, 200)),
    ("0100 0200", (100, 200)),
    ("frame-100 to frame-200", (100, 200)),
    ("frame_100 to frame_200", None),
    ("100.0 200.0", (200, 0)),
    ("range 100-200.", (100, 200)),
    ("100 to 200 in 8x", (100, 200)),
    ("200", None),
    ("", None),
    ("9" * 5000 + " 7", None),
]


def test_numbers_of_a_thought() -> None:
    for thought, numbers in THOUGHTS:
        assert last_two_numbers(thought) == numbers


@pytest.mark.parametrize("turns", [[], [choose(10, 200)] * 3])
def test_a_fault_of_structure_has_verified_no_call(turns: list[Turn]) -> None:
    """Without an answer the calls are not looked at; the second of these repeats the first."""
    verdict = verify_consistency(turns, "train", 8, NUM_VIDEO_FRAMES)
    assert (verdict.failed, verdict.num_consistent) == ("structure", 0)
