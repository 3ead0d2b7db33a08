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

from verl_video_tools.methods import toolkit as vt
from verl_video_tools.methods.toolkit.grammar import read_call

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
    calls = tuple(read_call(block.inner, takes_parameters=False) for block in vt.find_blocks(outside, "tool_call"))
    if len(calls) > 1:
        error = vt.multiple_calls(len(calls), "calls", "<tool_call>")
        return vt.ParsedTurn(thought, tuple(replace(call, error=error) for call in calls))
    if calls:
        is_good = calls[0].error is None and _is_in_order(text, thoughts, vt.find_blocks(text, "tool_call"))
        return vt.ParsedTurn(thought, calls, well_formed=is_good)
    return _answering(text, thoughts, vt.find_blocks(outside, "answer"))


def parse_turn_reference(text: str) -> vt.ParsedTurn:
    """Read one turn as the published environment does."""
    thoughts, calls = vt.find_blocks(text, "thinking"), vt.find_blocks(text, "tool_call")
    thought = vt.first_text(thoughts)
    if calls:
        call = read_call(calls[-1].inner, takes_parameters=False)
        return vt.ParsedTurn(thought, (call,), well_formed=call.error is None and _is_in_order(text, thoughts, calls))
    return _answering(text, thoughts, vt.find_blocks(text, "answer"))


def _answering(text: str, thoughts: Sequence[vt.Block], answers: Sequence[vt.Block]) -> vt.ParsedTurn:
    answer = vt.last_text(answers)
    is_good = bool(answer) and _is_in_order(text, thoughts, vt.find_blocks(text, "answer"))
    return vt.ParsedTurn(vt.first_text(thoughts), answer=answer or None, well_formed=is_good)


def _is_in_order(text: str, thoughts: Sequence[vt.Block], actions: Sequence[vt.Block]) -> bool:
    """One thought that says something, then one action, and no other tag."""
    num_tags = sum(text.count(f"<{slash}{name}>") for name in TAGS for slash in ("", "/"))
    if len(thoughts) != 1 or len(actions) != 1 or num_tags != 4:
        return False
    return bool(thoughts[0].inner.strip()) and thoughts[0].end <= actions[0].start


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
    calls = trajectory.executed_calls()
    earlier_calls = _EarlierCalls()
    for call in calls:
        done = call.result
        if fault := earlier_calls.add(call.name, (done["start_frame"], done["end_frame"]), done.get("prompt", "")):
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
    thoughts, calls, answers = ([block.inner.strip() for block in vt.find_blocks(text, tag)] for tag in TAGS)
    if not all(thoughts):
        return GateFindings("a blank thought")
    if not answers or not answers[-1]:
        return GateFindings("no answer, or a blank one")
    earlier_calls = _EarlierCalls()
    for call in calls:
        try:
            name, frame_range, prompt = _read_call(call)
        except (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError):
            return GateFindings("a call that cannot be read")
        if frame_range[0] >= frame_range[1]:
            return GateFindings("a range that ends before it starts")
        if fault := earlier_calls.add(name, frame_range, prompt):
            return GateFindings(fault)
    return GateFindings(None, answers[-1], len(calls))


class _EarlierCalls:
    """The calls of a rollout so far, to tell when one says the same as an earlier one.

    Calls of clip_sample with the same prompt do, whatever their range (paper appendix A).
    """

    def __init__(self) -> None:
        self._ranges: list[Range] = []
        self._prompts: list[str] = []

    def add(self, name: str, frame_range: Range, prompt: str) -> str | None:
        """Why the call repeats an earlier one; None if it does not."""
        if name == CLIP_SAMPLE:
            if prompt in self._prompts:
                return "a prompt searched twice"
            self._prompts.append(prompt)
            return None
        if any(
            max(abs(one - other) for one, other in zip(frame_range, earlier, strict=True)) <= _TOLERANCE_FRAMES
            for earlier in self._ranges
        ):
            return "a range sampled twice"
        self._ranges.append(frame_range)
        return None


def _read_call(text: str) -> tuple[str, Range, str]:
    """Name, range and prompt ("" for uniform_sample) of a call. Raises whatever a call of another form leads to."""
    call = json.loads(text)
    name, arguments = call["name"], call["arguments"]
    if name not in (UNIFORM_SAMPLE, CLIP_SAMPLE):
        raise ValueError(f"no tool is called {name!r}")
    prompt = arguments["prompt"].strip() if name == CLIP_SAMPLE else ""
    if name == CLIP_SAMPLE and not prompt:
        raise ValueError("the prompt is blank")
    return name, (int(arguments["start_frame"]), int(arguments["end_frame"])), prompt
