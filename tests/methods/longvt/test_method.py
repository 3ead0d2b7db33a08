"""LongVT under scripted policies: every acceptance case that needs no tokens, strict and as published.

J with a number names one of the acceptance cases that the project started from. The annotated segment is 10 to 20
seconds of a video of 100 seconds at 30 frames per second.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.methods.doubles import StubJudge
from tests.turns.tagged import tool_call
from tests.videos.files import write_video
from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.types import (
    AnswerLabel,
    FrameRecord,
    ImagePart,
    PixelEnvelope,
    Sample,
    StopReason,
    Trajectory,
    VideoInfo,
    content_text,
)
from verl_video_tools.data.sft import execute
from verl_video_tools.methods import METHOD_NAMES, get_method
from verl_video_tools.methods.longvt import LongVT
from verl_video_tools.methods.toolkit.grammar import parse_calls
from verl_video_tools.replay import replay

QUESTION = "What does the driver wave with?"
INFO = VideoInfo(duration_seconds=100.0, num_frames=3000, average_fps=30.0, width=96, height=64)


@pytest.fixture(scope="module")
def video(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_video(tmp_path_factory.mktemp("videos") / "yard.mp4", num_frames=3000, fps=30))


# ------------------------------------------------------------------------------------------------------------- scripts


def call(start: Any, end: Any, **arguments: Any) -> str:
    """A call as checkpoints write it; `run` puts the path of its video in."""
    arguments = {"video_path": "PATH", "start_time": start, "end_time": end, **arguments}
    return tool_call("crop_video", **arguments)


def crop(start: Any, end: Any, **arguments: Any) -> str:
    return f"<think>look there</think>{call(start, end, **arguments)}"


def answer(text: str = "a red scarf") -> str:
    return f"<think>seen enough</think><answer>{text}</answer>"


F, P, W = AnswerLabel.CORRECT, AnswerLabel.PARTIAL, AnswerLabel.INCORRECT


async def run(
    video: str,
    turns: list[str],
    label: AnswerLabel = F,
    truth: str = "a scarf",
    segment: Any = (10.0, 20.0),
    question_type: Any = "open",
    **fields: Any,
) -> tuple[Trajectory, dict[str, float], StubJudge]:
    method = get_method("longvt", **fields)
    sample = Sample(QUESTION, truth, video, question_type, video_segment_seconds=segment)
    turns = [turn.replace('"PATH"', json.dumps(video)) for turn in turns]
    trajectory = await execute(method, sample, turns)
    judge = StubJudge(label)
    return trajectory, await method.score(trajectory, sample, judge), judge


T = [answer()]
NULL = crop(10, 20, video_path=None)
MENTION = "<think>I could use <tool_call> here</think><answer>a red scarf</answer>"
TALK = "<think>seen enough</think>so it is<answer>a red scarf</answer>"


SEGMENT = Sample(QUESTION, "[10, 20]", "video.mp4", "segment")


def t(*crops: str) -> list[str]:
    """Crops, then the answer."""
    return [*crops, answer()]


@pytest.mark.parametrize(
    ("turns", "label", "fields", "accuracy", "format_reward", "time"),
    [
        pytest.param(T, F, {}, 1, 1, 0, id="right without a crop"),
        pytest.param(t(crop(10, 20)), F, {}, 1, 1, 1, id="the true segment"),
        pytest.param(t(crop(12, 18)), F, {}, 1, 1, 0.6, id="a segment inside the true one"),
        pytest.param(t(crop(0, 100)), F, {}, 1, 1, 0.1, id="the whole video"),
        pytest.param(t(crop(10, 20), crop(30, 40)), F, {}, 1, 1, 0, id="the last of two crops"),
        pytest.param(t(crop(12, 18)), P, {}, 0.5, 1, 0.6, id="partly right"),
        pytest.param(t(crop(12, 18)), W, {}, 0, 1, 0.6, id="wrong"),
        pytest.param(t(crop(5, 15)), P, {"time_reward": "tool"}, 0.5, 1, 1, id="paid for the call, partly right"),
        pytest.param(t(crop(5, 15)), W, {"time_reward": "tool"}, 0, 1, 0, id="paid for the call, wrong"),
        pytest.param(T, F, {"time_reward": "tool"}, 1, 1, 0, id="paid for the call, none made"),
        pytest.param(
            T,
            P,
            {"accuracy_reward": 0.8, "format_reward": 0.2, "time_reward": "none"},
            0.4,
            0.2,
            0,
            id="weights of accuracy and format",
        ),
        pytest.param(T, P, {"time_reward": "none"}, 0.5, 1, 0, id="without time"),
        pytest.param(t(crop(10, 20)), F, {"time_reward": "none"}, 1, 1, 0, id="without the decoupled reward"),
        pytest.param(t(crop(0, 100)), F, {"time_reward": "recall"}, 1, 1, 1, id="recall pays inflated spans"),
        pytest.param(t(crop(12, 18)), F, {"time_weight": 0.5}, 1, 1, 0.3, id="weight of time"),
        pytest.param([answer(" \n ")], F, {}, 0, 1, 0, id="empty answer"),
        pytest.param([TALK], F, {}, 1, 0, 0, id="talk without a tool"),
        pytest.param([crop(30, 40), TALK], F, {}, 1, 1, 0, id="talk with a tool"),
        pytest.param([crop(30, 40), "<answer>a red scarf</answer>"], F, {}, 1, 0, 0, id="an answer without a thought"),
        pytest.param([crop(30, 40) + call(50, 60), answer()], F, {}, 1, 0, 0, id="two calls in one turn"),
        pytest.param([answer() + " I hope"], F, {}, 1, 0, 0, id="text after"),
        pytest.param([f" \n{answer()}\n "], F, {}, 1, 1, 0, id="white space"),
        pytest.param([answer() + "<answer>a hat</answer>"], F, {}, 1, 0, 0, id="two answers"),
        pytest.param([MENTION], F, {}, 1, 0, 0, id="a thought with a literal tag"),
        pytest.param([crop(10, 20)] * 5, F, {}, 0, 0, 1, id="a call in every turn, no answer"),
        pytest.param([answer("x" * 999)], F, {}, 1, 1, 0, id="just short enough"),
        pytest.param([answer("x" * 1000)], F, {}, 0, 0, 0, id="too long"),
        pytest.param(
            t(crop(12, 18)), F, {"time_reward": "boundary"}, 1, 1, 0.6 * 0.98 * 0.98, id="distance of the ends"
        ),
    ],
)
async def test_reward(
    video: str,
    turns: list[str],
    label: AnswerLabel,
    fields: dict[str, Any],
    accuracy: float,
    format_reward: float,
    time: float,
) -> None:
    """The same in both modes."""
    for compat in ("strict", "reference"):
        trajectory, reward, judge = await run(video, turns, label, compat=compat, **fields)
        assert reward == {
            "score": pytest.approx(accuracy + format_reward + time),
            "accuracy": pytest.approx(accuracy),
            "format": pytest.approx(format_reward),
            "temporal_iou": pytest.approx(time),
        }
        given = trajectory.answer or ""
        assert judge.answers == ([given] if given and len(given) < 1000 else [])


@pytest.mark.parametrize(
    ("turns", "fields", "strict", "reference"),
    [
        pytest.param(t(NULL), {}, 1.0, 0.0, id="a null"),
        pytest.param(t(crop(10, 20), crop(90, 200)), {}, 1.0, 0.0, id="a refused last call"),
        pytest.param(t(crop(200, 300), crop(10, 200)), {}, 0.0, 10 / 190, id="only refused calls"),
        pytest.param(t(crop("10", "20")), {}, 0.0, 1.0, id="numbers as text"),
        pytest.param([crop(200, 300)] + [crop(10, 20)] * 4, {}, 1.0, 1.0, id="a last call that is never executed"),
        pytest.param([crop(10, 20)], {"max_turns": 1}, 0.0, 0.0, id="no reply at all"),
    ],
)
async def test_where_the_published_time_reward_differs(
    video: str, turns: list[str], fields: dict[str, Any], strict: float, reference: float
) -> None:
    for compat, expected in (("strict", strict), ("reference", reference)):
        _, reward, _ = await run(video, turns, compat=compat, **fields)
        assert reward["temporal_iou"] == pytest.approx(expected), compat


@pytest.mark.parametrize(
    ("text", "score"), [("[12, 18]", 1.6), ("12 - 18", 1.0), ("[18, 12]", 1.0), ("[1, 2, 3]", 1.0)]
)
@pytest.mark.parametrize("compat", ["strict", "reference"])
async def test_an_answer_that_is_a_segment(video: str, text: str, score: float, compat: str) -> None:
    _, reward, judge = await run(video, [answer(text)], truth="[10, 20]", question_type="segment", compat=compat)
    assert reward["score"] == pytest.approx(score)
    assert judge.answers == []


@pytest.mark.parametrize("compat", ["strict", "reference"])
async def test_open_and_segment_rows_share_a_run(video: str, compat: str) -> None:
    """Each is graded by its own type. A crop is not paid beside a segment: the published sum is the
    answer's IoU and the format."""
    turns = [crop(10, 20), answer("[12, 18]")]
    _, opened, judge = await run(video, turns, compat=compat)
    assert (opened["score"], judge.answers) == (3.0, ["[12, 18]"])
    grounding: dict[str, Any] = {"truth": "[10, 20]", "question_type": "segment", "compat": compat}
    _, published, judge = await run(video, turns, **grounding)
    assert (published["score"], published["accuracy"], judge.answers) == (pytest.approx(1.6), 0.6, [])


