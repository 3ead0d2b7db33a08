"""FrameThinker's turn grammar: one `<think>` block and one `<action>` block of plain words (paper 3.1).

    choose frames between START and END      START, END: frame numbers
    get frame number at time MM:SS           hours folded into minutes: 65:20 is 1 h 5 min 20 s
    output answer: ANSWER

`parse_turn` is the strict reading: one action per turn, at the start of its block, and no answer beside another action.
`parse_turn_reference` reads as the published environment does: the last action block counts, a time is read at its
start, otherwise a segment anywhere in it. Both take any text and never raise.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from verl_video_tools.methods import toolkit as vt

CHOOSE_FRAMES = "choose_frames"
GET_FRAME_NUMBER = "get_frame_number"
FRAME_NUMBER = "Frame number at time {time} is: {number}."
"""The published reply to a clock, which the published reward reads."""

_MAX_DIGITS = 18
"""Longer numbers name no frame, and Python refuses to read very long ones."""

# Words may follow an action, as in the published code; the numbers themselves must be whole ("200.5" and "8x" are not).
_CHOOSE = re.compile(r"choose frames between (\d+) and (\d+)(?!\w)(?![.,:]\d)")
_GET = re.compile(r"get frame number at time\s+(\d{1,3}:\d{2})(?!\S)")
_ANSWER = re.compile(r"output answer:\s*(\S.*)", re.DOTALL)
_CHOOSE_REFERENCE = re.compile(r"choose frames between (\d+) and (\d+)")
_GET_REFERENCE = re.compile(r"get frame number at time\s+(\S+)")


def parse_turn(text: str) -> vt.ParsedTurn:
    """Read one turn strictly.

    The order of the two blocks and text around them do not matter for what is read, only for `well_formed`. A thought
    is read only if the turn has exactly one. Of several actions none is carried out: each call is recorded with
    `multiple_calls`, and no answer is taken.
    """
    thoughts, actions = vt.find_blocks(text, "think"), vt.find_blocks(text, "action")
    thought = vt.first_text(thoughts) if len(thoughts) == 1 else None
    readings = [_read_action(action.inner.strip()) for action in actions]
    if len(readings) > 1:
        error = vt.multiple_calls(len(readings), "actions", "<action> block")
        calls = [replace(reading, error=error) for reading in readings if isinstance(reading, vt.ToolCall)]
        return vt.ParsedTurn(thought, tuple(calls) or (vt.ToolCall(vt.UNKNOWN, error=error),))
    calls_read = tuple(reading for reading in readings if isinstance(reading, vt.ToolCall))
    answer = next((reading for reading in readings if isinstance(reading, str)), None)
    understood = answer is not None or any(call.error is None for call in calls_read)
    return vt.ParsedTurn(thought, calls_read, answer, understood and _is_to_the_letter(text, thoughts, actions))


def parse_turn_reference(text: str) -> vt.ParsedTurn:
    """Read one turn as the published environment does.

    Only the last action block counts. An action that begins as a clock is one, whatever follows (any word stands for
    the time; the tool says whether it reads as one); otherwise a segment is looked for anywhere in the block; what is
    neither ends the rollout, be it an answer or not.
    """
    thoughts, actions = vt.find_blocks(text, "think"), vt.find_blocks(text, "action")
    thought = vt.last_text(thoughts)
    action = vt.last_text(actions)
    if action is None:
        return vt.ParsedTurn(thought)
    reading: vt.ToolCall | str
    if time := _GET_REFERENCE.match(action):
        reading = vt.ToolCall(GET_FRAME_NUMBER, {"time": time[1]})
    elif segment := _CHOOSE_REFERENCE.search(action):
        start, end = (_bounded(number) for number in segment.groups())
        reading = vt.ToolCall(CHOOSE_FRAMES, {"start_frame": start, "end_frame": end})
    else:
        reading = _read_action(action)
    if isinstance(reading, str):
        return vt.ParsedTurn(thought, answer=reading, well_formed=_is_to_the_letter(text, thoughts, actions))
    well_formed = reading.error is None and _is_to_the_letter(text, thoughts, actions)
    return vt.ParsedTurn(thought, (reading,), well_formed=well_formed)


def _read_action(action: str) -> vt.ToolCall | str:
    """A call, also a malformed one, or the text of an answer (never empty)."""
    if segment := _CHOOSE.match(action):
        return _segment_call(segment, action)
    if time := _GET.match(action):
        return vt.ToolCall(GET_FRAME_NUMBER, {"time": time[1]})
    if answer := _ANSWER.match(action):
        return answer[1]
    if action.startswith("choose frames"):
        return _malformed(CHOOSE_FRAMES, action, "write 'choose frames between START and END' with two frame numbers")
    if action.startswith("get frame number"):
        return _malformed(GET_FRAME_NUMBER, action, "write 'get frame number at time MM:SS'")
    return _malformed(vt.UNKNOWN, action, "an action is choose frames, get frame number or 'output answer: ANSWER'")


def _segment_call(segment: re.Match[str], action: str) -> vt.ToolCall:
    start, end = segment.groups()
    if max(len(start), len(end)) > _MAX_DIGITS:
        return _malformed(CHOOSE_FRAMES, action, f"a frame number has at most {_MAX_DIGITS} digits")
    return vt.ToolCall(CHOOSE_FRAMES, {"start_frame": int(start), "end_frame": int(end)})


def _bounded(digits: str) -> int:
    """The number, or 10**18 for one beyond that, which lies as far outside of any video."""
    digits = digits.lstrip("0") or "0"  # int() of the remaining ones is cheap
    return int(digits) if len(digits) <= _MAX_DIGITS else 10**_MAX_DIGITS


def _malformed(name: str, action: str, advice: str) -> vt.ToolCall:
    error = vt.CallError(vt.CallErrorCode.MALFORMED_CALL, f"cannot read the action {action[:80]!r}; {advice}")
    return vt.ToolCall(name, {"action": action}, error)


def _is_to_the_letter(text: str, thoughts: Sequence[vt.Block], actions: Sequence[vt.Block]) -> bool:
    """One thought, then one action, and only white space around and between them."""
    if len(thoughts) != 1 or len(actions) != 1:
        return False
    (thought,), (action,) = thoughts, actions
    outside = text[: thought.start] + text[thought.end : action.start] + text[action.end :]
    return thought.end <= action.start and not outside.strip()


def frame_number_sentence(time: str, frame_number: int) -> str:
    """What the model reads after asking for the frame at a time; `time` as it wrote it."""
    return FRAME_NUMBER.format(time=time, number=frame_number)
