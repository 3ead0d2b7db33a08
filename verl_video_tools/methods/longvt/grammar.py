"""LongVT's rules of form: native tool calls (`methods.toolkit.grammar`), and the published reading and scoring of them.

Only `compat="reference"` uses the published ones. Its environment writes a turn that calls anew: what stood before its
first call, then the calls. So what a turn says after a call is lost, and an answer before one is graded.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from verl_video_tools.methods import toolkit as vt
from verl_video_tools.methods.toolkit.grammar import as_call, has_words_outside, tags_in_order

Segment = tuple[float, float]

CROP_VIDEO = "crop_video"

_OPENING_TAG = re.compile(r"<(think|tool_call|answer)>")
_LITERAL_CHARACTERS = 4000
"""Of a call at most; as much as a call may have to be carried out."""


@dataclass(frozen=True, slots=True)
class Findings:
    """What a rollout is paid for: by its record, or (reference) by its text.

    Attributes:
        answer: empty where there is none.
        segments: seconds of the calls, in order; in the text also of those that were not carried out.
        called: the rollout used its tool.
    """

    answer: str
    well_formed: bool
    segments: Sequence[Segment]
    called: bool


def is_well_formed(trajectory: vt.Trajectory) -> bool:
    """The format of a rollout (paper 4.2; rules of the code, read turn by turn from the policy's own text).

    Every turn but the last is a thought and exactly one call, the last a thought and an answer. Words between the
    blocks are allowed in a rollout that calls a tool; one that only answers has to consist of its two blocks.
    """
    if not trajectory.is_well_formed():
        return False
    *calling, last = trajectory.turns
    return all(len(turn.calls) == 1 for turn in calling) if calling else not has_words_outside(last.text)


def parse_turn_reference(text: str) -> vt.ParsedTurn:
    """Read one turn as the published environment of LongVT does.

    Calls are read anywhere, also in thoughts. One block that is no JSON costs the turn all its calls, and a call of an
    unknown tool, or whose arguments are no object, is dropped; with no call left the turn is the last one.
    """
    try:
        calls = [as_call(vt.load_object(block.inner), block.inner) for block in vt.find_blocks(text, "tool_call")]
    except (ValueError, RecursionError):
        calls = []
    known_calls = tuple(call for call in calls if call.error is None and call.name == CROP_VIDEO)
    answers = [] if known_calls else vt.find_blocks(text, "answer")
    return vt.ParsedTurn(
        thought=vt.first_text(vt.find_blocks(text, "think")),
        calls=known_calls,
        answer=vt.last_text(answers),
        well_formed=tags_in_order(text) and bool(known_calls or answers),
    )


# ------------------------------------------------------------------------------------------------ the published scoring


def published_findings(turns: Sequence[vt.Turn], is_segment: bool) -> Findings:
    """What the published scoring finds in turns and what answered them, joined with the names of their roles.

    Args:
        is_segment: the question's answer is a segment. Both its tags must stand after the last thought.
    """
    replies = [f"user{turn.observation}assistant\n" if turn.observation is not None else "" for turn in turns]
    text = "".join(_rewritten(turn) + reply for turn, reply in zip(turns, replies, strict=True))
    answer = _answer_of(text)
    if is_segment and not _answer_of(text.rpartition("</think>")[2]):
        answer = ""
    well_formed = _is_in_form_of_segments(text) if is_segment else _is_in_form(text)
    return Findings(answer, well_formed, _written_segments(text), called="<tool_response>" in text)


def _answer_of(text: str) -> str:
    """What stands after the last `<answer>`, up to a closing tag; empty where either tag is nowhere in the text."""
    if "<answer>" not in text or "</answer>" not in text:
        return ""
    return text.rpartition("<answer>")[2].partition("</answer>")[0].strip()


def _is_in_form(text: str) -> bool:
    """The form of a rollout with an answer that is not a segment.

    Without a call: one thought after the other, then the answer, and nothing else. With calls: it starts with a
    thought, ends with the answer, and after each call comes a thought, counted by opening tags.
    """
    if not _is_balanced(text) or text.count("<answer>") != 1 or text.count("</answer>") != 1:
        return False
    num_calls = text.count("<tool_call>")
    if num_calls == 0:
        return _only_answers(text)
    expected = ["think", *["tool_call", "think"] * num_calls, "answer"]
    return _is_enclosed(text) and _OPENING_TAG.findall(text) == expected


def _is_in_form_of_segments(text: str) -> bool:
    """The form of a rollout whose answer is a segment: several answers, and calls in any order, are allowed."""
    after_thoughts = text.rpartition("</think>")[2]
    num_answers = after_thoughts.count("<answer>")
    if not _is_balanced(text) or num_answers == 0 or num_answers != after_thoughts.count("</answer>"):
        return False
    return _is_enclosed(text) if "<tool_call>" in text else _only_answers(text)


def _written_segments(text: str) -> list[Segment]:
    """Segments of the calls in a text that holds a reply, in order, whether they were carried out or not.

    Calls are read as Python, so that one with null, true or false is skipped. Of those before one whose times are no
    numbers at all, such as lists, none counts.
    """
    if "<tool_response>" not in text:
        return []
    segments: list[Segment] = []
    for block in reversed(vt.find_blocks(text, "tool_call")):
        try:
            segment = _segment(block.inner)
        except (TypeError, AttributeError, OverflowError, RecursionError, MemoryError):
            break
        if segment is not None:
            segments.insert(0, segment)
    return segments


def listed_segment(answer: str) -> Segment | None:
    """The segment of an answer ``[start, end]``, a list in Python's syntax; None for any other answer."""
    try:
        named = ast.literal_eval(answer[:_LITERAL_CHARACTERS])
        return (float(named[0]), float(named[1])) if isinstance(named, list) and len(named) == 2 else None
    except (SyntaxError, ValueError, TypeError, OverflowError, RecursionError, MemoryError):
        return None


def _rewritten(turn: vt.Turn) -> str:
    if turn.truncated or not turn.calls:
        return turn.text
    calls = [json.dumps(call.arguments, ensure_ascii=False) for call in turn.calls]
    written = [f'<tool_call>{{"name":"{CROP_VIDEO}","arguments":{arguments}}}</tool_call>' for arguments in calls]
    return turn.text.partition("<tool_call>")[0].strip() + "".join(written)


def _segment(call: str) -> Segment | None:
    """The segment of a call; None if it holds none. Raises TypeError or AttributeError for one that ends the search."""
    try:
        written = ast.literal_eval(call.strip()[:_LITERAL_CHARACTERS])
        if not isinstance(written, dict) or written.get("name") != CROP_VIDEO:
            return None
        arguments = written.get("arguments", {})
        if "start_time" not in arguments or "end_time" not in arguments:
            return None
        return float(arguments["start_time"]), float(arguments["end_time"])
    except (ValueError, SyntaxError, KeyError):
        return None


def _is_balanced(text: str) -> bool:
    num_thoughts = text.count("<think>")
    return num_thoughts == text.count("</think>") > 0 and text.count("<tool_call>") == text.count("</tool_call>")


def _is_enclosed(text: str) -> bool:
    return text.strip().startswith("<think>") and text.strip().endswith("</answer>")


def _only_answers(text: str) -> bool:
    """``^\\s*<think>.*?</think>\\s*<answer>.*?</answer>\\s*$``, without its search for where to split."""
    text = text.strip()
    if not _is_enclosed(text):
        return False
    body = text[len("<think>") : -len("</answer>")]
    return re.search(r"</think>\s*<answer>", body) is not None
