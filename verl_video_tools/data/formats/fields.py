"""What annotation files say in their several ways: letters, option lines, times, places of videos, splits."""

from __future__ import annotations

import re
import string
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from verl_video_tools.core.errors import RowError
from verl_video_tools.core.numbers import clock_seconds
from verl_video_tools.core.truths import canonical_letter
from verl_video_tools.core.types import QuestionType
from verl_video_tools.data.formats.entries import (
    LABEL_END,
    LABEL_OPEN,
    NARROW_LETTERS,
    MediaKind,
    find_video,
    without_letters,
)

# Also of a list in Markdown: "- A. text", "**A.** text".
_OPTION_LINE = re.compile(
    rf"\s*(?:[-*\u2022]\s+)?(?:Options?:)?\s*(\*\*)?{LABEL_OPEN}([A-Z\uff21-\uff3a]|[a-z]){LABEL_END}(?(1)\*\*\s*)(.*\S)\s*"
)
_NUMBERED_LINE = re.compile(r"\s*(?:[-*\u2022]\s+)?\(?([1-9]\d?)[.):]\s+(.*\S)\s*")
# What stands below the options and says how to answer, which a method's own prompt does: "Please respond with only the
# letter of the correct answer.", "The best answer is:", "Answer with the option's letter ...".
_INSTRUCTION = re.compile(
    r"\W*(?:(?:please|kindly|answer|respond|reply|choose|select|pick|provide|give|output|state|write|return|indicate|think|only"
    r"|just|directly|do\s+not|don't|you\s+(?:must|should|may|can)|format)\b.*?\b(?:answers?|options?|letters?|choices?|<answer>)"
    r"|(?:answer|respond|reply|output)\b"
    r"|(?:the|your)\s+(?:(?:best|correct|final)\s+)?(?:answer|option|choice)(?:\s+is)?\s*:?\s*\(?\s*$"
    r"|.*(?:\u9009\u9879|\u5b57\u6bcd|\u56de\u7b54|\u7b54\u6848))",
    re.IGNORECASE,
)
_LONE_LETTER = re.compile(r"[(\[]?\s*([A-Z])\s*[)\]]?\s*[.:]?", re.IGNORECASE)
_SEVERAL_LETTERS = re.compile(r"[\s\"'(\[]*[A-Z](?:(?:[\s\"',;/&()\[\]]|\band\b)+[A-Z])+[\s\"')\].]*", re.IGNORECASE)
_OPTIONS_HEADING = re.compile(r"\s*(?:options|choices|candidates)\s*:?\s*", re.IGNORECASE)
_ANSWER_TAG = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)
_BOXED = re.compile(r"\s*\\boxed\{(.*)\}\s*", re.DOTALL)
_THINK_TAGS = re.compile(r"</?think>")
_MEDIA_MARK = re.compile(r"<(?:image|video)>")
_OUTER_MEDIA_MARKS = re.compile(r"\A(?:\s*<(?:image|video)>)+\s*|(?:\s*<(?:image|video)>)+\s*\Z")
_SPLIT = re.compile(r"(?<![a-z])(train|valid(?:ation)?|val|dev|test)(?![a-z])", re.IGNORECASE)


# ------------------------------------------------------------------------------------------------------------- answers


def letter_at(position: Any, options: Sequence[str], field: str) -> str:
    """The letter of an option by its number from 0.

    Raises:
        RowError: there is no such option.
    """
    try:
        number = int(position)
    except (TypeError, ValueError) as error:
        raise RowError(f"the field {field!r} must be the number of an option, got {position!r}") from error
    if not 0 <= number < len(options):
        raise RowError(f"the field {field!r} is {number}, but there are {len(options)} options, counted from 0")
    return string.ascii_uppercase[number]


