"""First stage: an answer without reasoning, markup and odd forms of letters; and what it sets apart as its answer."""

from __future__ import annotations

import html
import re
import unicodedata
from dataclasses import dataclass
from typing import Any

from verl_video_tools.core.json_text import located_json_objects

QUOTES = "\"'\u201c\u201d\u201e\u2018\u2019\u00ab\u00bb"
CJK = "[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3]"
"""A character of Japanese, Chinese or Korean, which are written without a space beside a letter."""

_SPECIAL_TOKEN = re.compile(r"<\|[^<>|\s]{1,40}\|>|</s>|[\u200b-\u200f\u2060\ufeff\ue000-\uf8ff\ufe0e\ufe0f]")
_REASONING_END = re.compile(r"</(?:think|thinking|thought|reasoning|analysis)>", re.IGNORECASE)
_REASONING_START = re.compile(r"\s*<(?:think|thinking|thought|reasoning|analysis)>", re.IGNORECASE)
_TAG = re.compile(r"<(?:final_?)?answer>(.*?)(?:</(?:final_?)?answer>|\Z)", re.IGNORECASE | re.DOTALL)
_BOX = re.compile(r"\\f?boxed\s*\{")
_BRACE_OR_LINE = re.compile(r"[{}\n]")
_ANSWER_FIELD = re.compile(
    r"(?:(?:my|your|the|model|final|correct|best|selected|chosen|right)?"
    r"(?:answer|choice|option|letter|prediction|selection|response)(?:letter|choice|option)?|ans|pred|答案|정답|답|答え)\d*"
)
_TEXT_FIELD = re.compile(r"(?:(?:answer|option|choice|selected)?(?:text|content|value|label))|description")

_ARROW = re.compile(
    r"\\(?:right|Right|long|Long)*(?:rightarrow|implies|to)(?![a-zA-Z])|(?<![=-])[=-]{1,4}>|[\u2190-\u21ff\U0001f449]"
)
_COMMAND = re.compile(r"\\(?:[a-zA-Z]+\*?|[()\[\]])")
_ESCAPED = re.compile(r"\\([^\w\s])")
_FENCE = re.compile(r"^[ \t]*`{3}\w*[ \t]*$", re.MULTILINE)
_HTML = re.compile(
    r"</?(?:b|strong|i|em|u|p|code|span|div|br|final_?answer|answer)(?:\s[^<>\n]{0,100})?/?>", re.IGNORECASE
)
_ANGLED_LETTER = re.compile(r"<([A-Z])>(?![^<]*</)")
_SYMBOL = re.compile("[\u2600-\u27bf\U0001f000-\U0001faff\u2b50\u25a0-\u25ff]")
_VERDICT = re.compile("(?P<right>[\u2705\u2713\u2714\u2611])|[\u274c\u2717\u2718\u2716\u274e]")
_LABEL_CHARACTERS = 8
"""At most as many marks of lists and spaces are looked for before a check mark that begins a line."""
_CJK_MARKS = str.maketrans(
    {"\u2212": "-", "。": ". ", "、": ", ", "【": " [", "】": "] ", "「": ' "', "」": '" ', "『": ' "', "』": '" '}
)
_LINE_START = re.compile(r"^[ \t]*(?:[#>*+\u2022-]+[ \t]+)*(?:\d{1,2}[.)][ \t]+(?=[^\W\d]|[(*]))?(?=\S)", re.MULTILINE)
_ENCLOSED_LETTER = re.compile(
    r"(?<![^\W_])[*_`\"\u201c\u201d\u201e\u00ab\[({<]{1,8} ?([A-Za-z]) ?[.:)]? ?[*_`\"\u201c\u201d\u00bb\])}>]{1,8}"
)
_QUOTED_LETTER = re.compile(r"(?<![^\W_])['\u2018\u2019]([A-Za-z])[.:)]?['\u2018\u2019](?![^\W_])")
_EMPHASIS = re.compile(
    r"[*`\"\u201c\u201d\u201e\u00ab\u00bb~]+|(?<![^\W_])[_'\u2018\u2019]+|[_'\u2018\u2019]+(?![^\W_])"
)
_PLURAL = re.compile(r"(?<=[^\W\d_])\([a-z]{1,3}\)")


@dataclass(frozen=True)
class Cleaned:
    """An answer in the parts that the rules read, each without markup.

    Attributes:
        given: what stands in boxes, tags or JSON fields made for the answer, from left to right.
        before, after: the words before the first of these and after the last; with none, `before` is the whole text.
    """

    given: tuple[str, ...]
    before: str
    after: str