def test_its_rows_need_no_judge_but_a_segment() -> None:
    for name in METHOD_NAMES:
        get_method(name).check_sample(SEGMENT, None)
        for truth in ("a scarf", "[20, 10]", "[10]", '"12"'):
            with pytest.raises(UsageError, match=r"must be \[start, end\] in seconds"):
                get_method(name).check_sample(replace(SEGMENT, ground_truth=truth), None)


def test_right_is_wholly_right_and_of_a_segment_the_iou() -> None:
    method, opened = get_method("longvt", accuracy_reward=2.0), replace(SEGMENT, question_type="open")
    assert [method.acc({"accuracy": accuracy}, opened) for accuracy in (0.0, 1.0, 2.0)] == [0.0, 0.0, 1.0]
    assert [method.acc({"accuracy": accuracy}, SEGMENT) for accuracy in (0.0, 1.0, 2.0)] == [0.0, 0.5, 1.0]
    assert get_method("longvt", accuracy_reward=0.0).acc({"accuracy": 0.0}, opened) == 0.0


async def test_a_row_without_a_segment_earns_nothing_for_time(video: str) -> None:
    _, reward, _ = await run(video, t(crop(10, 20)), segment=None)
    assert reward["score"] == 2.0


async def test_an_open_question_needs_a_judge() -> None:
    sample = Sample(QUESTION, "a scarf", "video.mp4", "open")
    with pytest.raises(UsageError, match="needs a judge"):
        await get_method("longvt").score(Trajectory("longvt", QUESTION), sample)


