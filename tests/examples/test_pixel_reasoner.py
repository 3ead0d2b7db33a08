"""examples/papers/pixel_reasoner: pictures by number, boxes of pictures, and the reward against hand calculations."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples.papers.pixel_reasoner.pixel_reasoner.method import PixelReasoner
from tests.examples.conftest import EXAMPLES, failed_properties
from tests.examples.test_own_methods import undocumented
from tests.videos.files import MakeVideo
from verl_video_tools.cli.main import run
from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.types import CallRecord, Sample, StopReason, Trajectory, Turn, VideoInfo
from verl_video_tools.data.sft import scripted_oracle
from verl_video_tools.methods.breakdown import group_rewards
from verl_video_tools.replay import areplay
from verl_video_tools.synthetic.questions import make_questions
from verl_video_tools.synthetic.world import random_spec
from verl_video_tools.video import linspace_indices

pytestmark = pytest.mark.slow

FOLDER = EXAMPLES / "papers" / "pixel_reasoner"
PATH = "examples.papers.pixel_reasoner.pixel_reasoner.method:PixelReasoner"
QUESTION = "What is shown?\nA. a cat\nB. a dog"
TURNS: list[str] = json.loads((FOLDER / "turns.json").read_text())
ANSWER = "It is plain to see. \\boxed{B}"
SAMPLE = Sample("?", "B", "v.mp4", "mc")
INITIAL = linspace_indices(0, 299, 16)


def call(name: str, **arguments: Any) -> str:
    return f"I look. <tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


def select(*numbers: Any) -> str:
    return call("select_frames", target_frames=list(numbers))


def crop(number: Any, *box: Any) -> str:
    return call("crop_image", target_image=number, bbox_2d=list(box))


async def roll_out(video: str, *turns: str, **options: Any) -> dict[str, Any]:
    return await areplay(PATH, video, QUESTION, "B", list(turns), **options)


def test_it_uses_documented_names() -> None:
    assert undocumented(FOLDER / "pixel_reasoner" / "method.py") == []


def test_the_checker_passes() -> None:
    assert failed_properties(PATH) == {}


def test_the_readmes_replay(
    install: Callable[[str], Path], make_video: MakeVideo, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = install("papers/pixel_reasoner")
    command = [
        "replay",
        "--method",
        "pixel_reasoner",
        "--video",
        make_video(300, width=320, height=240),
        "--question",
        QUESTION,
    ]
    assert run([*command, "--answer", "B", "--turns", str(folder / "turns.json")]) == 0
    result = json.loads(capfd.readouterr().out)
    assert result["reward"] == {"score": 0.95, "accuracy": 1.0, "surplus": -0.05, "curiosity": 0.0}
    assert result["counts"] == {"assistant_turns": 3, "executed_calls": 2, "initial_frames": 16, "tool_frames": 3}


# ---------------------------------------------------------------------------------------------------------------- tools


async def test_selected_frames_are_those_first_shown_under_these_numbers(make_video: MakeVideo) -> None:
    result = await roll_out(make_video(300), select(12, 3, 12), select(16), ANSWER)
    first, second = (turn["calls"][0]["frames"] for turn in result["turns"][:2])
    assert [frame["index"] for frame in first] == [INITIAL[2], INITIAL[11]]
    assert [frame["index"] for frame in second] == [INITIAL[15]]
    assert "\nimage 17, " in result["turns"][0]["observation"] and "\nimage 18, " in result["turns"][0]["observation"]
    assert result["turns"][1]["observation"].startswith("\nimage 19, ")  # 16 of the initial frames, and two selected


async def test_a_crop_is_of_the_picture_with_this_number(make_video: MakeVideo) -> None:
    """Shares of the frame of 320x240, then shares of that part; by hand."""
    turns = (select(4), crop(17, 0.25, 0.5, 0.75, 1.0), crop(18, 0.5, 0.0, 1.0, 0.5), ANSWER)
    result = await roll_out(make_video(300, width=320, height=240), *turns, settings={"padding": 0.0})
    _, part, deeper = (turn["calls"][0]["frames"][0] for turn in result["turns"][:3])
    assert part["index"] == deeper["index"] == INITIAL[3]
    assert part["region"] == [80, 120, 240, 240]
    assert deeper["region"] == [160, 120, 240, 180]


async def test_boxes_are_widened_and_clipped_to_the_picture(make_video: MakeVideo) -> None:
    result = await roll_out(make_video(300, width=320, height=240), crop(1, 0.05, 0.35, 0.5, 0.95), ANSWER)
    assert result["turns"][0]["calls"][0]["frames"][0]["region"] == [0, 60, 192, 240]


async def test_a_part_too_small_to_show_is_refused(make_video: MakeVideo) -> None:
    """A tenth of 36 pixels, and two more by the padding."""
    result = await roll_out(make_video(300), crop(1, 0.4, 0.4, 0.9, 0.5), ANSWER)
    assert result["turns"][0]["calls"][0]["error"].startswith("box_too_small")


@pytest.mark.parametrize(
    ("turn", "code"),
    [
        (select(), "malformed_call"),
        (call("select_frames", target_frames="3"), "malformed_call"),
        (select(*range(1, 10)), "too_many_frames"),
        (select(0), "unknown_frame"),
        (select(17), "unknown_frame"),
        (select(1.5), "unknown_frame"),
        (crop(0, 0, 0, 1, 1), "unknown_frame"),
        (crop(17, 0, 0, 1, 1), "unknown_frame"),
        (crop("1", 0, 0, 1, 1), "unknown_frame"),
        (crop(1, 0, 0, 1), "malformed_call"),
        (crop(1, 0.5, 0, 0.2, 1), "reversed_box"),
        (crop(1, 0, 0, 200, 100), "box_outside"),
        (call("zoom_in", target_image=1), "unknown_tool"),
        ("<tool_call>select frame 3</tool_call>", "malformed_call"),
    ],
)
async def test_refusals_are_read_and_cost_like_other_calls(make_video: MakeVideo, turn: str, code: str) -> None:
    result = await roll_out(make_video(300), turn, turn, ANSWER)
    assert result["turns"][0]["calls"][0]["error"].startswith(code)
    assert f"Error: {code}" in result["turns"][0]["observation"]
    assert result["reward"]["score"] == pytest.approx(0.95)


async def test_a_selection_is_of_the_initial_frames_alone(make_video: MakeVideo) -> None:
    """Picture 17 was shown, by a call."""
    result = await roll_out(make_video(300), select(1), select(17), ANSWER)
    assert result["turns"][1]["calls"][0]["error"].startswith("unknown_frame")


async def test_one_call_of_a_turn_is_carried_out(make_video: MakeVideo) -> None:
    result = await roll_out(make_video(300), select(1) + select(2), ANSWER)
    kept, surplus = result["turns"][0]["calls"]
    assert kept["ok"] and surplus["error"].startswith("multiple_calls")
    assert result["turns"][0]["observation"].index("image 17") < result["turns"][0]["observation"].index("Error")


# -------------------------------------------------------------------------------------------------------------- grammar


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("\\boxed{B}", "B"),
        ("first \\boxed{A}, no: \\boxed{ B }.", "B"),
        ("\\boxed{\\text{a dog}}", "a dog"),
        ("\\boxed{\\frac{1}{2}}", "\\frac{1}{2}"),
        ("{ \\boxed{C} }", "C"),
        ("\\boxed{A} and \\boxed{B", "A"),
        ("\\boxed{B", None),
        ("B", None),
        (select(1) + "\\boxed{B}", None),
    ],
)
def test_the_answer_is_the_last_closed_box_of_a_turn_without_calls(text: str, answer: str | None) -> None:
    assert PixelReasoner().parse(text).answer == answer


# --------------------------------------------------------------------------------------------------------------- reward


@pytest.mark.parametrize(
    ("turns", "accuracy", "surplus"),
    [
        ([ANSWER], 1.0, 0.0),
        (["\\boxed{A}"], 0.0, 0.0),
        ([select(1), ANSWER], 1.0, 0.0),
        ([select(1), crop(2, 0, 0, 1, 1), select(3), ANSWER], 1.0, -0.1),
        ([select(99), select(1), "\\boxed{A}"], 0.0, -0.05),
        (["I do not know."], 0.0, 0.0),
    ],
)
async def test_rewards_equal_a_hand_calculation(
    make_video: MakeVideo, turns: list[str], accuracy: float, surplus: float
) -> None:
    reward = (await roll_out(make_video(300), *turns))["reward"]
    expected = {"score": accuracy + surplus, "accuracy": accuracy, "surplus": surplus, "curiosity": 0.0}
    assert reward == pytest.approx(expected)


def rollout(num_executed: int, num_refused: int = 0) -> Trajectory:
    records = [CallRecord("select_frames", {}, ok=True)] * num_executed
    records += [CallRecord("select_frames", {}, ok=False)] * num_refused
    video = VideoInfo(10.0, 300, 30.0, 64, 36)
    turns = [*(Turn(text="x", calls=[record]) for record in records), Turn(text="x")]
    return Trajectory("m", "?", video=video, turns=turns, answer="B", stop_reason=StopReason.ANSWER)


async def paid(method: PixelReasoner, group: list[Trajectory]) -> list[dict[str, float]]:
    alone = [await method.score(each, SAMPLE) for each in group]
    return group_rewards(method, group, [{"acc": method.acc(each, SAMPLE), **each} for each in alone], SAMPLE)


async def test_a_rare_look_earns_what_the_groups_rate_lacks() -> None:
    """One of eight looks: 0.5 x (0.3 - 0.125). A refused call is no look."""
    group = [rollout(1), *(rollout(0) for _ in range(6)), rollout(0, num_refused=3)]
    found = await paid(PixelReasoner(), group)
    assert [each["curiosity"] for each in found] == pytest.approx([0.0875, *[0.0] * 7])
    assert [each["score"] for each in found] == pytest.approx([1.0875, *[1.0] * 6, 0.9])
    assert all(each["acc"] == 1.0 for each in found)


@given(st.lists(st.integers(0, 4), min_size=2, max_size=16), st.floats(0, 1), st.floats(0, 2))
def test_curiosity_by_its_formula(looks: list[int], wanted: float, weight: float) -> None:
    method = PixelReasoner(wanted_rate=wanted, curiosity_weight=weight)
    rate = sum(number > 0 for number in looks) / len(looks)
    found = method.score_group([rollout(number) for number in looks], [], SAMPLE)
    expected = [weight * max(wanted - rate, 0.0) * (number > 0) for number in looks]
    assert [each["curiosity"] for each in found] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("field", "value"), [("initial_frames", 0), ("wanted_rate", 1.5), ("padding", -0.1), ("crop_max_pixels", 784)]
)
def test_fields_out_of_range_are_refused(field: str, value: float) -> None:
    with pytest.raises(UsageError, match=field):
        PixelReasoner(**{field: value})  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------------ synthetic world


def test_the_oracle_looks_again_and_answers_by_what_was_shown() -> None:
    method = PixelReasoner(initial_frames=29)
    expert, careless = (scripted_oracle(method, seed=2, imperfection=share) for share in (0.0, 1.0))
    right, tools = [], set()
    for spec in (random_spec(seed) for seed in range(8)):
        for question in make_questions(spec, 8, seed=0):
            *looks, last = (method.parse(turn) for turn in expert.script(spec, question).turns)
            assert all(turn.well_formed for turn in (*looks, last))
            tools |= {each.name for turn in looks for each in turn.calls}
            if looks:
                right.append(last.answer == question.answer)
            assert len(careless.script(spec, question).turns) == 1
    assert tools == {"select_frames", "crop_image"}
    assert sum(right) > 0.9 * len(right) and len(right) > 40