def cleaned(answer: str) -> Cleaned:
    """Take an answer apart."""
    text = _SPECIAL_TOKEN.sub(" ", html.unescape(answer))
    text = unicodedata.normalize("NFKC", _after_reasoning(text))
    tags = [(match[1], match.start(), match.end()) for match in _TAG.finditer(text)]
    found = tags or _fields(text) or boxes(text)
    if not found:
        return Cleaned((), unwrapped(text), "")
    fields = [field for content, _, _ in found for field, _, _ in _fields(content) or [(content, 0, 0)]]
    given = [part for field in fields for part, _, _ in boxes(field) or [(field, 0, 0)]]
    before, after = text[: found[0][1]], text[found[-1][2] :]
    return Cleaned(tuple(map(unwrapped, given)), unwrapped(before), unwrapped(after))


def unwrapped(text: str) -> str:
    """The words without markup; a letter in quotes, brackets or bold print comes out as ``(B)``."""
    if not text.strip():
        return ""
    text = unicodedata.normalize("NFKC", text).translate(_CJK_MARKS)
    text = _FENCE.sub("", _ARROW.sub(" \u2192 ", _VERDICT.sub(_verdict, text)))
    text = _HTML.sub(" ", _ANGLED_LETTER.sub(r"(\1)", _COMMAND.sub(" ", text.replace("\\\\", "\n"))))
    text = re.sub(r"[{}$]", " ", _ESCAPED.sub(r"\1", text))
    # Single spaces and line breaks keep every later pattern linear on a policy that writes nothing but white space.
    text = re.sub(r"(?: ?\n ?)+", "\n", re.sub(r"[^\S\n]+", " ", _SYMBOL.sub(" ", text))).strip()
    text = _LINE_START.sub("", text)
    for pattern in (_QUOTED_LETTER, _ENCLOSED_LETTER):
        text = pattern.sub(lambda match: f" ({match[1].upper()}) ", text)
    text = _EMPHASIS.sub(" ", _PLURAL.sub("", text))
    text = re.sub(rf"(?<={CJK})(?=[A-Za-z(])|(?<=[A-Za-z)])(?={CJK})", " ", text)
    return re.sub(r"(?: ?\n ?)+", "\n", re.sub(" {2,}", " ", text)).strip()


def _verdict(mark: re.Match[str]) -> str:
    """A check mark or cross as a word; at the beginning of a line it speaks of what follows."""
    word = "correct" if mark["right"] else "incorrect"
    line = mark.string.rfind("\n", max(mark.start() - _LABEL_CHARACTERS, 0), mark.start()) + 1
    leads = (line or mark.start() <= _LABEL_CHARACTERS) and not re.search(r"\w", mark.string[line : mark.start()])
    return f" {word} " if leads else f", {word}, "


def _after_reasoning(text: str) -> str:
    """What follows the reasoning; nothing where it was cut off."""
    ends = [match.end() for match in _REASONING_END.finditer(text)]
    if ends:
        return text[ends[-1] :]
    return "" if _REASONING_START.match(text) else text


def boxes(text: str) -> list[tuple[str, int, int]]:
    """What outermost boxes hold, and where each begins and ends; an open one reaches to the end of its line."""
    found, position = [], 0
    while box := _BOX.search(text, position):
        depth, end = 1, len(text)
        for mark in _BRACE_OR_LINE.finditer(text, box.end()):
            depth += {"{": 1, "}": -1}.get(mark[0], 0)
            if depth == 0 or mark[0] == "\n":
                end = mark.start()
                break
        position = min(end + 1, len(text))
        found.append((text[box.end() : end], box.start(), position))
    return found


def _fields(text: str) -> list[tuple[str, int, int]]:
    """The values of the fields of JSON objects that are named for an answer, each with the option's text beside it."""
    fields = []
    for found, start, end in located_json_objects(text):
        values = {re.sub(r"[\s_-]", "", name).casefold(): value for name, value in found.items()}
        texts = [_spoken(value) for name, value in values.items() if _TEXT_FIELD.fullmatch(name)]
        for name, value in values.items():
            if _ANSWER_FIELD.fullmatch(name):
                fields.append((". ".join([_spoken(value), *texts]), start, end))
    return fields


def _spoken(value: Any) -> str:
    """A value of JSON as words: a list as its items one after the other, an object as its values."""
    if isinstance(value, dict):
        return ". ".join(_spoken(item) for item in value.values())
    if isinstance(value, list):
        return ", ".join(_spoken(item) for item in value)
    return "" if value is None else str(value)