PYTHON = "<tool_call>{'name': 'crop_video', 'arguments': {'start_time': 10, 'end_time': 20}}</tool_call>"
TOOL: dict[str, Any] = {"time_reward": "tool"}
GROUNDING: dict[str, Any] = {"truth": "[10, 20]", "question_type": "segment"}


@pytest.mark.parametrize(
    ("turns", "fields", "strict", "reference"),
    [
        pytest.param([answer() + call(30, 40), "<think>no</think>"], {}, (0, 0, 0), (1, 0, 0), id="answer, then call"),
        pytest.param([crop(30, 40) + "<answer>a</answer>", "<think>no</think>"], {}, (0, 0, 0), (0, 0, 0), id="after"),
        pytest.param(
            [crop(30, 40), "<think>so</think><answer>a</answer><answer>b"], {}, (1, 0, 0), (1, 0, 0), id="open"
        ),
        pytest.param(["<think>a</think><think>b</think><answer>c</answer>"], {}, (1, 0, 0), (1, 1, 0), id="2 thoughts"),
        pytest.param([crop(30, 40), f"<think>so</think>{PYTHON}"], {}, (0, 0, 0), (0, 0, 1), id="Python's syntax"),
        pytest.param(t(crop(10, 20), crop([1], 20)), {}, (1, 1, 1), (1, 1, 0), id="a list as time"),
        pytest.param([f"<tool_response>{answer()}"], TOOL, (1, 0, 0), (1, 0, 1), id="made-up reply"),
        pytest.param([answer("[12, 18]") * 2], GROUNDING, (0.6, 0, 0), (0.6, 1, 0), id="two answers"),
        pytest.param([answer("['12', '18']")], GROUNDING, (0, 1, 0), (0.6, 1, 0), id="numbers as text"),
        pytest.param([answer("x" * 1000)], GROUNDING, (0, 0, 0), (0, 1, 0), id="long answer for a segment"),
    ],
)
async def test_where_the_published_text_reward_differs(
    video: str,
    turns: list[str],
    fields: dict[str, Any],
    strict: tuple[float, ...],
    reference: tuple[float, ...],
) -> None:
    for compat, expected in (("strict", strict), ("reference", reference)):
        _, reward, _ = await run(video, turns, compat=compat, **fields)
        assert (reward["accuracy"], reward["format"], reward["temporal_iou"]) == pytest.approx(expected), compat


