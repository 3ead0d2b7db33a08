"""`compat="reference"` against independent readings of the specification, on 20,000 random rollouts of each method.

What is left out of the scripts is what the pages list as a difference: JSON that no record can carry.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.methods import reference_longvt, reference_videozoomer
from tests.methods.frame_index import awaited
from verl_video_tools.core.errors import CallRejected
from verl_video_tools.core.types import (
    AnswerLabel,
    CallRecord,
    Method,
    PixelEnvelope,
    Sample,
    StopReason,
    ToolContext,
    ToolOutcome,
    Trajectory,
    Turn,
    VideoInfo,
    content_text,
)
from verl_video_tools.methods import get_method

NUM_ROLLOUTS = 20_000
INFO = VideoInfo(100.0, 3000, 30.0, 96, 64)


async def play(
    method: Method, sample: Sample, script: Sequence[str]
) -> tuple[Trajectory, list[tuple[int, ...] | None]]:
    """Run a script by the method's own grammar, tools and limits; no frame is decoded.

    Returns:
        The record, and the frames asked for by each call that was answered; None for a refusal.
    """
    trajectory, shown = Trajectory(method.name, sample.question, INFO), list[tuple[int, ...] | None]()
    context = ToolContext(INFO, sample, PixelEnvelope(), awaited(lambda seconds: int(seconds * 30)))
    tools = method.tools(INFO)
    for text in script:
        parsed = method.parse(text)
        turn = Turn(text, answer=parsed.answer, well_formed=parsed.well_formed)
        trajectory.turns.append(turn)
        turn.calls = [CallRecord(call.name, dict(call.arguments), ok=False, error=call.error) for call in parsed.calls]
        trajectory.stop_reason = StopReason.ANSWER if parsed.answer is not None else StopReason.NO_ACTION
        if not parsed.calls or len(trajectory.turns) == method.max_turns:
            break
        for record in turn.calls:
            if record.error is None:
                try:
                    plan = await tools[record.name].plan(record.arguments, context)
                    record.ok = True
                    shown.append(() if plan.frames is None else plan.frames.indices)
                    continue
                except CallRejected as rejection:
                    record.error = rejection.error
            if record.error.code != "multiple_calls":
                shown.append(None)
        turn.observation = content_text(method.observe([ToolOutcome(record) for record in turn.calls], 2))
        if method.stop_reason_after(trajectory) is not None:
            break
    return trajectory, shown


class StubJudge:
    """Knows the worth of two answers."""

    async def judge(self, question: str, truth: str, answer: str) -> AnswerLabel:
        return {"yes": AnswerLabel.CORRECT, "half": AnswerLabel.PARTIAL}.get(answer, AnswerLabel.INCORRECT)


def script(rng: random.Random, pieces: Callable[[random.Random], str], turns: Sequence[Callable[[random.Random], str]]):
    """Up to six turns: most as a policy writes them, some of them with a piece put in, cut out or doubled."""
    written = []
    for _ in range(rng.choice((1, 2, 2, 3, 3, 4, 5, 6))):
        text = rng.choice(turns)(rng)
        for _ in range(rng.choice((0, 0, 0, 1, 1, 2, 4))):
            place = rng.choice((0, len(text), rng.randrange(len(text) + 1)))
            text = text[:place] + pieces(rng) + text[place:]
        if rng.random() < 0.1:
            text = "".join(pieces(rng) for _ in range(rng.randrange(8)))
        if rng.random() < 0.1:
            text = text.replace(rng.choice(("<think>", "</think>", "</answer>", "<answer>")), "", 1)
        written.append(text)
    return written


# --------------------------------------------------------------------------------------------------------- VideoZoomer


def zoom_json(rng: random.Random) -> str:
    def number() -> Any:
        some = (0, 4, 6, 8.5, 20, 99, 100, 150, -2, 16.9, 17, "5", "x", True, None, [1], "1e3")
        return rng.choice((*some, round(rng.uniform(0, 110), 2)))

    start = rng.choice((number(), 4, 6, round(rng.uniform(0, 90), 2)))
    end = rng.choice((number(), start + 2)) if isinstance(start, int | float) else number()
    request = {"segment": [start, end], "fps": rng.choice((1, 2, 2, 4, 0.5, 0, -1, 16, 300, "2", "two", True, None))}
    if rng.random() < 0.1:
        request |= rng.choice(({"segment": [4]}, {"segment": "46"}, {"segment": [4, 6, 8]}, {"more": 1}, {"x": [[1]]}))
    if rng.random() < 0.05:
        request.pop(rng.choice(("segment", "fps")))
    return json.dumps(request, indent=rng.choice((None, None, None, None, 1)))


def zoom_answer(rng: random.Random) -> str:
    return rng.choice(("B", "B", "A", "B. a goal", "A. or B. x", r"\boxed{B}", "(B)", "b", "", "B.", "D. in the U.S."))


VIDEOZOOMER_TURNS = (
    lambda rng: f"<think>so</think><video_zoom>{zoom_json(rng)}</video_zoom>",
    lambda rng: f"<think>so</think>\n<video_zoom>{zoom_json(rng)}</video_zoom>",
    lambda rng: f"<think>so</think><answer>{zoom_answer(rng)}</answer>",
)


def zoom_piece(rng: random.Random) -> str:
    tags = [f"<{slash}{name}>" for name in ("think", "video_zoom", "answer", "tool_response") for slash in ("", "/")]
    more = ("{", "}", "{}", "[4]", " ", "\n", "B", "B.", "words", zoom_json(rng), VIDEOZOOMER_TURNS[0](rng))
    return rng.choice((*tags, *more))


@pytest.mark.long
async def test_videozoomer() -> None:
    rng, method = random.Random(5), get_method("videozoomer", compat="reference")
    sample, seen = Sample("What?\nA. x\nB. a goal", "B", "v.mp4", "mc", ("x", "a goal")), Counter[str]()
    for _ in range(NUM_ROLLOUTS):
        turns = script(rng, zoom_piece, VIDEOZOOMER_TURNS)
        trajectory, shown = await play(method, sample, turns)
        expected = reference_videozoomer.rollout(turns)
        assert [turn.text for turn in trajectory.turns] == expected.turns, turns
        assert [None if frames is None else list(frames) for frames in shown] == expected.shown, turns
        components = await method.components(trajectory, sample, None)
        assert tuple(components.values()) == pytest.approx(reference_videozoomer.reward(expected.turns, "B")), turns
        seen.update(name for name, value in components.items() if value > 0)
        seen.update("refused" if frames is None else "shown" if frames else "empty" for frames in shown)
    assert min(seen.values()) > 500 and len(seen) == 6, seen


# -------------------------------------------------------------------------------------------------------------- LongVT


def crop_json(rng: random.Random) -> str:
    whole = rng.choice((10, 12, 20, 30, 95, 99.98, -1, 100, "10", "x", None, True, [1], round(rng.uniform(0, 105), 2)))
    end = whole + rng.choice((8, 10, 0.5, 0.02, 0, -3, 60)) if type(whole) in (int, float) else 20
    path = rng.choice((reference_longvt.PATH,) * 6 + ("", "/other.mp4", "yard.mp4"))
    arguments: dict[str, object] = {"video_path": path, "start_time": whole, "end_time": end}
    if rng.random() < 0.1:
        arguments.pop(rng.choice(tuple(arguments)))
    if rng.random() < 0.1:
        arguments |= rng.choice(
            ({"x": None}, {"x": [True]}, {"end_time": {"a": 1}}, {"y": "</think>"}, {"z": "<think>"})
        )
    call: dict[str, object] = {"name": "crop_video", "arguments": arguments}
    if rng.random() < 0.1:
        call |= rng.choice(({"name": "zoom"}, {"name": ""}, {"arguments": "x"}, {"parameters": {"start_time": 1}}))
    return rng.choice((json.dumps(call),) * 12 + (str(call), "{", "[]", "5"))


def crop_answer(rng: random.Random) -> str:
    segments = ("[12, 18]", "[10, 20]", "['12', '18']", "(12, 18)", "[18, 12]", "[1, 2, 3]", "12 - 18", "[1, [2]]")
    return rng.choice((*("yes", "yes", "half", "no", "", " ", "x" * 999, "yes" * 400), *segments))


def crop_call(rng: random.Random) -> str:
    return f"<tool_call>{crop_json(rng)}</tool_call>"


LONGVT_TURNS = (
    lambda rng: f"<think>there</think>{crop_call(rng)}",
    lambda rng: f"<think>there</think>\n{crop_call(rng)}" + crop_call(rng) * rng.choice((0, 0, 1, 5)),
    lambda rng: f"<think>so</think><answer>{crop_answer(rng)}</answer>",
    lambda rng: f"<think>so</think>\n<answer>{crop_answer(rng)}</answer>\n",
)


def crop_piece(rng: random.Random) -> str:
    tags = [f"<{slash}{name}>" for name in ("think", "tool_call", "answer", "tool_response") for slash in ("", "/")]
    blocks = (crop_call(rng), f"<answer>{crop_answer(rng)}</answer>", "<think>more</think>")
    return rng.choice((*tags, *blocks, " ", "\n", "words", "{", "}"))


@pytest.mark.long
async def test_longvt() -> None:
    rng, method, judge = random.Random(6), get_method("longvt", compat="reference"), StubJudge()
    truth, seen = (10.0, 20.0), Counter[str]()
    opened = Sample("What?", "never said", reference_longvt.PATH, "open", video_segment_seconds=truth)
    grounding = Sample("When?", "[10, 20]", reference_longvt.PATH, "segment", video_segment_seconds=truth)
    for number in range(NUM_ROLLOUTS):
        sample = grounding if number % 3 == 0 else opened
        turns = script(rng, crop_piece, LONGVT_TURNS)
        trajectory, shown = await play(method, sample, turns)
        expected = reference_longvt.rollout(turns)
        assert [None if frames is None else list(frames) for frames in shown] == expected.shown, turns
        components = await method.components(trajectory, sample, judge)
        reward = reference_longvt.reward(expected.text, truth, sample is grounding)
        assert tuple(components.values()) == pytest.approx(reward), turns
        seen.update(f"{name} of {sample.question_type}" for name, value in components.items() if value > 0)
        seen.update("refused" if frames is None else "shown" for frames in shown)
    assert min(seen.values()) > 300 and len(seen) == 7, seen
