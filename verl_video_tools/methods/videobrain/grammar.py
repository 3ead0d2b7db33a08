"""VideoBrain's rules of form: the grammar of a turn (paper appendix A), and the gate on a rollout's reward (3.3).

A turn is a `<thinking>` block, then one call or the answer:

    <thinking>...</thinking><tool_call>{"name": "clip_sample", "arguments": {...}}</tool_call>
    <thinking>...</thinking><answer>ANSWER</answer>

`parse_turn` is the strict reading. `parse_turn_reference` reads as the published environment does: the last call block
of a turn counts, wherever it stands. In both a turn that holds a call does not answer: what it says beside the call was
written without the frames. Both take any text and never raise.

A rollout that breaks a rule of form earns nothing at all. `record_gate` reads the record of what was carried out.
`reference_text_gate` reads turns and observations as text, as the published reward does; only `compat="reference"` uses
it. That reward takes the observations' own tags out by their exact sentences; here observations lose all their tags, so
their sentences may be others.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from verl_video_tools.methods import toolkit as vt
from verl_video_tools.methods.toolkit.grammar import tag_pairs

UNIFORM_SAMPLE, CLIP_SAMPLE = "uniform_sample", "clip_sample"

TAGS = ("thinking", "tool_call", "answer")
"""Names of the tags of thought, call and answer."""

_TAG = re.compile(rf"</?(?:{'|'.join(TAGS)})>")

_TOLERANCE_FRAMES = 1
"""Calls of uniform_sample whose two ends differ by no more frames are the same (code)."""

Range = tuple[int, int]
"""First frame, and the one after the last."""

# ------------------------------------------------------------------------------------------------------------- turns


def parse_turn(text: str) -> vt.ParsedTurn:
    """Read one turn strictly.

    Tags inside thoughts are ignored, but the turn is not `well_formed`. Several calls in one turn are all refused
    (`multiple_calls`). Of several answers the last counts. Words outside the blocks are allowed.
    """
    thoughts = vt.find_blocks(text, "thinking")
    thought = vt.first_text(thoughts)
    outside = vt.without_blocks(text, thoughts)
    calls = vt.parse_calls(outside, takes_parameters=False)
    if len(calls) > 1:
        error = vt.multiple_calls(len(calls), "calls", "<tool_call>")
        return vt.ParsedTurn(thought, tuple(replace(call, error=error) for call in calls))
    if calls:
        well_formed = calls[0].error is None and _is_in_order(text, thought, "tool_call")
        return vt.ParsedTurn(thought, calls, well_formed=well_formed)
    return _answering(text, thought, vt.find_blocks(outside, "answer"))


def parse_turn_reference(text: str) -> vt.ParsedTurn:
    """Read one turn as the published environment does."""
    thought = vt.first_text(vt.find_blocks(text, "thinking"))
    calls = vt.parse_calls(text, takes_parameters=False)[-1:]
    if calls:
        well_formed = calls[0].error is None and _is_in_order(text, thought, "tool_call")
        return vt.ParsedTurn(thought, calls, well_formed=well_formed)
    return _answering(text, thought, vt.find_blocks(text, "answer"))


def _answering(text: str, thought: str | None, answers: Sequence[vt.Block]) -> vt.ParsedTurn:
    answer = vt.last_text(answers) or None
    well_formed = answer is not None and _is_in_order(text, thought, "answer")
    return vt.ParsedTurn(thought, answer=answer, well_formed=well_formed)


def _is_in_order(text: str, thought: str | None, action: str) -> bool:
    """One thought that says something, then one action, and no other tag."""
    return bool(thought) and _TAG.findall(text) == tag_pairs("thinking", action)


# -------------------------------------------------------------------------------------------------------------- gate


@dataclass(frozen=True, slots=True)
class GateFindings:
    """What a gate says of a rollout.

    Attributes:
        fault: the first rule that the rollout breaks; None if it passes.
        answer: text of the answer, stripped; None where the gate fails.
        num_calls: calls that were executed (by the record) or written (by the text).
    """

    fault: str | None
    answer: str | None = None
    num_calls: int = 0


def record_gate(trajectory: vt.Trajectory) -> GateFindings:
    """Judge a rollout by its record: it answers, each turn is one thought and one action, no call was refused, and none
    says the same as an earlier one.

    A call that failed through no fault of the policy, or found nothing, does not count against it, nor as a call.
    """
    if trajectory.stop_reason is not vt.StopReason.ANSWER:
        return GateFindings("no answer")
    if not all(turn.well_formed for turn in trajectory.turns):
        return GateFindings("a turn that is not one thought and one action")
    if any(call.refused() for call in trajectory.calls()):
        return GateFindings("a call that was refused")
    executed = [call.result for call in trajectory.executed_calls()]
    calls = [_Call((done["start_frame"], done["end_frame"]), done.get("prompt")) for done in executed]
    for number in range(len(calls)):
        if fault := _repetition(calls[: number + 1]):
            return GateFindings(fault)
    return GateFindings(None, trajectory.answer, len(calls))


def reference_text_gate(turns: Sequence[tuple[str, str]]) -> GateFindings:
    """Judge turns as the published reward does; never raises.

    Tags have to balance, with one thought for each call and each answer, in whatever order and place. Ranges are not
    held against the video. Where the published code fails on a call that is no JSON object, it counts as malformed.

    Args:
        turns: text of each turn, and of the observation that answered it ("" for none).
    """
    text = "\n".join(part for turn, observation in turns for part in (turn, _TAG.sub("", observation)))
    for tag in TAGS:
        if text.count(f"<{tag}>") != text.count(f"</{tag}>"):
            return GateFindings(f"unbalanced <{tag}>")
    if text.count("<thinking>") != text.count("<tool_call>") + text.count("<answer>"):
        return GateFindings("not one thought for each call and answer")
    thoughts, written, answers = ([block.inner.strip() for block in vt.find_blocks(text, tag)] for tag in TAGS)
    if not all(thoughts):
        return GateFindings("a blank thought")
    if not answers or not answers[-1]:
        return GateFindings("no answer, or a blank one")
    calls: list[_Call] = []
    for text in written:
        try:
            calls.append(_read_call(text))
        except (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError):
            return GateFindings("a call that cannot be read")
        start, end = calls[-1].frame_range
        if start >= end:
            return GateFindings("a range that ends before it starts")
        if fault := _repetition(calls):
            return GateFindings(fault)
    return GateFindings(None, answers[-1], len(calls))


class _Call(NamedTuple):
    """What a call says; `prompt` is None for uniform_sample."""

    frame_range: Range
    prompt: str | None


def _repetition(calls: Sequence[_Call]) -> str | None:
    """Why the last call says the same as an earlier one; None if it does not.

    Calls of clip_sample with the same prompt do, whatever their range (paper appendix A).
    """
    *earlier, last = calls
    if last.prompt is not None:
        return "a prompt searched twice" if last.prompt in [call.prompt for call in earlier] else None
    ranges = [call.frame_range for call in earlier if call.prompt is None]
    is_repeated = any(
        max(abs(one - other) for one, other in zip(last.frame_range, frame_range, strict=True)) <= _TOLERANCE_FRAMES
        for frame_range in ranges
    )
    return "a range sampled twice" if is_repeated else None


def _read_call(text: str) -> _Call:
    """A call as the published reward reads it. Raises whatever a call of another form leads to."""
    call = json.loads(text)
    name, arguments = call["name"], call["arguments"]
    if name not in (UNIFORM_SAMPLE, CLIP_SAMPLE):
        raise ValueError(f"no tool is called {name!r}")
    prompt = arguments["prompt"].strip() if name == CLIP_SAMPLE else None
    if prompt == "":
        raise ValueError("the prompt is blank")
    return _Call((int(arguments["start_frame"]), int(arguments["end_frame"])), prompt)