# ----------------------------------------------------------------------------------------------------- the environment


def codes(trajectory: Trajectory) -> list[str | None]:
    return [record.error and record.error.code for record in trajectory.calls()]


async def test_calls_in_four_turns_and_an_answer(video: str) -> None:
    for compat in ("strict", "reference"):
        trajectory, _, _ = await run(video, [*[crop(10, 20)] * 4, answer()], compat=compat)
        assert trajectory.stop_reason is StopReason.ANSWER
        assert [turn.observation is not None for turn in trajectory.turns] == [True] * 4 + [False]


async def test_a_call_in_every_turn(video: str) -> None:
    for compat in ("strict", "reference"):
        trajectory, _, _ = await run(video, [crop(10, 20)] * 6, compat=compat)
        assert (trajectory.stop_reason, trajectory.answer) == (StopReason.MAX_TURNS, None)
        assert [turn.observation is not None for turn in trajectory.turns] == [True] * 4 + [False]
        assert codes(trajectory) == [None] * 4 + ["turn_limit"]


@pytest.mark.parametrize(("compat", "stop", "turns"), [("strict", "answer", 2), ("reference", "max_turns", 1)])
async def test_five_calls_in_one_turn(video: str, compat: str, stop: str, turns: int) -> None:
    first = crop(10, 20) + "".join(call(start, start + 2) for start in range(30, 70, 10))
    trajectory, _, _ = await run(video, [first, answer()], compat=compat)
    assert (trajectory.stop_reason, len(trajectory.turns)) == (stop, turns)
    assert codes(trajectory) == [None] * 5
    observation = trajectory.turns[0].observation or ""
    assert observation.count("<tool_response>") == observation.count("</tool_response>") == 5
    assert observation.count("<image>") == 10 + 4 * 2


async def test_a_sixth_call_is_refused(video: str) -> None:
    first = "<think>look</think>" + call(10, 20) * 6
    trajectory, _, _ = await run(video, [first, answer()])
    assert codes(trajectory) == [None] * 5 + ["multiple_calls"]
    assert (trajectory.turns[0].observation or "").count("<tool_response>") == 6
    assert trajectory.stop_reason is StopReason.ANSWER


