"""Native reasoning: what a model thinks before it speaks, by its own training and not by a method's grammar.

It comes in three shapes, and is taken apart here for every method and every caller:

    <think>REASONING</think>TURN    both in the text
    REASONING</think>TURN           the chat template has written the opening tag
    TURN                            beside a field `reasoning_content` (or `reasoning`) of the message

Most grammars have a thought of their own, some with the same tag (`Method.thought_tag`). Which one a block is follows
from the turn behind it: where that has a thought, the block before is native reasoning and is no part of the turn;
where it has none, the reasoning is the turn's thought, in the method's tag. So a turn of a model without native
reasoning stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from verl_video_tools.core.method import Method

NATIVE_TAG = "think"

OPENING, CLOSING = f"<{NATIVE_TAG}>", f"</{NATIVE_TAG}>"
_NATIVE = re.compile(f"</?{NATIVE_TAG}>")
_ANY_TAG = re.compile(r"</?([A-Za-z_]\w*)>")
_MOST_ENDS_TRIED = 16
"""Of a reasoning that names its own tags; each costs a reading of the rest."""


@dataclass(frozen=True, slots=True)
class ParsedCompletion:
    """A turn as a method reads it.

    Attributes:
        text: without native reasoning, or with it as the turn's thought.
        reasoning: native reasoning that is no part of the turn, stripped; None where there is none.
    """

    text: str
    reasoning: str | None = None


def split_reasoning(
    text: str, method: Method, *, reasoning: str | None = None, opened: bool = False, cut: bool = False
) -> ParsedCompletion:
    """Tell native reasoning from what a model says.

    Tags in reasoning that becomes a turn's thought lose their angle brackets: a call that it merely names is no call.
    Reasoning that was cut says nothing, whatever it names.

    Args:
        text: what the model wrote, or the content of its message.
        reasoning: what came in a field of its own.
        opened: the chat template has written `<think>` before `text`.
        cut: the text ends where its token limit did.
    """
    if reasoning is not None and reasoning.strip():
        return _joined(reasoning, text, method) if text.strip() else ParsedCompletion("", reasoning.strip())
    starts_with_opening = text.lstrip().startswith(OPENING)
    if opened and not starts_with_opening:
        text, starts_with_opening = OPENING + text, True
    if CLOSING not in text:
        unfinished = text.strip().removeprefix(OPENING).strip()
        return ParsedCompletion("", unfinished or None) if starts_with_opening and cut else ParsedCompletion(text)
    start = text.index(OPENING) + len(OPENING) if starts_with_opening else 0
    ends, likely_end = _possible_ends(text, start, is_nested=method.thought_tag == NATIVE_TAG)
    for end in ends[:_MOST_ENDS_TRIED]:
        turn = text[end + len(CLOSING) :].lstrip()
        if _is_whole(turn, method):
            return ParsedCompletion(turn, text[start:end].strip() or None)
    if likely_end is None or (method.thought_tag is not None and _is_whole(text.lstrip(), method)):
        return ParsedCompletion(text)
    completion = _joined(text[start:likely_end], text[likely_end + len(CLOSING) :], method)
    return ParsedCompletion(text) if completion.text == text.lstrip() else completion


def opens_reasoning(prompt_text: str) -> bool:
    """Whether a prompt, as the chat template renders it, ends with the opening tag, which the turn then lacks."""
    return prompt_text.rstrip().endswith(OPENING)


def lacks_opening(text: str) -> bool:
    """Whether a reply closes a reasoning that it does not open: the chat template does, with every turn."""
    first = _NATIVE.search(text)
    return first is not None and first[0] == CLOSING


def with_reasoning(turn: str, reasoning: str | None, *, opened: bool) -> str:
    """A turn as a model with native reasoning writes it: the reverse of `split_reasoning`, for training.

    Args:
        opened: the chat template writes the opening tag; a turn without reasoning then closes it at once.
    """
    text = turn if reasoning is None else f"{OPENING}\n{reasoning}\n{CLOSING}\n\n{turn}"
    if not opened:
        return text
    if text.startswith(OPENING):
        return text.removeprefix(OPENING).removeprefix("\n")
    return f"\n{CLOSING}\n\n{text}"


def split_thought(text: str, tags: Sequence[str] = (NATIVE_TAG,)) -> tuple[str | None, str]:
    """A thought in one of these tags, None where none is closed, and what follows it; both stripped.

    For replies without a grammar: the last closing tag counts, and the opening one may be missing.
    """
    for tag in tags:
        before, closing, after = text.rpartition(f"</{tag}>")
        if closing:
            return before.strip().removeprefix(f"<{tag}>").strip(), after.strip()
    return None, text.strip()


def without_reasoning(reply: str) -> str:
    """What follows the reasoning in a reply without a grammar; nothing if the reasoning was cut off."""
    thought, words = split_thought(reply)
    return "" if thought is None and words.startswith(OPENING) else words


# ----------------------------------------------------------------------------------------------------------- internals


def _possible_ends(text: str, start: int, *, is_nested: bool) -> tuple[list[int], int | None]:
    """Closing tags at which a reasoning that begins at `start` may end, the best place first; and where it ends if no
    well-formed turn follows any of them, None where there may be no reasoning at all.

    Args:
        is_nested: the turn's own thought has the same tag. The reasoning then ends at the latest where as many tags
            are closed as were opened: what follows there may be made-up turns, with thoughts of their own. Otherwise
            the last closing tag ends it.
    """
    ends: list[int] = []
    depth = 1
    for tag in _NATIVE.finditer(text, start):
        depth += 1 if tag[0] == OPENING else -1
        if tag[0] == CLOSING:
            ends.append(tag.start())
        if is_nested and depth == 0:
            return ends, ends[-1]
    if not is_nested:
        return ends[::-1], ends[-1]
    return ends, ends[0] if start > 0 else None


def _joined(reasoning: str, rest: str, method: Method) -> ParsedCompletion:
    """The turn with the reasoning as its thought, or apart from it where the turn has one, or needs none."""
    tag, turn = method.thought_tag, rest.lstrip()
    if tag is None or _begins_with_thought(turn, tag, method):
        return ParsedCompletion(turn, reasoning.strip() or None)
    thought = _ANY_TAG.sub(r"\1", reasoning)
    return ParsedCompletion(f"<{tag}>{thought}</{tag}>{rest}")


def _is_whole(turn: str, method: Method) -> bool:
    """Whether a text is a turn to the letter, its own thought included."""
    tag = method.thought_tag
    return method.parse(turn).well_formed and (tag is None or _begins_with_thought(turn, tag, method))


def _begins_with_thought(turn: str, tag: str, method: Method) -> bool:
    """Whether a turn has a thought before all that it does."""
    before, opening, _ = turn.partition(f"<{tag}>")
    if not opening or tag == NATIVE_TAG:  # of the same tag any thought further on may be that of a made-up turn
        return bool(opening) and not before.strip()
    done = method.parse(before)
    return not done.calls and done.answer is None and done.summary is None
