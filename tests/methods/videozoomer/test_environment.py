"""What VideoZoomer shows to scripted policies, strict and as published: clips, sizes, labels, errors."""

import json
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.methods.videozoomer.scripted import GOOD, QUESTION, RIGHT, labels, run, times
from tests.turns.tagged import zoom
from tests.videos.files import MakeVideo, read_number, write_video
from tests.videos.uneven import BURST, LECTURE, SLIDES
from verl_video_tools.core.errors import DeadlineError, UnreadableVideoError, VideoError
from verl_video_tools.core.types import Sample, StopReason, content_images, content_text
from verl_video_tools.methods import get_method
from verl_video_tools.rollout import observation as observation_module
from verl_video_tools.rollout.episode import Episode


def clip(video: str, compat: str, start: float, end: float, fps: Any) -> list[float] | str:
    """Times shown by a zoom, or the error that the model reads."""
    turn = run(video, [zoom(start, end, fps)], compat)["turns"][0]
    (call,) = turn["calls"]
    if call["ok"]:
        assert labels(call["frames"]) in turn["observation"]
        return times(call["frames"])
    if compat == "strict":
        assert f"\nError: {call['error']}\n</tool_response>\n" in turn["observation"]
    return str(call["error"])


EIGHT_FRAMES = [round(frame / 30, 2) for frame in range(120, 128)]
LAST_SECOND = [round((2970 + int(29 * i / 15)) / 30, 2) for i in range(16)]
TO_THE_END = [98.0, 98.17, 98.33, 98.53, 98.7, 98.87, 99.07, 99.23, 99.4, 99.6, 99.77, 99.97]


@pytest.mark.parametrize(
    ("request_", "strict", "reference"),
    [
        ((4, 6, 2), [4.0, 4.67, 5.33, 6.0], None),  # four frames
        (
            (0, 17, 1),
            "too_many_frames: 1 fps over [0, 17] are 17 frames; a zoom shows at most 16: ",
            None,
        ),  # one frame too many
        (
            (4, 6, 100),
            "too_many_frames: 100 fps over [4, 6] are 200 frames; a zoom shows at most 16: ",
            None,
        ),  # a rate beyond that of the video
        ((0, 16, 1), [round(32 * i / 30, 2) for i in range(16)], None),
        (
            (0, 16.99, 1),  # a fraction of a frame too many
            "too_many_frames: 1 fps over [0, 16.99] are 16.99 frames; ",
            [*(round(int(509 * i / 15) / 30, 2) for i in range(15)), 16.97],
        ),
        (
            (10, 10.4, 2),
            "segment_too_short: segment [10, 10.4] holds no frame at 2 fps; ",
            [],
        ),  # shorter than the distance of two frames
        ((10, 10, 2), "segment_too_short: ", []),
        (
            (6, 4, 2),
            "reversed_segment: segment [6, 4] ends before it starts; ",
            "reversed_segment: ",
        ),  # the end two seconds before the start
        ((6, 5.9, 2), "reversed_segment: ", []),  # less than one frame before it
        (
            (150, 152, 4),  # wholly past the end
            "out_of_range: segment [150, 152] leaves the video, which lasts from 0 to 100.00 s",
            [99.97] * 8,
        ),
        ((98, 104, 2), "out_of_range: segment [98, 104] leaves the video", TO_THE_END),  # past the end
        ((-2, 2, 2), "out_of_range: ", [0.0, 0.27, 0.57, 0.83, 1.13, 1.4, 1.7, 2.0]),  # before the start
        ((4, 6, 0.5), [4.0], None),  # one frame in two seconds
        ((4, 4.001, 16_000), [4.0], [4.0] * 16),  # each frame once, however high the rate
        ((4, 4.25, 64), EIGHT_FRAMES, [round((120 + int(7 * i / 15)) / 30, 2) for i in range(16)]),
        ((99, 100, 3), [99.0, 99.5, 99.97], [99.0, 99.47, 99.97]),  # up to the very end
        ((99, 100.04, 3), [99.0, 99.5, 99.97], [99.0, 99.47, 99.97]),  # up to the label of the last frame, rounded up
        ((99, 100.04, 16), [*(round(99 + i / 15, 2) for i in range(15)), 99.97], LAST_SECOND),  # 16 frames, not 16.64
        ((99, 100.06, 3), "out_of_range: ", [99.0, 99.47, 99.97]),
        ((101, 100.04, 3), "reversed_segment: ", None),
        ((4, 6, 0), "malformed_call: fps must be above 0, got 0", []),
        ((4, 6, -2), "malformed_call: fps must be above 0, got -2", "reversed_segment: "),
        ((4, 6, "two"), "malformed_call: fps takes finite numbers, got 'two'", "malformed_call: "),
        ((4, 6, True), "malformed_call: fps takes finite numbers, got True", [4.0, 6.0]),
    ],
)
def test_clips(
    make_video: MakeVideo, request_: tuple[Any, ...], strict: list[float] | str, reference: list[float] | str | None
) -> None:
    for compat, expected in (("strict", strict), ("reference", strict if reference is None else reference)):
        shown = clip(make_video(), compat, *request_)
        if isinstance(expected, str):
            assert isinstance(shown, str) and shown.startswith(expected)
        else:
            assert shown == expected