BROKEN = '<think>look</think><tool_call>{"name": "crop_video", </tool_call>'
UNKNOWN = '<think>look</think><tool_call>{"name": "zoom", "arguments": {}}</tool_call>'


@pytest.mark.parametrize(
    ("turn", "code", "reference_stop"),
    [
        pytest.param(BROKEN, "malformed_call", "no_action", id="malformed JSON"),
        pytest.param(UNKNOWN, "unknown_tool", "no_action", id="unknown tool"),
        pytest.param(crop(-1, 5), "out_of_range", "answer", id="before the start"),
        pytest.param(crop(5, 5), "reversed_segment", "answer", id="empty"),
        pytest.param(crop(100, 101), "out_of_range", "answer", id="starts at the end"),
        pytest.param(crop(10, 100.5), "out_of_range", "answer", id="beyond the end"),
        pytest.param(crop(10, 10.03), "segment_too_short", "answer", id="shorter than a frame"),
        pytest.param(crop(None, 20), "malformed_call", "answer", id="no start"),
        pytest.param(crop(10, 20, video_path=""), "malformed_call", "answer", id="empty path"),
        pytest.param(crop(10, 20, video_path="/no/such/file.mp4"), "wrong_video", "answer", id="other file"),
    ],
)
async def test_refused_calls_are_answered(video: str, turn: str, code: str, reference_stop: str) -> None:
    """A reply per call, also to a refused one. The published parser drops unreadable calls and ends there."""
    trajectory, reward, _ = await run(video, [turn, answer()])
    assert (codes(trajectory), trajectory.stop_reason) == ([code], StopReason.ANSWER)
    observation = trajectory.turns[0].observation or ""
    assert observation == f"<tool_response>\nError: {trajectory.calls()[0].error}\n</tool_response>"
    assert (reward["accuracy"], reward["temporal_iou"]) == (1.0, 0.0)
    assert reward["format"] == float(turn is not BROKEN)
    reference, _, _ = await run(video, [turn, answer()], compat="reference")
    assert reference.stop_reason == reference_stop


async def test_no_other_file_is_opened(video: str, tmp_path: Path) -> None:
    other = write_video(tmp_path / "other.mp4", num_frames=1500, fps=30)
    trajectory, _, _ = await run(video, [crop(10, 20, video_path=str(other)), answer()])
    assert codes(trajectory) == ["wrong_video"]
    named, _, _ = await run(video, [crop(60, 70, video_path=video), answer()])
    assert named.executed_calls()[0].frames[0].index == 1800


# -------------------------------------------------------------------------------------------------- replay, the record


def test_the_record(video: str) -> None:
    turns = [crop(10, 20, video_path=video), answer("B")]
    result = replay("longvt", video, f"{QUESTION}\nA. a hat\nB. a scarf", "B", turns, extra={"video_segment": [12, 20]})
    assert len(result["initial_frames"]) == 100
    assert [result["initial_frames"][number]["index"] for number in (0, 1, -1)] == [0, 30, 2999]
    assert {(frame["width"], frame["height"]) for frame in result["initial_frames"]} == {(84, 56)}
    (record,) = result["turns"][0]["calls"]
    assert (record["name"], record["ok"], record["error"]) == ("crop_video", True, None)
    assert record["arguments"] == {"start_time": 10, "end_time": 20, "video_path": video}
    assert [frame["index"] for frame in record["frames"]] == [300, 333, 367, 400, 433, 467, 500, 533, 567, 600]
    assert record["frames"][1]["timestamp_seconds"] == pytest.approx(11.1)
    seconds = ["10.0", "11.1", "12.2", "13.3", "14.4", "15.6", "16.7", "17.8", "18.9", "20.0"]
    lines = "\n".join(f"{time}s <image>" for time in seconds)
    assert result["turns"][0]["observation"] == f"<tool_response>\n{lines}\n</tool_response>"
    assert (result["answer"], result["stop_reason"]) == ("B", "answer")
    assert result["reward"] == {"score": pytest.approx(2.8), "accuracy": 1.0, "format": 1.0, "temporal_iou": 0.8}
    assert result["counts"] == {"assistant_turns": 2, "executed_calls": 1, "initial_frames": 100, "tool_frames": 10}


