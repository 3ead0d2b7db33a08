"""FrameThinker under scripted policies: every acceptance case that needs no tokens, strict and as published.

The tables are documentation: a case names what the policy writes, what each mode pays, and how the rollout ends. J with
a number names one of the acceptance cases that the project started from.
"""

import json
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from tests.judge_server import JudgeServer, Reply
from tests.turns.framethinker import answer, choose, get, turn
from tests.videos.files import MakeVideo
from verl_video_tools.cli.main import run as vvt
from verl_video_tools.core.errors import UsageError
from verl_video_tools.replay import areplay, replay

QUESTION = "What happens?\nA. nothing\nB. a goal"
TIMED_QUESTION = "What happens at 0:34?\nA. nothing\nB. a goal"

# ------------------------------------------------------------------------------------------------------------- scripts


ANSWER = answer("B")
WRONG = answer("C")


@dataclass
class Case:
    """One scripted rollout. Scores are exact up to float error; `None` for the reference means: as strict."""

    name: str
    turns: list[str]
    strict: float
    ccv: float = 1.0
    stop: str = "answer"
    reference: float | None = None
    reference_ccv: float | None = None
    reference_stop: str | None = None
    question: str = QUESTION
    errors: list[str] = field(default_factory=list)
    """Codes of refused calls in strict mode."""