def test_float_error_costs_no_frame(make_video: MakeVideo) -> None:
    """Eight seconds at 1 fps are 7.999999999999999 frames."""
    assert len(clip(make_video(), "strict", 0.2, 8.2, 1)) == 8
    assert len(clip(make_video(), "reference", 0.2, 8.2, 1)) == 7


@pytest.mark.parametrize(
    ("duration_seconds", "count", "first_two", "last"),
    [
        (60, 30, [0.0, 2.0], 58.0),
        (127, 64, [0.0, 2.0], 126.0),
        (128, 64, [0.0, 2.0], 126.0),
        (129, 64, [0.0, 2.03], 128.97),
    ],
)
@pytest.mark.parametrize("compat", ["strict", "reference"])
def test_glance(
    make_video: MakeVideo, compat: str, duration_seconds: int, count: int, first_two: list[float], last: float
) -> None:
    frames = run(make_video(30 * duration_seconds), [], compat)["initial_frames"]
    assert len(frames) == count
    assert times(frames)[:2] == first_two
    assert times(frames)[-1] == last


def test_a_rate_that_does_not_divide_two_seconds(make_video: MakeVideo) -> None:
    """29.97 per second: strictly the frame shown every two seconds; as published every 60 frames."""
    video = make_video(1200, Fraction(30000, 1001))
    assert [frame["index"] for frame in run(video, [])["initial_frames"]][:3] == [0, 59, 119]
    assert [frame["index"] for frame in run(video, [], "reference")["initial_frames"]][:3] == [0, 60, 120]


def test_a_slow_video_shows_no_frame_twice(make_video: MakeVideo) -> None:
    video = make_video(6, Fraction(1, 5))
    for compat in ("strict", "reference"):
        assert [frame["index"] for frame in run(video, [], compat)["initial_frames"]] == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("times_seconds", "initial_frames", "shown"),
    [
        pytest.param(SLIDES, 64, [0.0, *SLIDES[20:]], id="slides"),
        pytest.param(SLIDES, 8, [0.0, *SLIDES[20:]], id="slides, evenly"),
        pytest.param(BURST, 64, [*BURST[:6], 46.0], id="burst"),
        pytest.param(BURST, 8, [*BURST[:6], 47.9], id="burst, evenly"),
        pytest.param(LECTURE, 64, [0.0, 4.0, *LECTURE[10:]], id="lecture"),
    ],
)
def test_a_glance_follows_the_clock_where_the_rate_varies(
    times_seconds: list[float], initial_frames: int, shown: list[float], tmp_path: Path
) -> None:
    """Each frame once; where there are too many times, the last frame is among them."""
    video = str(write_video(tmp_path / "uneven.mp4", times_seconds=times_seconds))
    frames = run(video, [], initial_frames=initial_frames)["initial_frames"]
    assert times(frames) == pytest.approx(shown)


