"""FrameMind's turn grammar (paper appendix B): thoughts; function calls and a summary that asks for more, or an answer.

    <think>...</think><tool_call>VideoClip(15.5, 20.0)</tool_call><turn_sum>...</turn_sum>
    <think>...</think><answer>...</answer>

A block holds one call: ``FrameAt(t)`` or ``VideoClip(t_start, t_end)``, plain numbers of seconds, with or without the
parameters' names. Calls and answers stand outside thoughts; tags inside thoughts are ignored. Parsing takes
any text and never raises. No code of the paper is public: the rules where its text is silent are ours.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from verl_video_tools.methods import toolkit as vt

FRAME_AT, VIDEO_CLIP = "FrameAt", "VideoClip"
_PARAMETERS = {FRAME_AT: ("t",), VIDEO_CLIP: ("t_start", "t_end")}
_CALL = re.compile(r"\s*([A-Za-z_]\w*)\s*\(([^()]*)\)\s*")
_NUMBER = re.compile(r"[+-]?(?:\d{1,18}(?:\.\d{0,18})?|\.\d{1,18})")
_TAG = re.compile(r"</?(?:think|tool_call|turn_sum|answer)>")


def parse_turn(text: str) -> vt.ParsedTurn:
    """Read one turn. Of several answers the last one counts; `well_formed` is `is_valid_turn`, with readable calls."""
    thoughts = vt.find_blocks(text, "think")
    outside = vt.without_blocks(text, thoughts)
    calls = tuple(_read_call(block.inner) for block in vt.find_blocks(outside, "tool_call"))
    summaries, answers = vt.find_blocks(outside, "turn_sum"), vt.find_blocks(outside, "answer")
    return vt.ParsedTurn(
        thought=vt.first_text(thoughts),
        calls=calls,
        answer=vt.last_text(answers),
        summary=vt.last_text(summaries),
        well_formed=is_valid_turn(text) and all(call.error is None for call in calls),
    )


def is_valid_turn(text: str) -> bool:
    """Whether a turn is thoughts, then calls and a summary, or one answer, with white space between the blocks."""
    if is_valid_transcript(text):
        return True
    tags = _TAG.findall(text)
    asks = any(tag in tags for tag in ("</tool_call>", "</turn_sum>"))
    return asks and _are_balanced(tags) and _is_thoughts(_outside_calls(text))


def is_valid_transcript(text: str) -> bool:
    """The format of a whole rollout (paper appendix, reward): its assistant turns, one after the other.

    Calls and summaries are removed, since the paper's rule knows none; what is left must be closed thoughts, at least
    one, and then exactly one closed answer, at the very end. White space does not count.
    """
    if not _are_balanced(_TAG.findall(text)):
        return False
    left = _outside_calls(text).rstrip()
    answers = vt.find_blocks(left, "answer")
    return len(answers) == 1 and answers[0].end == len(left) and _is_thoughts(left[: answers[0].start])


def num_summaries(text: str) -> int:
    """Closed summaries outside thoughts."""
    return len(vt.find_blocks(vt.without_blocks(text, vt.find_blocks(text, "think")), "turn_sum"))


def labelled_frames(images: Sequence[vt.ImagePart], decimals: int) -> vt.Content:
    """One line per frame, with its own time in seconds before it: ``[t=12.34s]``."""
    return vt.frame_lines(images, lambda seconds: f"[t={seconds:.{decimals}f}s]")


def _are_balanced(tags: Sequence[str]) -> bool:
    """Whether each opening tag is followed by its closing one, so that blocks neither nest nor stay open."""
    pairs = zip(tags[::2], tags[1::2], strict=False)
    return len(tags) % 2 == 0 and all(closing == f"</{opening[1:]}" for opening, closing in pairs)


def _outside_calls(text: str) -> str:
    for tag in ("tool_call", "turn_sum"):
        text = vt.without_blocks(text, vt.find_blocks(text, tag))
    return text


def _is_thoughts(text: str) -> bool:
    thoughts = vt.find_blocks(text, "think")
    return bool(thoughts) and not vt.without_blocks(text, thoughts).strip()


def _read_call(text: str) -> vt.ToolCall:
    match = _CALL.fullmatch(text)
    if match is None:
        return vt.malformed_call(text, f"{text.strip()[:80]!r} is not one function call", _ADVICE)
    name, listed = match.groups()
    if name not in _PARAMETERS:
        error = vt.CallError(vt.CallErrorCode.UNKNOWN_TOOL, f"no tool is called {name[:80]!r}; {_ADVICE}")
        return vt.ToolCall(name[:80], {"text": text.strip()[:200]}, error)
    parameters = _PARAMETERS[name]
    values = [value.strip() for value in listed.split(",")]
    if len(values) != len(parameters):
        return vt.malformed_call(text, f"{name} takes {len(parameters)} numbers, got {len(values)}", _ADVICE, name)
    arguments: dict[str, float] = {}
    for position, value in enumerate(values):
        named, equals, number = (part.strip() for part in value.rpartition("="))
        parameter = named if equals else parameters[position]
        if parameter not in parameters or parameter in arguments:
            return vt.malformed_call(text, f"{name} takes {', '.join(parameters)} once each", _ADVICE, name)
        if not _NUMBER.fullmatch(number):
            return vt.malformed_call(
                text, f"{parameter} must be a number of seconds, got {number[:40]!r}", _ADVICE, name
            )
        arguments[parameter] = float(number)
    return vt.ToolCall(name, arguments)


_ADVICE = "write FrameAt(t) or VideoClip(t_start, t_end) with seconds, such as VideoClip(15.5, 20.0)"