AT_100_S = [  # T = 3000 frames at 30 per second
    Case("direct answer", [ANSWER], 1.0),
    Case("direct wrong answer", [WRONG], 0.0),
    Case("zoom", [choose(100, 200), ANSWER], 1.02),
    Case("zoom, wrong", [choose(100, 200), WRONG], 0.0),
    Case("numbers reversed in the thought", [choose(100, 200, "200 then 100"), ANSWER], 0.0, ccv=0),
    Case("a number after the pair", [choose(100, 200, "100 to 200, 8 frames"), ANSWER], 0.0, ccv=0),
    Case("a time after the pair", [choose(100, 200, "100 to 200 near 00:34"), ANSWER], 1.02),
    Case("thousands separators", [choose(1400, 1500, "1,400 and 1,500"), ANSWER], 0.0, ccv=0),
    Case("thought without numbers", [choose(100, 200, "look closer"), ANSWER], 0.0, ccv=0),
    Case("the same segment twice", [choose(100, 200), choose(100, 200), ANSWER], 0.0, ccv=0),
    Case("nearly the same segment", [choose(100, 200), choose(101, 200), ANSWER], 1.02),
    Case("the frames inside a seen segment", [choose(100, 200), choose(101, 199), ANSWER], 0.0, ccv=0),
    Case("the whole video", [choose(0, 2999), ANSWER], 0.0, ccv=0),
    Case("the whole video, end exclusive", [choose(0, 3000), ANSWER], 1.02),
    Case("frame number 0 earns no time bonus", [get("0:00"), choose(0, 100), ANSWER], 1.02, question=TIMED_QUESTION),
    Case("answer with a full stop", [turn("done", "output answer: B.")], 0.0),
    Case("small letter", [turn("done", "output answer: b")], 0.0),
    Case("letter and text", [turn("done", "output answer: B. The dog")], 0.0),
    Case("no colon", [turn("done", "output answer B")], 0.0, ccv=0, stop="invalid_action", errors=["malformed_call"]),
    Case(
        "two actions in one turn",
        [turn("100 and 200", "choose frames between 100 and 200") + "<action>output answer: B</action>"],
        0.0,
        ccv=0,
        stop="invalid_action",
        reference_stop="answer",
        errors=["multiple_calls"],
    ),
    Case(
        "four digits of minutes",
        [get("1234:56"), choose(100, 200), ANSWER],
        0.0,
        ccv=0,
        stop="invalid_action",
        reference_stop="answer",
        question=TIMED_QUESTION,
        errors=["malformed_call"],
    ),
    Case(
        "one digit of seconds",
        [get("0:3"), choose(50, 200), ANSWER],
        0.0,
        ccv=0,
        stop="invalid_action",
        reference_stop="answer",
        question=TIMED_QUESTION,
        errors=["malformed_call"],
    ),
    Case("beyond the end", [choose(3000, 5000)], 0.0, ccv=0, stop="invalid_action", errors=["out_of_range"]),
    Case("eight apart", [choose(2992, 3000)], 0.0, ccv=0, stop="invalid_action", errors=["segment_too_short"]),
    Case("nine apart, up to the end", [choose(2991, 3000), ANSWER], 1.02),
    Case(
        "zoom and answer in one turn: never executed",
        [choose(100, 200) + ANSWER],
        0.0,
        ccv=0,
        stop="invalid_action",
        reference=1.02,
        reference_ccv=1,
        reference_stop="answer",
        errors=["multiple_calls"],
    ),
    Case(
        "a made-up reply",
        [get("0:34") + "Frame number at time 0:34 is: 815." + choose(700, 900) + ANSWER],
        0.0,
        ccv=0,
        stop="invalid_action",
        reference=1.52,
        reference_ccv=1,
        reference_stop="answer",
        question=TIMED_QUESTION,
        errors=["multiple_calls", "multiple_calls"],
    ),
    Case(
        "empty answer", [turn("done", "output answer:")], 0.0, ccv=0, stop="invalid_action", errors=["malformed_call"]
    ),
    Case("answer on the next line", [turn("done", "output answer:\nB")], 1.0),
    Case("a number before the pair", [choose(100, 200, "3 people, 100 to 200"), ANSWER], 1.02),
    Case("leading zeros", [choose(100, 200, "0100 0200"), ANSWER], 1.02),
    Case("hyphens", [choose(100, 200, "frame-100 to frame-200"), ANSWER], 1.02),
    Case("underscores", [choose(100, 200, "frame_100 to frame_200"), ANSWER], 0.0, ccv=0),
    Case("decimals", [choose(100, 200, "100.0 200.0"), ANSWER], 0.0, ccv=0),
    Case("a range", [choose(100, 200, "range 100-200."), ANSWER], 1.02),
    Case("action before thought", ["<action>output answer: B</action><think>done</think>"], 1.0),
    # What the list does not name.
    Case("no action", ["<think>hm</think>"], 0.0, ccv=0, stop="no_action"),
    Case("no thought", ["<action>output answer: B</action>"], 0.0, ccv=0),
    Case("script ends early", [choose(100, 200)], 0.0, ccv=0, stop="script_exhausted"),
    Case("turns after the answer are ignored", [ANSWER, choose(200, 100), WRONG], 1.0),
    Case(
        "reversed segment",
        [choose(200, 100), ANSWER],
        0.0,
        ccv=0,
        stop="invalid_action",
        errors=["reversed_segment"],
    ),
    Case(
        "an end beyond the video is clamped in the published code",
        [choose(2900, 5000), ANSWER],
        0.0,
        ccv=0,
        stop="invalid_action",
        reference=1.02,
        reference_ccv=1,
        reference_stop="answer",
        errors=["out_of_range"],
    ),
    Case(
        "a time beyond the video",
        [get("99:59"), choose(100, 200_000), ANSWER],
        0.0,
        ccv=0,
        stop="invalid_action",
        reference=1.52,
        reference_ccv=1,
        reference_stop="answer",
        question=TIMED_QUESTION,
        errors=["out_of_range"],
    ),
    Case(
        "seconds above 59",
        [get("0:75"), choose(2200, 2300), ANSWER],
        0.0,
        ccv=0,
        stop="invalid_action",
        reference=1.52,
        reference_ccv=1,
        reference_stop="answer",
        question=TIMED_QUESTION,
        errors=["malformed_call"],
    ),
    Case(
        "decimal frame number",
        [turn("100 and 200", "choose frames between 100 and 200.5"), ANSWER],
        0.0,
        ccv=0,
        stop="invalid_action",
        reference=1.02,
        reference_ccv=1,
        reference_stop="answer",
        errors=["malformed_call"],
    ),
    Case(
        "words before the action: executed as published, but scored 0",
        [turn("100 and 200", "now choose frames between 100 and 200"), ANSWER],
        0.0,
        ccv=0,
        stop="invalid_action",
        reference_stop="answer",
        errors=["malformed_call"],
    ),
    Case(
        "thoughts are counted over the rollout as published, per turn here",
        [choose(100, 200) + "<think>waiting</think>", "<action>output answer: B</action>"],
        0.0,
        ccv=0,
        reference=1.02,
        reference_ccv=1,
    ),
]

AT_125_S = [  # T = 3000 frames at 24000/1001 per second: 0:34 is frame 815, 0:10 is frame 239
    Case("time, zoom", [get("0:34"), choose(700, 900), ANSWER], 1.52, question=TIMED_QUESTION),
    Case("no time in the question", [get("0:34"), choose(700, 900), ANSWER], 1.02),
    Case("wrong answer", [get("0:34"), choose(700, 900), WRONG], 0.0, question=TIMED_QUESTION),
    Case("time, answer", [get("0:34"), ANSWER], 0.0, ccv=0, question=TIMED_QUESTION),
    Case("a zoom elsewhere", [get("0:34"), choose(565, 645), ANSWER], 0.0, ccv=0, question=TIMED_QUESTION),
    Case("time, time, zoom", [get("0:10"), get("0:34"), choose(700, 900), ANSWER], 1.52, question=TIMED_QUESTION),
    Case(
        "the same time twice",
        [get("0:34"), choose(700, 900), get("0:34"), choose(800, 900), ANSWER],
        0.0,
        ccv=0,
        question=TIMED_QUESTION,
    ),
    Case(
        "the same time in other words",
        [get("0:34"), choose(700, 900), get("00:34"), choose(800, 900), ANSWER],
        1.52,
        question=TIMED_QUESTION,
    ),
]