@pytest.mark.parametrize(
    ("native", "expected"),
    [((1920, 1080), (422, 237)), ((640, 480), (365, 274)), ((320, 240), (320, 240)), ((64, 36), (64, 36))],
)
@pytest.mark.parametrize("compat", ["strict", "reference"])
def test_sizes(make_video: MakeVideo, compat: str, native: tuple[int, int], expected: tuple[int, int]) -> None:
    result = run(make_video(16, Fraction(1), *native), [zoom(4, 6, 1)], compat)
    frames = result["initial_frames"] + result["turns"][0]["calls"][0]["frames"]
    assert len(frames) == 8 + 2
    assert {(frame["width"], frame["height"]) for frame in frames} == {expected}


def test_the_record(make_video: MakeVideo) -> None:
    """Every field of the contract."""
    turns = [zoom(42, 44), zoom(42.5, 43.5, 4), RIGHT]
    result = run(make_video(), turns)
    assert len(result["initial_frames"]) == 50
    first, second, last = result["turns"]
    assert first["calls"] == [
        {
            "name": "video_zoom",
            "arguments": {"segment": [42, 44], "fps": 2},
            "ok": True,
            "error": None,
            "frames": [
                {"index": index, "timestamp_seconds": pytest.approx(index / 30), "width": 64, "height": 36}
                for index in (1260, 1280, 1300, 1320)
            ],
        }
    ]
    marks = "<frame0_time42.00s><image><frame1_time42.67s><image><frame2_time43.33s><image><frame3_time44.00s><image>"
    assert first["observation"].startswith("<tool_response>\n")
    assert f":\n{marks}\n</tool_response>\n" in first["observation"]
    assert "<frame0_time42.50s><image><frame1_time42.83s>" in second["observation"]  # the count starts anew
    assert last == {"text": RIGHT, "calls": [], "observation": None}
    assert (result["answer"], result["stop_reason"]) == ("B", "answer")
    assert result["counts"] == {"assistant_turns": 3, "executed_calls": 2, "initial_frames": 50, "tool_frames": 8}


def test_the_fourth_observation_says_that_no_zoom_is_left(make_video: MakeVideo) -> None:
    for compat in ("strict", "reference"):
        result = run(make_video(), [GOOD] * 5, compat)
        notices = ["No zoom is left" in (turn["observation"] or "") for turn in result["turns"]]
        assert notices == [False, False, False, True, False]
        assert result["turns"][4]["observation"] is None
        assert result["turns"][4]["calls"][0]["error"].startswith("turn_limit: ")
        assert result["counts"]["executed_calls"] == 4


def test_an_error_before_the_last_turn_carries_the_notice_too(make_video: MakeVideo) -> None:
    result = run(make_video(), [GOOD, zoom(6, 4), RIGHT], max_turns=3)
    assert "No zoom is left" in result["turns"][1]["observation"]
    assert "No zoom is left" not in result["turns"][0]["observation"]


def test_an_error_is_read_and_shows_no_frame(make_video: MakeVideo) -> None:
    result = run(make_video(), [zoom(150, 152, 4), RIGHT])
    observation = result["turns"][0]["observation"]
    assert observation.startswith("<tool_response>\nError: out_of_range: ")
    assert observation.count("<tool_response>") == observation.count("</tool_response>") == 1
    assert "<image>" not in observation
    assert result["counts"]["tool_frames"] == 0
    assert result["stop_reason"] == "answer"


