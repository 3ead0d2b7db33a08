"""FrameThinker's prompt, initial frames, reward options and inference policy, on records made by hand."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from verl_video_tools.core.errors import CallError, UsageError
from verl_video_tools.core.method import zero_reward
from verl_video_tools.core.types import (
    CallRecord,
    FrameRecord,
    ImagePart,
    Method,
    PixelEnvelope,
    Sample,
    StopReason,
    ToolOutcome,
    Trajectory,
    Turn,
    VideoInfo,
    content_text,
)
from verl_video_tools.data.generate import Attempt, attempted
from verl_video_tools.methods import get_method
from verl_video_tools.methods.framethinker import FrameThinker

SHORT_VIDEO = VideoInfo(duration_seconds=100.0, num_frames=3000, average_fps=30.0, width=1280, height=720)
LONG_VIDEO = VideoInfo(duration_seconds=301.0, num_frames=9030, average_fps=30.0, width=1280, height=720)
SAMPLE = Sample("What happens?\nA. x\nB. y", "B", "video.mp4", "mc", options=("x", "y"))
TIMED = replace(SAMPLE, question="What happens at 0:34?")


def framethinker(**settings: Any) -> FrameThinker:
    method = get_method("framethinker", **settings)
    assert isinstance(method, FrameThinker)
    return method


# --------------------------------------------------------------------------------------------- initial frames, messages


@pytest.mark.parametrize(
    ("duration_seconds", "num_frames", "indices"),
    [
        (454 / 30, 454, (0, 64, 129, 194, 258, 323, 388, 453)),
        (300.0, 9000, (0, 1285, 2571, 3856, 5142, 6427, 7713, 8999)),
        (300.03, 9001, (0, 818, 1636, 2454, 3272, 4090, 4909, 5727, 6545, 7363, 8181, 9000)),
        (0.1, 3, (0, 1, 2)),  # fewer frames than a look shows: each of them once
    ],
)
def test_initial_frames(duration_seconds: float, num_frames: int, indices: tuple[int, ...]) -> None:
    info = VideoInfo(duration_seconds, num_frames, 30.0, 64, 36)
    assert framethinker().plan_initial_frames(info, SAMPLE, PixelEnvelope()).indices == indices


@pytest.mark.parametrize(
    ("info", "strict", "reference"),
    [(SHORT_VIDEO, (640, 360), (640, 360)), (LONG_VIDEO, (448, 252), (448, 251))],
)
def test_initial_frames_size(info: VideoInfo, strict: tuple[int, int], reference: tuple[int, int]) -> None:
    for method, expected in ((framethinker(), strict), (framethinker(compat="reference"), reference)):
        request = method.plan_initial_frames(info, SAMPLE, PixelEnvelope())
        assert (request.width, request.height) == expected


def images(*indices: int) -> tuple[ImagePart, ...]:
    return tuple(ImagePart(FrameRecord(index, index / 30, 640, 360)) for index in indices)


def test_prompt() -> None:
    system, user = framethinker().prompt(SAMPLE, SHORT_VIDEO, images(0, 64))
    assert (system.role, user.role) == ("system", "user")
    assert content_text(user.content) == "What happens?\nA. x\nB. y\n\nframe 0: <image>\nframe 64: <image>"
    text = content_text(system.content)
    for phrase in ("choose frames between START and END", "get frame number at time MM:SS", "output answer: OPTION"):
        assert phrase in text
    assert "Shows 8 frames" in text and "at least 9 larger" in text and "at most 5 turns" in text
    assert "Shows 12 frames" in content_text(framethinker().prompt(SAMPLE, LONG_VIDEO, ())[0].content)
    assert "{" not in text


def test_the_prompt_example_follows_its_own_grammar() -> None:
    text = content_text(framethinker().prompt(SAMPLE, SHORT_VIDEO, ())[0].content)
    example = framethinker().parse(text[text.index("Example of one turn:") + len("Example of one turn:") :])
    assert example.well_formed
    assert dict(example.calls[0].arguments) == {"start_frame": 300, "end_frame": 450}


def test_prompt_file_replaces_the_prompt(tmp_path: Path) -> None:
    path = tmp_path / "prompt.txt"
    path.write_text('Use {call_frames} frames in {max_turns} turns. {"json": {}}\n')
    system = framethinker(prompt_file=str(path)).prompt(SAMPLE, SHORT_VIDEO, ())[0]
    assert content_text(system.content) == 'Use 8 frames in 5 turns. {"json": {}}'


def test_missing_prompt_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot read prompt_file .*gone\.txt"):
        framethinker(prompt_file=str(tmp_path / "gone.txt")).prompt(SAMPLE, SHORT_VIDEO, ())


def test_answer_only_prompt_offers_no_other_action() -> None:
    text = content_text(framethinker(answer_only=True).prompt(SAMPLE, SHORT_VIDEO, ())[0].content)
    assert "output answer: OPTION" in text
    assert "choose frames" not in text and "get frame number" not in text


def test_observations() -> None:
    def outcome(name: str, shown: Sequence[int] = (), **fields: Any) -> ToolOutcome:
        parts = images(*shown)
        return ToolOutcome(CallRecord(name, ok="error" not in fields, **{"arguments": {}, **fields}), parts)

    method = framethinker()
    chosen = method.observe([outcome("choose_frames", (101, 115))], turns_left=4)
    assert content_text(chosen) == "frame 101: <image>\nframe 115: <image>"
    told = method.observe(
        [outcome("get_frame_number", arguments={"time": "0:34"}, result={"frame_number": 815})], turns_left=4
    )
    assert content_text(told) == "Frame number at time 0:34 is: 815."
    refused = method.observe([outcome("choose_frames", error=CallError("out_of_range", "too far"))], turns_left=4)
    assert content_text(refused) == "The action was refused: out_of_range: too far"


# ----------------------------------------------------------------------------------------------------------- the reward


def choose(start: int, end: int) -> Turn:
    call = CallRecord("choose_frames", {"start_frame": start, "end_frame": end}, ok=True, frames=[])
    text = f"<think>{start} and {end}</think><action>choose frames between {start} and {end}</action>"
    return Turn(text, [call], "frame 1: <image>", thought=f"{start} and {end}", well_formed=True)


def get(time: str, frame_number: int) -> Turn:
    call = CallRecord("get_frame_number", {"time": time}, ok=True, result={"frame_number": frame_number})
    text = f"<think>so</think><action>get frame number at time {time}</action>"
    return Turn(text, [call], f"Frame number at time {time} is: {frame_number}.", thought="so", well_formed=True)


def answer(text: str, thought: str | None = "done") -> Turn:
    turn_text = f"<think>{thought}</think><action>output answer: {text}</action>"
    return Turn(turn_text, thought=thought, answer=text, well_formed=thought is not None)


REFUSED = Turn("", [CallRecord("unknown", {}, ok=False, error=CallError("malformed_call", "x"))], thought="so")


def rollout(*turns: Turn, stop_reason: StopReason = StopReason.ANSWER) -> Trajectory:
    return Trajectory(
        "framethinker", SAMPLE.question, SHORT_VIDEO, [], list(turns), stop_reason, answer=turns[-1].answer
    )


ZOOM_RIGHT = rollout(choose(100, 200), answer("B"))
ZOOM_WRONG = rollout(choose(100, 200), answer("C"))
TIME_RIGHT = rollout(get("0:34", 815), choose(700, 900), answer("B"))
TIME_WRONG = rollout(get("0:34", 815), choose(700, 900), answer("C"))
OTHER_TIME_RIGHT = rollout(get("0:01", 24), choose(0, 100), answer("B"))
HOUR_RIGHT = rollout(get("60:05", 2900), choose(2800, 3000), answer("B"))
DIRECT_RIGHT = rollout(answer("B"))
INCONSISTENT = rollout(choose(100, 200), choose(100, 200), answer("B"))
HONEST = [DIRECT_RIGHT, ZOOM_RIGHT, ZOOM_WRONG, TIME_RIGHT, TIME_WRONG, OTHER_TIME_RIGHT, INCONSISTENT]
BROKEN = rollout(choose(100, 200), REFUSED, stop_reason=StopReason.INVALID_ACTION)


SCORES = [
    # the recipe
    ({}, DIRECT_RIGHT, SAMPLE, 1.0),
    ({}, ZOOM_RIGHT, SAMPLE, 1.02),
    ({}, ZOOM_WRONG, SAMPLE, 0.0),
    ({}, TIME_RIGHT, SAMPLE, 1.02),
    ({}, TIME_RIGHT, TIMED, 1.52),
    ({}, TIME_WRONG, TIMED, 0.0),
    ({}, INCONSISTENT, SAMPLE, 0.0),
    ({}, BROKEN, SAMPLE, 0.0),
    ({"choose_bonus": 0.2, "time_bonus": 0.1, "accuracy_reward": 2.0}, TIME_RIGHT, TIMED, 2.3),
    ({"time_bonus_for": "any_question"}, TIME_RIGHT, SAMPLE, 1.52),
    ({"time_bonus_for": "any_question"}, ZOOM_RIGHT, TIMED, 1.02),
    ({}, OTHER_TIME_RIGHT, TIMED, 1.52),  # as published: any time counts once the question names one
    ({"time_bonus_for": "named_time"}, OTHER_TIME_RIGHT, TIMED, 1.02),
    ({"time_bonus_for": "named_time"}, TIME_RIGHT, TIMED, 1.52),
    ({"time_bonus_for": "named_time"}, TIME_RIGHT, SAMPLE, 1.02),
    ({"time_bonus_for": "named_time"}, TIME_RIGHT, replace(SAMPLE, question="From 00:34 to 1:00:05?"), 1.52),
    ({"time_bonus_for": "named_time"}, HOUR_RIGHT, replace(SAMPLE, question="From 00:34 to 1:00:05?"), 1.52),
    ({"time_bonus_for": "named_time"}, TIME_RIGHT, replace(SAMPLE, question="9" * 5000 + ":34?"), 1.02),
    # without verification
    ({"ccv": False}, INCONSISTENT, SAMPLE, 1.02),
    ({"ccv": False}, BROKEN, SAMPLE, 0.0),
    # unconditional bonus, 0.2 for one type of action
    ({"bonus_condition": "always", "choose_bonus": 0.2, "time_bonus": 0.0}, ZOOM_WRONG, SAMPLE, 0.2),
    ({"bonus_condition": "always", "choose_bonus": 0.2, "ccv": False}, BROKEN, SAMPLE, 0.2),
    ({"bonus_condition": "always", "choose_bonus": 0.2}, BROKEN, SAMPLE, 0.0),
    # a bonus per turn, instead of per action
    ({"turn_bonus": 0.2}, DIRECT_RIGHT, SAMPLE, 1.0),
    ({"turn_bonus": 0.2}, ZOOM_RIGHT, SAMPLE, 1.2),
    ({"turn_bonus": 0.2}, TIME_RIGHT, TIMED, 1.4),
    ({"turn_bonus": 0.2}, ZOOM_WRONG, SAMPLE, 0.0),
    ({"turn_bonus": 0.2, "bonus_condition": "always"}, ZOOM_WRONG, SAMPLE, 0.2),
    (
        {"turn_bonus": 0.2},
        rollout(*(choose(100 * start, 100 * start + 50) for start in range(1, 5)), answer("B")),
        SAMPLE,
        1.6,  # four turns before the answer, capped at 0.6
    ),
    # a format reward
    ({"format_reward": 1.0}, DIRECT_RIGHT, SAMPLE, 2.0),
    ({"format_reward": 1.0}, ZOOM_WRONG, SAMPLE, 1.0),
    ({"format_reward": 1.0, "ccv": False}, BROKEN, SAMPLE, 0.0),
    ({"format_reward": 1.0, "ccv": False}, rollout(answer("B", thought=None)), SAMPLE, 1.0),
    # answers in other forms
    ({}, rollout(answer("B. y")), SAMPLE, 0.0),
    ({"answer_grading": "choice"}, rollout(answer("B. y")), SAMPLE, 1.0),
    ({"answer_grading": "choice"}, rollout(answer("(c)")), SAMPLE, 0.0),
    ({}, rollout(answer("B because it is")), SAMPLE, 1.0),
    ({}, rollout(answer("12")), replace(SAMPLE, ground_truth="12", question_type="numeric"), 1.0),
    # the run-time profile forgives thoughts without numbers, not two times in a row
    ({}, rollout(replace(choose(100, 200), thought="look"), answer("B")), SAMPLE, 0.0),
    ({"ccv_profile": "inference"}, rollout(replace(choose(100, 200), thought="look"), answer("B")), SAMPLE, 1.02),
]


async def test_score() -> None:
    for settings, trajectory, sample, score in SCORES:
        method = framethinker(**settings)
        reward = await method.score(trajectory, sample)
        assert reward["score"] == pytest.approx(score), (settings, trajectory, sample)
        assert reward.keys() == {"score", *method.reward_components}
        assert reward["score"] == pytest.approx(reward["accuracy"] + reward["action_bonus"] + reward["format"])
        assert reward["ccv"] == 1.0 or reward["score"] == 0.0


@pytest.mark.parametrize("trajectory", HONEST)
@pytest.mark.parametrize("time_bonus_for", ["any_question", "timed_question", "named_time"])
async def test_reference_agrees_on_honest_rollouts(trajectory: Trajectory, time_bonus_for: str) -> None:
    """Where every action was executed and consistent with the grammar, text and records say the same."""
    strict, reference = (
        framethinker(compat=compat, time_bonus_for=time_bonus_for) for compat in ("strict", "reference")
    )
    for sample in (SAMPLE, TIMED):
        assert await reference.score(trajectory, sample) == await strict.score(trajectory, sample)


@pytest.mark.parametrize("stop_reason", [StopReason.VIDEO_ERROR, StopReason.ABORTED])
@pytest.mark.parametrize("compat", ["strict", "reference"])
async def test_infrastructure_earns_nothing(stop_reason: StopReason, compat: str) -> None:
    method = framethinker(compat=compat)
    reward = await method.score(replace(DIRECT_RIGHT, stop_reason=stop_reason), SAMPLE)
    assert reward == zero_reward(method)


async def test_open_questions_need_a_judge() -> None:
    with pytest.raises(UsageError, match="needs a judge"):
        await framethinker().score(DIRECT_RIGHT, replace(SAMPLE, question_type="open", ground_truth="a dog"))


# ------------------------------------------------------------------------------------------------- the inference policy


class ScriptedRuns:
    """Gives prepared rollouts in order, and remembers the method that each was asked for with."""

    def __init__(self, *trajectories: Trajectory) -> None:
        self.left = list(trajectories)
        self.methods: list[FrameThinker] = []

    async def __call__(self, method: Method, number: int) -> Trajectory:
        assert isinstance(method, FrameThinker) and number == len(self.methods) + 1
        self.methods.append(method)
        return self.left.pop(0)


def looked(trajectory: Trajectory, frames_per_look: int) -> Trajectory:
    """The rollout with its frames: the initial frames, and one look per zoom."""
    frames = [FrameRecord(index, index / 30, 640, 360) for index in range(frames_per_look)]
    turns = [
        replace(
            turn, calls=[replace(call, frames=frames if call.name == "choose_frames" else []) for call in turn.calls]
        )
        for turn in trajectory.turns
    ]
    return replace(trajectory, initial_frames=frames, turns=turns)


NO_NUMBERS = rollout(replace(choose(100, 200), thought="look closer"), answer("C"))
TWO_TIMES = rollout(get("0:10", 239), get("0:34", 815), choose(700, 900), answer("B"))


def num_images(attempts: list[Attempt]) -> int:
    counts = attempts[-1].trajectory.counts()
    return counts["initial_frames"] + counts["tool_frames"]


@pytest.mark.parametrize(
    ("trajectories", "expected_answer", "taken", "images"),
    [
        ([DIRECT_RIGHT], "B", 1, 8),
        ([ZOOM_RIGHT], "B", 1, 16),
        ([NO_NUMBERS], "C", 1, 16),  # no fidelity check at inference; a wrong answer is an answer
        ([TIME_RIGHT], "B", 1, 16),
        ([TWO_TIMES, ZOOM_RIGHT], "B", 2, 16),
        ([BROKEN, TWO_TIMES, DIRECT_RIGHT], "B", 3, 8),
        ([BROKEN, BROKEN, BROKEN], None, None, 16),
        ([INCONSISTENT, INCONSISTENT, INCONSISTENT], None, None, 24),
    ],
)
async def test_attempts(
    trajectories: list[Trajectory], expected_answer: str | None, taken: int | None, images: int
) -> None:
    runs = ScriptedRuns(*(looked(trajectory, 8) for trajectory in trajectories))
    attempts = await attempted(framethinker(), runs, 3)
    last = attempts[-1]
    assert (None if last.fault else last.trajectory.answer, len(attempts)) == (expected_answer, taken or 3)
    assert num_images(attempts) == images
    assert [method.answer_only for method in runs.methods] == [False, False, True][: taken or 3]
    assert {method.ccv_profile for method in runs.methods} == {"inference"}


async def test_an_inconsistent_answer_does_not_count_but_stays_in_its_record() -> None:
    attempts = await attempted(framethinker(), ScriptedRuns(*[INCONSISTENT] * 3), 3)
    summary = attempts[-1].summary()
    assert (summary["stop_reason"], summary["answer"]) == ("answer", INCONSISTENT.answer)
    assert str(summary["fault"]).startswith(f"{framethinker().attempt(1, 3).verify(INCONSISTENT).failed}: turn ")


async def test_a_lost_rollout_is_not_made_again() -> None:
    """The video or the endpoint failed, and no model was wrong."""
    lost = replace(BROKEN, flags=["aborted"])
    attempts = await attempted(framethinker(), ScriptedRuns(lost), 3)
    assert [attempt.trajectory for attempt in attempts] == [lost] and attempts[0].fault is None


async def test_long_videos_count_twelve_images_per_look() -> None:
    trajectory = replace(looked(rollout(choose(100, 200), choose(300, 400), answer("B")), 12), video=LONG_VIDEO)
    assert num_images(await attempted(framethinker(), ScriptedRuns(trajectory), 3)) == 36


async def test_nine_frames_apart_are_too_few_on_a_long_video() -> None:
    nine = rollout(choose(100, 109), answer("B"))
    assert (await attempted(framethinker(), ScriptedRuns(nine), 3))[0].fault is None
    on_long = replace(nine, video=LONG_VIDEO)
    attempts = await attempted(framethinker(), ScriptedRuns(on_long, DIRECT_RIGHT), 2)
    assert attempts[1].fault is None and str(attempts[0].fault).startswith("min_gap: ")


async def test_without_verification_any_answer_counts() -> None:
    attempts = await attempted(framethinker(ccv=False), ScriptedRuns(looked(TWO_TIMES, 8)), 3)
    assert (attempts[0].trajectory.answer, attempts[0].fault, len(attempts)) == ("B", None, 1)


async def test_one_attempt_is_the_rollout_itself() -> None:
    runs = ScriptedRuns(INCONSISTENT)
    attempts = await attempted(framethinker(), runs, 1)
    assert [attempt.trajectory for attempt in attempts] == [INCONSISTENT] and runs.methods == [framethinker()]
    with pytest.raises(UsageError, match="videozoomer makes one attempt at a question: leave --attempts out"):
        await attempted(get_method("videozoomer"), runs, 2)