def by_name(cases: list[Case], video: str) -> list[Any]:
    return [pytest.param(case, video, id=case.name) for case in cases]


VIDEOS = {"100 s": (3000, Fraction(30)), "125 s": (3000, Fraction(24000, 1001))}


@pytest.mark.parametrize(("case", "video"), by_name(AT_100_S, "100 s") + by_name(AT_125_S, "125 s"))
@pytest.mark.parametrize("compat", ["strict", "reference"])
def test_acceptance(case: Case, video: str, compat: str, make_video: MakeVideo) -> None:
    result = replay(
        "framethinker", make_video(*VIDEOS[video]), case.question, "B", case.turns, settings={"compat": compat}
    )
    score, ccv, stop = case.strict, case.ccv, case.stop
    if compat == "reference":
        score = score if case.reference is None else case.reference
        ccv = ccv if case.reference_ccv is None else case.reference_ccv
        stop = stop if case.reference_stop is None else case.reference_stop
    reward = result["reward"]
    assert reward["score"] == pytest.approx(score)
    assert (reward["ccv"], result["stop_reason"]) == (ccv, stop)
    assert reward["score"] == pytest.approx(reward["accuracy"] + reward["action_bonus"])
    if compat == "strict":
        refused = [call for turn in result["turns"] for call in turn["calls"] if not call["ok"]]
        assert [call["error"].split(":")[0] for call in refused] == case.errors


# ----------------------------------------------------------------------------------------------------- the environment


def run(video: str, turns: list[str], compat: str = "strict", **settings: Any) -> dict[str, Any]:
    return replay("framethinker", video, QUESTION, "B", turns, settings={"compat": compat, **settings})


def indices(frames: list[dict[str, Any]]) -> list[int]:
    return [frame["index"] for frame in frames]


def size(frame: dict[str, Any]) -> tuple[int, int]:
    return frame["width"], frame["height"]


