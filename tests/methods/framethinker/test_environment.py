"""What FrameThinker shows to scripted policies, and what it does in the last turn."""

from fractions import Fraction

import pytest

from tests.methods.framethinker.scripted import ANSWER, TIMED_QUESTION, VIDEOS, indices, run, size
from tests.turns.framethinker import choose, get
from tests.videos.files import MakeVideo
from verl_video_tools.replay import replay


def test_the_record(make_video: MakeVideo) -> None:
    """Every field of the contract."""
    path = make_video(*VIDEOS["125 s"])
    turns = [get("0:34"), choose(800, 900), ANSWER]
    result = replay("framethinker", path, TIMED_QUESTION, "B", turns)
    assert result.keys() == {
        *("method", "video", "initial_frames", "turns", "stop_reason", "answer", "error", "reward", "counts")
    }
    assert result["method"] == "framethinker"
    assert result["video"] == {
        "duration_seconds": pytest.approx(125.125),
        "num_frames": 3000,
        "average_fps": pytest.approx(24000 / 1001),
        "width": 64,
        "height": 36,
    }
    assert indices(result["initial_frames"]) == [0, 428, 856, 1285, 1713, 2142, 2570, 2999]
    assert result["initial_frames"][1] == {
        "index": 428,
        "timestamp_seconds": pytest.approx(428 * 1001 / 24000),
        "width": 64,
        "height": 36,
    }
    time_turn, zoom_turn, answer_turn = result["turns"]
    assert time_turn == {
        "text": turns[0],
        "calls": [{"name": "get_frame_number", "arguments": {"time": "0:34"}, "ok": True, "error": None, "frames": []}],
        "observation": "Frame number at time 0:34 is: 815.",
    }
    (zoom,) = zoom_turn["calls"]
    assert zoom["arguments"] == {"start_frame": 800, "end_frame": 900}
    assert indices(zoom["frames"]) == [801, 815, 829, 843, 857, 871, 885, 899]
    assert zoom_turn["observation"] == "\n".join(f"frame {index}: <image>" for index in indices(zoom["frames"]))
    assert answer_turn == {"text": ANSWER, "calls": [], "observation": None}
    assert (result["answer"], result["stop_reason"]) == ("B", "answer")
    assert result["reward"] == {
        "score": pytest.approx(1.52),
        "accuracy": 1.0,
        "action_bonus": pytest.approx(0.52),
        "format": 0.0,
        "ccv": 1.0,
    }
    assert result["counts"] == {"assistant_turns": 3, "executed_calls": 2, "initial_frames": 8, "tool_frames": 8}


@pytest.mark.parametrize("compat", ["strict", "reference"])
def test_eight_frames(make_video: MakeVideo, compat: str) -> None:
    result = run(make_video(), [choose(100, 200), ANSWER], compat)
    assert indices(result["turns"][0]["calls"][0]["frames"]) == [101, 115, 129, 143, 157, 171, 185, 199]


@pytest.mark.parametrize("compat", ["strict", "reference"])
def test_twelve_frames_after_300_seconds(make_video: MakeVideo, compat: str) -> None:
    at_300_s = run(make_video(9000), [choose(100, 200), ANSWER], compat)
    assert at_300_s["video"]["duration_seconds"] == 300.0
    assert indices(at_300_s["turns"][0]["calls"][0]["frames"]) == [101, 115, 129, 143, 157, 171, 185, 199]
    longer = run(make_video(9001), [choose(100, 200), ANSWER], compat)
    assert len(longer["initial_frames"]) == 12
    shown = [101, 109, 118, 127, 136, 145, 154, 163, 172, 181, 190, 199]
    assert indices(longer["turns"][0]["calls"][0]["frames"]) == shown


def test_a_long_video_needs_a_longer_segment(make_video: MakeVideo) -> None:
    for compat in ("strict", "reference"):
        result = run(make_video(9001), [choose(100, 112), ANSWER], compat)
        assert result["stop_reason"] == "invalid_action"
        assert result["turns"][0]["calls"][0]["error"].startswith("segment_too_short: ")


def test_end_of_the_video(make_video: MakeVideo) -> None:
    for compat in ("strict", "reference"):
        result = run(make_video(), [choose(2991, 3000), ANSWER], compat)
        assert indices(result["turns"][0]["calls"][0]["frames"]) == list(range(2992, 3000))
        for zoom in (choose(3000, 5000), choose(2992, 3000)):
            refused = run(make_video(), [zoom, ANSWER], compat)
            assert (refused["stop_reason"], refused["turns"][0]["observation"]) == ("invalid_action", None)


SECOND, TWENTY_SECONDS = Fraction(1), Fraction(1, 20)  # sixteen frames: 16 s, and 320 s


@pytest.mark.parametrize(
    ("video_size", "fps", "strict", "reference"),
    [
        ((1920, 1080), SECOND, (640, 360), (640, 360)),
        ((1920, 1080), TWENTY_SECONDS, (448, 252), (448, 252)),
        ((1280, 720), TWENTY_SECONDS, (448, 252), (448, 251)),
        ((720, 1280), SECOND, (202, 360), (202, 360)),
        ((320, 240), SECOND, (320, 240), (320, 240)),
    ],
)
def test_sizes(
    make_video: MakeVideo,
    video_size: tuple[int, int],
    fps: Fraction,
    strict: tuple[int, int],
    reference: tuple[int, int],
) -> None:
    path = make_video(16, fps, *video_size)
    for compat, expected in (("strict", strict), ("reference", reference)):
        result = run(path, [choose(1, 15), ANSWER], compat)
        assert {size(frame) for frame in result["initial_frames"]} == {expected}
        assert {size(frame) for frame in result["turns"][0]["calls"][0]["frames"]} == {expected}


@pytest.mark.parametrize("compat", ["strict", "reference"])
def test_a_call_in_the_last_turn(make_video: MakeVideo, compat: str) -> None:
    turns = [choose(100 * number, 100 * number + 50) for number in range(1, 6)]
    result = run(make_video(), [*turns, ANSWER], compat)
    last = result["turns"][-1]
    assert (result["stop_reason"], len(result["turns"]), last["observation"]) == ("max_turns", 5, None)
    assert last["calls"][0]["error"].startswith("turn_limit: ")
    assert result["reward"] == {"score": 0.0, "accuracy": 0.0, "action_bonus": 0.0, "format": 0.0, "ccv": 0.0}
    assert result["counts"]["executed_calls"] == 4


def test_the_last_turn_may_answer(make_video: MakeVideo) -> None:
    turns = [choose(100 * number, 100 * number + 50) for number in range(1, 5)]
    assert run(make_video(), [*turns, ANSWER])["reward"]["score"] == pytest.approx(1.02)