def letter_of(answer: Any, options: Sequence[str], field: str, *, takes_last: bool = False) -> str:
    """The letter of the first option with this text; a letter in any published form (`B`, `(B)`, `B.`, `b`, `B. text`)
    is that of its option.

    Args:
        takes_last: the last option with this text instead.

    Raises:
        RowError: no option has it.
    """
    text = str(answer).strip()
    texts = [option.strip() for option in options]
    if places := [place for place, option in enumerate(texts) if option == text]:
        return string.ascii_uppercase[places[-1 if takes_last else 0]]
    if _SEVERAL_LETTERS.fullmatch(text) and text.casefold() not in map(str.casefold, texts):
        one = "a question has one right answer: leave it out, or ask for each by itself"
        raise RowError(f"the field {field!r} names several options: {text!r:.80}; {one}")
    letter = canonical_letter(text, options)
    if letter is None:
        raise RowError(f"the field {field!r} is none of the options: {text!r:.80}")
    return letter


def truth_and_type(answer: str, options: Sequence[str]) -> tuple[str, QuestionType]:
    """The truth of a question, and its type, by what its annotations give as the answer.

    It is `mc` with options, or where the answer is nothing but a letter, else `open`.

    Returns:
        As the truth an upper-case letter for `mc`, unless the answer names none of the options; `benchmark_row` refuses
        that.
    """
    if options:
        return canonical_letter(answer, options) or answer, "mc"
    lone = _LONE_LETTER.fullmatch(answer.strip())
    return (lone[1].upper(), "mc") if lone else (answer, "open")


def listed_options(options: Any, field: str) -> list[str]:
    """The texts of a list of options, without the letters that they may all begin with.

    Raises:
        RowError: it is no list, or there are fewer than two.
    """
    if isinstance(options, str) or not isinstance(options, Sequence) or len(options) < 2:
        raise RowError(f"the field {field!r} must list the options, at least two, got {options!r:.80}")
    return without_letters(options)


def lettered_options(options: Any, field: str) -> list[str]:
    """The texts of options that stand under their letters, in the order of these.

    Raises:
        RowError: the letters are not A, B, C, ...
    """
    if not isinstance(options, dict) or not options:
        raise RowError(f"the field {field!r} must hold the options by their letters, got {options!r:.80}")
    by_letter = {str(letter): text for letter, text in options.items() if text is not None}
    letters = sorted(by_letter)
    if "".join(letters) != string.ascii_uppercase[: len(letters)]:
        raise RowError(f"the field {field!r} must have the letters A, B, C, ..., got {', '.join(letters)}")
    return [str(by_letter[letter]).strip() for letter in letters]


def split_options(text: str) -> tuple[str, list[str]]:
    """Question and options of a text that ends with a line for each option: ``A. text``, ``(A) text`` or ``A: text``.

    Lines below the options that say how to answer are left out; what a method wants is in its prompt.

    Returns:
        The text as it is, and no options, where it does not end so.
    """
    lines = text.rstrip().splitlines()
    matches = [_OPTION_LINE.fullmatch(line) for line in lines]
    labels = [match[2].translate(NARROW_LETTERS) if match else "" for match in matches]
    firsts = [(number, label) for number, label in enumerate(labels) if label in ("A", "a")]
    for start, first in reversed(firsts):
        options: list[str] = []
        letters = string.ascii_uppercase if first == "A" else string.ascii_lowercase
        for letter, label, match in zip(letters, labels[start:], matches[start:], strict=False):
            if match is None or label != letter:
                break
            options.append(match[3])
        below = lines[start + len(options) :]
        if len(options) >= 2 and not _without_instructions(below):
            question = lines[:start]
            if question and _OPTIONS_HEADING.fullmatch(question[-1]):
                question.pop()
            return "\n".join(question).strip(), options
    return text.strip(), []


def letter_numbered_options(text: str, answer: str) -> tuple[str, str]:
    """Question and answer with letters in the place of numbers, where a line ``1. text``, ``2. text``, ... for each
    option ends the question, and the answer is one of these numbers; else as they are."""
    lines = text.rstrip().splitlines()
    matches = [_NUMBERED_LINE.fullmatch(line) for line in lines]
    firsts = [place for place, match in enumerate(matches) if match and match[1] == "1"]
    if not firsts or not answer.isdecimal():
        return text, answer
    options: list[str] = []
    for match in matches[firsts[-1] :]:
        if match is None or match[1] != str(len(options) + 1):
            break
        options.append(match[2])
    below = lines[firsts[-1] + len(options) :]
    if not 2 <= len(options) <= 26 or not 1 <= int(answer) <= len(options) or _without_instructions(below):
        return text, answer
    lettered = [f"{letter}. {option}" for letter, option in zip(string.ascii_uppercase, options, strict=False)]
    return "\n".join(lines[: firsts[-1]] + lettered), string.ascii_uppercase[int(answer) - 1]