def test_the_record(make_video: MakeVideo) -> None:
    """Every field of the contract."""
    path = make_video(*VIDEOS["125 s"])
    turns = [get("0:34"), choose(800, 900), ANSWER]
    result = replay("framethinker", path, TIMED_QUESTION, "B", turns)
    assert result.keys() == {
        *("method", "video", "initial_frames", "turns", "stop_reason", "answer", "reward", "counts")
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


# ------------------------------------------------------------------------------------------------------- token budgets


@pytest.fixture(scope="module")
def processor(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Folder of a real Qwen2.5-VL processor that takes pictures up to 1280 tokens."""
    from examples.tiny_models.tiny_model import make_processor, make_tokenizer

    folder = tmp_path_factory.mktemp("processor")
    made = make_processor(make_tokenizer())
    made.image_processor.size = {"shortest_edge": 28 * 28, "longest_edge": 1280 * 28 * 28}
    made.save_pretrained(folder)
    (folder / "config.json").write_text('{"model_type": "qwen2_5_vl"}')
    return str(folder)


def test_the_fourth_zoom_exceeds_the_response_budget(make_video: MakeVideo, processor: str) -> None:
    """644x364 pixels are 299 tokens: three zooms of 8 frames fit into 8192 tokens, a fourth does not."""
    turns = [*(choose(10 * number, 10 * number + 50) for number in range(1, 5)), ANSWER]
    result = replay("framethinker", make_video(300, width=640, height=360), QUESTION, "B", turns, processor=processor)
    assert {size(frame) for frame in result["initial_frames"]} == {(644, 364)}
    assert (result["stop_reason"], len(result["turns"])) == ("response_budget", 4)
    refused = result["turns"][-1]
    assert refused["calls"][0]["error"].startswith("response_budget: ")
    assert (refused["calls"][0]["frames"], refused["observation"]) == ([], None)
    assert (result["counts"]["executed_calls"], result["reward"]["score"]) == (3, 0.0)


def test_three_zooms_fit(make_video: MakeVideo, processor: str) -> None:
    turns = [*(choose(10 * number, 10 * number + 50) for number in range(1, 4)), ANSWER]
    result = replay("framethinker", make_video(300, width=640, height=360), QUESTION, "B", turns, processor=processor)
    assert (result["stop_reason"], result["reward"]["score"]) == ("answer", pytest.approx(1.02))


def test_a_turn_cut_at_its_limit_runs_no_tool(make_video: MakeVideo, processor: str) -> None:
    rambling = choose(100, 200) + " and so on" * 100
    settings = {"max_turn_tokens": 150}
    result = replay("framethinker", make_video(), QUESTION, "B", [rambling], settings=settings, processor=processor)
    (turn,) = result["turns"]
    assert rambling.startswith(turn["text"]) and len(turn["text"]) < len(rambling)
    assert (turn["calls"][0]["ok"], result["stop_reason"], result["reward"]["score"]) == (False, "response_budget", 0.0)


def test_missing_processor_is_named(make_video: MakeVideo, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot load a processor from .*nothing"):
        replay("framethinker", make_video(), QUESTION, "B", [ANSWER], processor=str(tmp_path / "nothing"))


# --------------------------------------------------------------------------------------------------------------- usage


@pytest.mark.parametrize("content", [None, b"", b"not a video"])
def test_unreadable_video(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "video.mp4"
    if content is not None:
        path.write_bytes(content)
    result = run(str(path), [ANSWER])
    assert (result["stop_reason"], result["video"], result["turns"]) == ("video_error", None, [])
    assert set(result["reward"].values()) == {0.0}
    assert result["counts"]["assistant_turns"] == 0


@pytest.mark.parametrize("name", ["loop.mp4", "a\0b.mp4"])
def test_a_path_that_can_be_no_file(name: str, tmp_path: Path) -> None:
    (tmp_path / "loop.mp4").symlink_to("loop.mp4")
    assert run(str(tmp_path / name), [ANSWER])["stop_reason"] == "video_error"


def test_an_odd_judge_is_one_clear_line(
    make_video: MakeVideo, tmp_path: Path, capsys: pytest.CaptureFixture[str], short_backoff: None
) -> None:
    pytest.importorskip("openai", reason="the extra `judge` is not installed")
    turns = tmp_path / "turns.json"
    turns.write_text(json.dumps(["<think>ok</think><action>output answer: a dog</action>"]))
    command = ["replay", "--method", "framethinker", "--set", "ccv=false", "--question", "What animal?"]
    with JudgeServer(models_reply=Reply(b"<html>\n<b>busy</b>\n</html>", content_type="text/html")) as server:
        options = ["--answer", "a cat", "--turns", str(turns), "--judge-base-url", server.base_url]
        assert vvt([*command, "--video", make_video(), *options]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("vvt: JudgeError: no verdict from the judge: no usable reply from http://127.0.0.1")


@pytest.mark.parametrize(("answer", "score"), [("a cat", 1.0), ("dog", 0.0)])
def test_an_open_question_is_judged(make_video: MakeVideo, answer: str, score: float) -> None:
    pytest.importorskip("openai", reason="the extra `judge` is not installed")
    turns = [turn("done", f"output answer: {answer}")]
    with JudgeServer() as server:
        result = replay("framethinker", make_video(), "What animal?", "cat", turns, judge_base_url=server.base_url)
    assert (result["reward"]["score"], len(server.requests)) == (score, 1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"method": "framebrain"}, "no method 'framebrain'"),
        ({"settings": {"turns": 3}}, "no field 'turns'"),
        ({"settings": {"max_turns": "many"}}, "max_turns"),
        ({"question": ""}, "question is missing or empty"),
        ({"turns": "text"}, "list of assistant texts"),
        ({"turns": [1]}, "list of assistant texts"),
        ({"extra": {"question_type": "essay"}}, "question_type must be one of"),
        ({"extra": {"options": "{"}}, "row does not make sense"),
        ({"extra": {"video_segment": [1]}}, "row does not make sense"),
        ({"extra": {"question_type": "open"}}, "needs a judge"),
        ({"answer": "a dog"}, "needs a judge"),
    ],
)
def test_bad_usage(make_video: MakeVideo, changes: dict[str, Any], message: str) -> None:
    arguments = {
        "method": "framethinker",
        "video": make_video(),
        "question": QUESTION,
        "answer": "B",
        "turns": [ANSWER],
    }
    with pytest.raises(UsageError, match=message):
        replay(**{**arguments, **changes})


def test_extra_and_settings_reach_row_and_method(make_video: MakeVideo) -> None:
    result = replay(
        "framethinker",
        make_video(),
        QUESTION,
        "B",
        [turn("done", "output answer: a goal")],
        extra={"options": ["nothing", "a goal"]},
        settings={"answer_grading": "choice", "accuracy_reward": 3},
    )
    assert result["reward"]["score"] == 3.0


async def test_inside_an_event_loop(make_video: MakeVideo) -> None:
    result = await areplay("framethinker", make_video(), QUESTION, "B", [ANSWER])
    assert result["reward"]["score"] == 1.0
