"""Native reasoning of a model, from its own training and not from a method's grammar.

It has three forms, which this module separates for all methods and callers:

    <think>REASONING</think>TURN    both in the text
    REASONING</think>TURN           the chat template has written the opening tag
    TURN                            with a field `reasoning_content` (or `reasoning`) of the message

Most grammars have a thought, some with the same tag (`Method.thought_tag`). The turn after a block decides: if the turn
has a thought, the block is native reasoning and not part of the turn; otherwise the reasoning becomes the turn's
thought, in the method's tag. So a turn of a model without native reasoning is unchanged.
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
_MAX_ENDS = 16
"""Closing tags that are tried in a reasoning that names its own tags, because each try parses the rest."""


@dataclass(frozen=True, slots=True)
class ParsedCompletion:
    """A turn for a method, and native reasoning.

    Attributes:
        text: without native reasoning, or with it as the turn's thought.
        reasoning: native reasoning that is not part of the turn, stripped; None without.
    """

    text: str
    reasoning: str | None = None


def split_reasoning(
    text: str, method: Method, *, reasoning: str | None = None, opened: bool = False, cut: bool = False
) -> ParsedCompletion:
    """Separate native reasoning from a turn.

    Tags in reasoning that becomes a turn's thought lose their angle brackets, because a call that reasoning only names
    is not a call. Reasoning that reached the token limit is an empty turn.

    Args:
        text: the model's text, or the content of its message.
        reasoning: the message's field for reasoning.
        opened: the chat template has written `<think>` before `text`.
        cut: the text reached its token limit.
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
    for end in ends[:_MAX_ENDS]:
        turn = text[end + len(CLOSING) :].lstrip()
        if _is_whole(turn, method):
            return ParsedCompletion(turn, text[start:end].strip() or None)
    if likely_end is None or (method.thought_tag is not None and _is_whole(text.lstrip(), method)):
        return ParsedCompletion(text)
    completion = _joined(text[start:likely_end], text[likely_end + len(CLOSING) :], method)
    return ParsedCompletion(text) if completion.text == text.lstrip() else completion


def opens_reasoning(prompt_text: str) -> bool:
    """Whether the rendered prompt ends with the opening tag, which the turn then lacks."""
    return prompt_text.rstrip().endswith(OPENING)


def lacks_opening(text: str) -> bool:
    """Whether a reply closes a reasoning that the chat template has opened."""
    first = _NATIVE.search(text)
    return first is not None and first[0] == CLOSING


def with_reasoning(turn: str, reasoning: str | None, *, opened: bool) -> str:
    """A turn in the form of a model with native reasoning, for training: the inverse of `split_reasoning`.

    Args:
        opened: the chat template writes the opening tag, so that a turn without reasoning closes it at once.
    """
    text = turn if reasoning is None else f"{OPENING}\n{reasoning}\n{CLOSING}\n\n{turn}"
    if not opened:
        return text
    if text.startswith(OPENING):
        return text.removeprefix(OPENING).removeprefix("\n")
    return f"\n{CLOSING}\n\n{text}"


def split_thought(text: str, tags: Sequence[str] = (NATIVE_TAG,)) -> tuple[str | None, str]:
    """A thought in one of these tags and the text after it, both stripped. The thought is None without a closing tag.

    For replies without a grammar: the last closing tag counts, and the opening tag may be missing.
    """
    for tag in tags:
        before, closing, after = text.rpartition(f"</{tag}>")
        if closing:
            return before.strip().removeprefix(f"<{tag}>").strip(), after.strip()
    return None, text.strip()


def without_reasoning(reply: str) -> str:
    """The text after the reasoning in a reply without a grammar; empty if the reasoning was cut off."""
    thought, words = split_thought(reply)
    return "" if thought is None and words.startswith(OPENING) else words


# ----------------------------------------------------------------------------------------------------------- internals


def _possible_ends(text: str, start: int, *, is_nested: bool) -> tuple[list[int], int | None]:
    """Closing tags that may end a reasoning that begins at `start`, the best first; and the one that ends it if no
    well-formed turn follows any of them, or None if there may be no reasoning.

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
    """The turn with the reasoning as its thought, or separate from it if the turn has a thought or needs none."""
    tag, turn = method.thought_tag, rest.lstrip()
    if tag is None or _begins_with_thought(turn, tag, method):
        return ParsedCompletion(turn, reasoning.strip() or None)
    thought = _ANY_TAG.sub(r"\1", reasoning)
    return ParsedCompletion(f"<{tag}>{thought}</{tag}>{rest}")


def _is_whole(turn: str, method: Method) -> bool:
    """Whether a text is a well-formed turn that includes its thought."""
    tag = method.thought_tag
    return method.parse(turn).well_formed and (tag is None or _begins_with_thought(turn, tag, method))


def _begins_with_thought(turn: str, tag: str, method: Method) -> bool:
    """Whether a turn has a thought before its calls and its answer."""
    before, opening, _ = turn.partition(f"<{tag}>")
    if not opening or tag == NATIVE_TAG:  # of the same tag any thought further on may be that of a made-up turn
        return bool(opening) and not before.strip()
    done = method.parse(before)
    return not done.calls and done.answer is None and done.summary is None