def _without_instructions(lines: Sequence[str]) -> list[str]:
    """Without those at the end that say how to answer, or nothing."""
    others = list(lines)
    while others and (not others[-1].strip() or _INSTRUCTION.match(others[-1])):
        others.pop()
    return others


def question_of_text(text: str, answer: str) -> dict[str, Any]:
    """Of a question with its option lines, if it has any, and of its answer, tagged or not: what `benchmark_row` takes
    as `question`, `options`, `truth` and `question_type`."""
    question, answer = letter_numbered_options(without_media_marks(text), tagged_answer(answer))
    question, options = split_options(question)
    truth, question_type = truth_and_type(answer, options)
    return {"question": question, "options": options, "truth": truth, "question_type": question_type}


def without_media_marks(text: str) -> str:
    """A text without the marks `<image>` and `<video>`, which stand for what it is about."""
    return _MEDIA_MARK.sub("", text)


def without_outer_marks(text: str) -> str:
    """A text without the marks `<image>` and `<video>` before and after it."""
    return _OUTER_MEDIA_MARKS.sub("", text)


def tagged_answer(text: Any) -> str:
    """What stands between answer tags or in a box, or the whole text where there are none."""
    match = _ANSWER_TAG.search(str(text)) or _BOXED.fullmatch(str(text))
    return (match[1] if match else str(text)).strip()


def reasoning_turn(reasoning: str, answer: str) -> str:
    """A turn that thinks and answers, from texts that may stand between their tags already.

    Raises:
        RowError: there is no reasoning.
    """
    thought = _THINK_TAGS.sub("", reasoning).strip()
    if not thought:
        raise RowError("there is no reasoning to learn")
    return f"<think>{thought}</think>\n<answer>{tagged_answer(answer)}</answer>"


# --------------------------------------------------------------------------------------------------------------- times


def segment(start: Any, end: Any) -> tuple[float, float] | None:
    """A segment in seconds; None where it is not one, with an end after its start."""
    first, last = clock_seconds(start), clock_seconds(end)
    return (first, last) if first is not None and last is not None and first < last else None


# --------------------------------------------------------------------------------------------------------------- files


def find_first_video(folder: Path | None, names: Sequence[str], kind: MediaKind = "video") -> Path:
    """The first of several places that has the video, or image.

    Raises:
        RowError: none has.
    """
    for name in names[:-1]:
        try:
            return find_video(folder, name, kind)
        except RowError:
            continue
    return find_video(folder, names[-1], kind)


def with_slashes(path: str) -> str:
    """A path with slashes where it was written on Windows: ``videos\\a.mp4``."""
    return path if "/" in path else path.replace("\\", "/")


def find_moved_video(folder: Path | None, path: str, kind: MediaKind = "video") -> Path:
    """A video, or image, by a path on another machine: the longest end of it that lies in the folder.

    Raises:
        RowError: not even a file of its name does.
    """
    path_elsewhere = PurePosixPath(with_slashes(path.removeprefix("file://")))
    parts = [part for part in path_elsewhere.parts if part not in ("/", ".", "..")]
    if not parts:
        raise RowError(f"no {kind} is named by {path!r}")
    return find_first_video(folder, ["/".join(parts[start:]) for start in range(len(parts))], kind)


def split_name(annotations: Path, default: str) -> str:
    """`train`, `val` or `test` where the name of the annotation file says so."""
    match = _SPLIT.search(annotations.stem.replace("_", " "))
    if match is None:
        return default
    name = match[1].lower()
    return "val" if name in ("valid", "validation", "dev") else name