def test_an_unreadable_video_earns_nothing(tmp_path: Path) -> None:
    result = replay("longvt", str(tmp_path / "gone.mp4"), QUESTION, "B", [answer("B")])
    assert result["stop_reason"] == "video_error"
    assert result["reward"] == {"score": 0.0, "accuracy": 0.0, "format": 0.0, "temporal_iou": 0.0}


# -------------------------------------------------------------------------------------------------------------- prompt


def messages(**fields: Any) -> tuple[str, str]:
    method = get_method("longvt", **fields)
    images = [ImagePart(FrameRecord(index, index / 30, 84, 56)) for index in (0, 30)]
    system, user = method.prompt(Sample(QUESTION, "x", "/data/yard.mp4", "open"), INFO, images)
    assert (system.role, user.role) == ("system", "user")
    return content_text(system.content), content_text(user.content)


def test_prompt() -> None:
    system, user = messages()
    assert user == f"{QUESTION}\n\n0.0s <image>\n1.0s <image>"
    for phrase in ("lasts 100.0 seconds", "at 1 fps, 128 frames at most", "at most 5 turns", '"12.0s"'):
        assert phrase in system
    schema = json.loads(system[system.index("<tools>") + len("<tools>") : system.index("</tools>")])
    assert schema["function"]["name"] == "crop_video"
    assert schema["function"]["parameters"]["required"] == ["start_time", "end_time"]
    assert "{fps}" not in system and "{tools}" not in system and "/data" not in system + user


def test_the_prompts_examples_follow_their_own_grammar() -> None:
    system, _ = messages()
    _, looks, answers = system.partition("\n\n# Tools")[0].split("Example of a turn that ")
    look, ends = (LongVT().parse(text.partition("\n")[2]) for text in (looks, answers))
    assert look.well_formed and look.calls[0].arguments == {"start_time": 120.0, "end_time": 140.0}
    assert ends.well_formed and ends.answer == "a red scarf"


def test_the_published_prompt_tells_the_path_and_no_times() -> None:
    system, user = messages(compat="reference")
    assert user == f"<image><image>{QUESTION}\n The Video path for this video is: /data/yard.mp4"
    assert '"video_path"' in system and '"12.0s"' not in system


def test_prompt_file(tmp_path: Path) -> None:
    path = tmp_path / "prompt.txt"
    path.write_text("{max_turns} turns. {tools}")
    system, _ = messages(prompt_file=str(path))
    assert system.startswith("5 turns. # Tools\n\n")
    assert parse_calls(system)[-1].name == "unknown", "the section shows the form of a call, not a call"


def test_a_video_of_one_frame_is_shown() -> None:
    info = VideoInfo(duration_seconds=0.04, num_frames=1, average_fps=25.0, width=96, height=64)
    assert get_method("longvt").plan_initial_frames(info, Sample("?", "x", "v", "open"), PixelEnvelope()).seconds == (
        0.0,
    )


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"max_turns": 0}, "LongVT.max_turns must be at least 1, got 0"),
        ({"initial_frames": 1}, "LongVT.initial_frames must be at least 2, got 1"),
        ({"fps": 0}, "LongVT.fps must be a finite number above 0, got 0.0"),
        ({"max_pixels": 100}, "LongVT.max_pixels must be at least 784, got 100"),
        ({"time_reward": "f1"}, "time_reward"),
    ],
)
def test_impossible_fields(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        get_method("longvt", **fields)