@pytest.mark.parametrize(
    ("error", "code"),
    [(UnreadableVideoError("/data/answer_is_b.mp4: gone"), "video_error"), (DeadlineError("/data/b.mp4"), "deadline")],
)
async def test_a_video_that_fails_during_the_rollout(
    make_video: MakeVideo, monkeypatch: pytest.MonkeyPatch, error: VideoError, code: str
) -> None:
    """The model reads an error and goes on; the rollout is flagged, since the failure is not the policy's."""

    async def failing(*_: object, **__: object) -> None:
        raise error

    episode = Episode(get_method("videozoomer"), Sample(QUESTION, "B", make_video(), "mc"))
    await episode.start()
    monkeypatch.setattr(observation_module, "decode_frames", failing)
    observation = await episode.step(GOOD)
    assert observation is not None
    assert ": the frames could not be read" in content_text(observation)
    assert "answer_is_b" not in content_text(observation)
    await episode.step(RIGHT)
    assert episode.trajectory.stop_reason is StopReason.ANSWER
    assert episode.trajectory.flags == [code]


def test_a_missing_video_earns_nothing() -> None:
    for compat in ("strict", "reference"):
        result = run("missing.mp4", [RIGHT], compat)
        assert (result["stop_reason"], result["video"]) == ("video_error", None)
        assert result["reward"] == {"score": 0.0, "accuracy": 0.0, "format": 0.0, "tool": 0.0}


async def test_labels_are_the_times_of_the_pictures(tmp_path: Path) -> None:
    """A variable rate: 1 s of 30 frames per second, then 5 s of 2 per second. Labels, records and pixels agree."""
    times_seconds = [i / 30 for i in range(30)] + [1 + i / 2 for i in range(10)]
    path = write_video(tmp_path / "variable.mp4", times_seconds=times_seconds)
    episode = Episode(get_method("videozoomer"), Sample(QUESTION, "B", str(path), "mc"))
    messages = await episode.start()
    assert messages is not None
    observation = await episode.step(zoom(0.5, 4.5, 2))
    assert observation is not None
    shown = episode.trajectory.initial_frames, episode.trajectory.turns[0].calls[0].frames
    for content, records in zip((messages[1].content, observation), shown, strict=True):
        parts = list(content)
        for i, record in enumerate(records):
            image = content_images(content)[i]
            label = parts[parts.index(image) - 1]
            assert isinstance(label, str)
            assert label.endswith(f"<frame{i}_time{record.timestamp_seconds:.2f}s>")
            assert image.record == record
            assert image.pixels_HWC is not None
            assert read_number(np.asarray(image.pixels_HWC)) == record.index
            assert record.timestamp_seconds == pytest.approx(times_seconds[record.index], abs=1e-3)
    frames = shown[1]
    assert [round(frame.timestamp_seconds, 2) for frame in frames] == [0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.5]


async def test_a_zoom_that_does_not_fit_is_answered_with_an_error(make_video: MakeVideo) -> None:
    class FewImages:
        def refuses_prompt(self, messages: object) -> None:
            return None

        def refuses_observation(self, content: Any) -> StopReason | None:
            return StopReason.IMAGE_BUDGET if len(content_images(content)) > 2 else None

    episode = Episode(get_method("videozoomer"), Sample(QUESTION, "B", make_video(), "mc"), budget=FewImages())
    await episode.start()
    observation = await episode.step(GOOD)
    assert observation is not None and "Error: image_budget: " in content_text(observation)
    assert await episode.step(zoom(4, 6, 1)) is not None
    assert [call.ok for call in episode.trajectory.calls()] == [False, True]


def test_command_line(make_video: MakeVideo, tmp_path: Path) -> None:
    turns = tmp_path / "turns.json"
    turns.write_text(json.dumps([GOOD, RIGHT]))
    command = [sys.executable, "-m", "verl_video_tools.cli", "replay", "--method", "videozoomer"]
    command += ["--video", make_video(), "--question", QUESTION, "--answer", "B", "--turns", str(turns)]
    done = subprocess.run([*command, "--set", "tool_bonus=0.25"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["reward"] == {"score": 1.25, "accuracy": 0.9, "format": 0.1, "tool": 0.25}
    assert times(result["turns"][0]["calls"][0]["frames"]) == [4.0, 4.67, 5.33, 6.0]
