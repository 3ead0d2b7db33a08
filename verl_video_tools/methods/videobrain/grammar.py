"""VideoBrain's turn grammar: a `<thinking>` block, then one call or the answer (paper appendix A).

    <thinking>...</thinking><tool_call>{"name": "clip_sample", "arguments": {...}}</tool_call>
    <thinking>...</thinking><answer>ANSWER</answer>

`parse_turn` is the strict reading. `parse_turn_reference` reads as the published environment does: the last call block
of a turn counts, wherever it stands, and a zoom in FrameThinker's form is one, too. In both a turn that holds a call
does not answer: what it says beside was written without the frames. Both take any text and never raise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from verl_video_tools.methods import toolkit as vt
from verl_video_tools.methods.toolkit.hermes import parse_calls, read_call

CHOOSE_FRAMES = "choose_frames"
"""The call that only the published environment still executes."""

TAGS = ("thinking", "tool_call", "answer")
"""Names of the tags of thought, call and answer."""


def parse_turn(text: str, tags: tuple[str, str, str] = TAGS) -> vt.ParsedTurn:
    """Read one turn strictly.

    Tags inside thoughts are ignored, but the turn is not `well_formed`. Several calls in one turn are all refused
    (`multiple_calls`). Of several answers the last counts. Words outside the blocks are allowed.

    Args:
        tags: names of the tags of thought, call and answer.
    """
    thought_tag, call_tag, answer_tag = tags
    thoughts = vt.find_blocks(text, thought_tag)
    thought = thoughts[0].inner.strip() if thoughts else None
    spoken = vt.without_blocks(text, thoughts)
    calls = tuple(read_call(block.inner, takes_parameters=False) for block in vt.find_blocks(spoken, call_tag))
    if len(calls) > 1:
        message = f"{len(calls)} calls in one turn; write exactly one <{call_tag}>"
        error = vt.CallError(vt.CallErrorCode.MULTIPLE_CALLS, message)
        return vt.ParsedTurn(thought, tuple(replace(call, error=error) for call in calls))
    if calls:
        is_good = calls[0].error is None and _is_in_order(text, thoughts, vt.find_blocks(text, call_tag), tags)
        return vt.ParsedTurn(thought, calls, well_formed=is_good)
    answers = vt.find_blocks(spoken, answer_tag)
    answer = answers[-1].inner.strip() if answers else ""
    is_good = bool(answer) and _is_in_order(text, thoughts, vt.find_blocks(text, answer_tag), tags)
    return vt.ParsedTurn(thought, answer=answer or None, well_formed=is_good)


def parse_turn_reference(text: str) -> vt.ParsedTurn:
    """Read one turn as the published environment does."""
    thoughts, calls = vt.find_blocks(text, "thinking"), vt.find_blocks(text, "tool_call")
    thought = thoughts[0].inner.strip() if thoughts else None
    if calls:
        call = _zoom_of_framethinker(calls[-1].inner) or parse_calls(text, takes_parameters=False)[-1]
        return vt.ParsedTurn(thought, (call,), well_formed=call.error is None and _is_in_order(text, thoughts, calls))
    answers = vt.find_blocks(text, "answer")
    answer = answers[-1].inner.strip() if answers else ""
    is_good = bool(answer) and _is_in_order(text, thoughts, answers)
    return vt.ParsedTurn(thought, answer=answer or None, well_formed=is_good)


def _is_in_order(
    text: str, thoughts: Sequence[vt.Block], actions: Sequence[vt.Block], tags: Sequence[str] = TAGS
) -> bool:
    """One thought that says something, then one action, and no other tag."""
    num_tags = sum(text.count(f"<{slash}{name}>") for name in tags for slash in ("", "/"))
    if len(thoughts) != 1 or len(actions) != 1 or num_tags != 4:
        return False
    return bool(thoughts[0].inner.strip()) and thoughts[0].end <= actions[0].start


def _zoom_of_framethinker(text: str) -> vt.ToolCall | None:
    """``{"action": "choose_frames", "frame_range": [start, end]}`` as a call; None for anything else."""
    try:
        raw = vt.load_object(text)
        if "name" in raw or raw.get("action") != CHOOSE_FRAMES:
            return None
        if not isinstance(raw["frame_range"], list):
            return None
        start, end = (int(number) for number in raw["frame_range"])
    except (ValueError, TypeError, LookupError, OverflowError):
        return None
    return vt.ToolCall(CHOOSE_FRAMES, {"start_frame": start, "end_frame": end})
