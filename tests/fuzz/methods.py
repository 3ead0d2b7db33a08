"""Methods, questions and valid turns that turns and rollouts are made from."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache
from random import Random
from typing import Any

from tests.fuzz import texts
from tests.turns import framethinker, tagged, videobrain
from verl_video_tools.core.types import AnswerLabel, CallRecord, Method, Sample, Trajectory
from verl_video_tools.methods import get_method

SMALL: dict[str, dict[str, Any]] = {
    "framethinker": {"initial_frames": 3, "initial_frames_long": 4, "call_frames": 4, "call_frames_long": 5},
    "videozoomer": {"initial_frames": 4, "call_frames": 5},
    "longvt": {"initial_frames": 4, "call_frames": 6},
    "videobrain": {"initial_frames": 3, "call_frames": 4, "clip_frames": 2},
    "framemind": {"low": [4, 32], "high": [2, 48], "tool_side_pixels": 48, "min_call_frames": 2, "call_frames": 4},
    "direct": {"initial_frames": 3},
}
"""Few frames, so that many rollouts can be run."""

VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, {}) for name in SMALL},
    **{f"{name} reference": (name, {"compat": "reference"}) for name in SMALL if name not in ("direct", "framemind")},
    "framethinker goes on": ("framethinker", {"end_on_call_error": False, "bonus_condition": "always"}),
    "framethinker choice": ("framethinker", {"answer_grading": "choice", "ccv": False, "bonus_condition": "always"}),
    "videozoomer ends": ("videozoomer", {"end_on_call_error": True, "bonus_condition": "always"}),
    "longvt ends": ("longvt", {"end_on_call_error": True, "time_reward": "boundary"}),
    "longvt tool": ("longvt", {"time_reward": "tool"}),
    "videobrain goes on": ("videobrain", {"end_on_call_error": False, "format_gate": False}),
    "framemind ends": ("framemind", {"end_on_call_error": True, "exploration_share": 1.0}),
    "framemind turns": ("framemind", {"context": "last_evidence", "continue_on": "tool_call"}),
    "framemind first": ("framemind", {"context": "initial_plus_last"}),
}

QUESTIONS: dict[str, Mapping[str, Any]] = {
    "mc": {"question_type": "mc", "ground_truth": "B", "options": ("red circle", "blue square", "7")},
    "letter": {"question_type": "mc", "ground_truth": "A"},
    "numeric": {"question_type": "numeric", "ground_truth": "7"},
    "regression": {"question_type": "regression", "ground_truth": "2.5"},
    "segment": {"question_type": "segment", "ground_truth": "[1.0, 1.5]"},
    "open": {"question_type": "open", "ground_truth": "a blue square"},
}
TOLD = {"video_segment_seconds": (1.0, 1.5), "extra_info": {"classification": "active"}}


@cache
def method_of(variant: str) -> Method:
    name, fields = VARIANTS[variant]
    return get_method(name, **SMALL[name], **fields)


def sample_of(question: str, video_path: str) -> Sample:
    text = "At 0:01, which is it?\nA. red circle\nB. blue square\nC. 7"
    return Sample(question=text, video_path=video_path, **QUESTIONS[question], **TOLD)


class EqualJudge:
    """Knows the worth of answers; asked for anything else than a text it fails."""

    async def judge(self, question: str, truth: str, answer: str) -> AnswerLabel:
        assert isinstance(answer, str) and answer.strip(), answer
        return AnswerLabel.CORRECT if answer == "yes" else AnswerLabel.INCORRECT


Pieces = Callable[[Random, float, int], str]


def _framethinker(random: Random, seconds: float, frames: int) -> str:
    start, length = random.randrange(frames + 2), random.randrange(frames // 2 + 2)
    kinds = [
        lambda: framethinker.choose(start, start + length),
        lambda: framethinker.choose(texts.number(random, frames), texts.number(random, frames)),
        lambda: framethinker.get(f"{random.randrange(2)}:{random.randrange(int(seconds) + 3):02d}"),
    ]
    return random.choice(kinds)()


def _videozoomer(random: Random, seconds: float, frames: int) -> str:
    start = round(random.uniform(0, seconds), 2)
    kinds = [
        lambda: tagged.zoom(start, round(min(seconds, start + random.uniform(0, 2)), 2), random.choice((1, 2, 4, 8))),
        lambda: tagged.zoom(texts.number(random, seconds), texts.number(random, seconds), texts.number(random, 9)),
        lambda: tagged.video_zoom(json.dumps(texts.value(random))),
    ]
    return random.choice(kinds)()


def _longvt(random: Random, seconds: float, frames: int) -> str:
    start = round(random.uniform(0, seconds), 2)
    given: dict[str, Any] = {"start_time": start, "end_time": round(min(seconds, start + random.uniform(0, 2)), 2)}
    if random.random() < 0.3:
        given[random.choice(("start_time", "end_time", "video_path"))] = texts.number(random, seconds)
    call = tagged.tool_call(random.choice(("crop_video",) * 9 + ("zoom",)), **given)
    return tagged.think(call * random.choice((1, 1, 1, 2, 6)))


def _videobrain(random: Random, seconds: float, frames: int) -> str:
    start = random.randrange(frames)
    kinds = [
        lambda: videobrain.uniform(start, min(frames - 1, start + random.randrange(frames))),
        lambda: videobrain.clip(start, frames - 1, random.choice(("a goal", "", texts.piece(random)))),
        lambda: videobrain.uniform(texts.number(random, frames), texts.number(random, frames)),
        lambda: videobrain.clip(texts.number(random, frames), texts.number(random, frames), texts.value(random)),
    ]
    return random.choice(kinds)()


def _framemind(random: Random, seconds: float, frames: int) -> str:
    start = round(random.uniform(0, seconds), 2)
    calls = [
        f"FrameAt({start})",
        f"FrameAt(t={random.choice(texts.NUMBERS)})",
        f"VideoClip({start}, {round(min(seconds, start + random.uniform(0, 1)), 2)})",
        f"VideoClip(t_end={random.choice(texts.NUMBERS)}, t_start={start})",
    ]
    written = "".join(f"<tool_call>{call}</tool_call>" for call in random.choices(calls, k=random.choice((1, 1, 2, 3))))
    return tagged.think(written + random.choice(("", "<turn_sum>seen</turn_sum>")))


CALLS: dict[str, Pieces] = {
    "framethinker": _framethinker,
    "videozoomer": _videozoomer,
    "longvt": _longvt,
    "videobrain": _videobrain,
    "framemind": _framemind,
    "direct": lambda random, seconds, frames: tagged.answer("B"),
}
ANSWERS = [
    "B",
    "A",
    "7",
    "2.4",
    "[1.0, 1.4]",
    "yes",
    "(B) blue square",
    "\\boxed{7}",
    "A or B",
    "\u22485",
    "10\u00b2",
    "",
]


def turn(random: Random, name: str, seconds: float, frames: int) -> str:
    """One turn of a policy in the method's grammar, most of them spoilt."""
    other = CALLS[random.choice([*CALLS])](random, seconds, frames)
    if random.random() < 0.3:
        said = random.choice(ANSWERS)
        answering = {"framethinker": framethinker.answer, "videobrain": videobrain.answer}.get(name, tagged.answer)
        text = answering(texts.mutated(random, said) if random.random() < 0.4 else said)
    else:
        text = CALLS[name](random, seconds, frames)
    return text if random.random() < 0.35 else texts.mutated(random, text, other)


# ---------------------------------------------------------------------------------------------------------- rewards

PAID_FOR_CALLS = {"framethinker": "action_bonus", "videozoomer": "tool", "longvt": "temporal_iou", "framemind": "tool"}
"""The component that pays for executed calls."""


def check_reward(method: Method, trajectory: Trajectory, reward: Mapping[str, float]) -> None:
    """No reward for a call that was not carried out."""
    if method.compat != "strict" or trajectory.executed_calls():
        return
    component = PAID_FOR_CALLS.get(method.name)
    assert component is None or reward[component] == 0.0, (reward, "without an executed call")


def without_unexecuted(trajectory: Trajectory) -> Trajectory:
    """The same record, in which refused calls say something else: no reward may read what was not carried out."""
    twin = Trajectory.from_dict(trajectory.to_dict())
    for turn in twin.turns:
        turn.calls = [call if call.ok else CallRecord("other", {}, ok=False, error=call.error) for call in turn.calls]
    return twin
