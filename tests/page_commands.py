"""Commands that pages tell a user to type, as words."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

REPO = Path(__file__).parents[1]
PAGES = [
    *sorted((REPO / "docs").rglob("*.md")),
    REPO / "README.md",
    REPO / "CONTRIBUTING.md",
    *sorted((REPO / "examples").rglob("README.md")),
]
SEPARATORS = {";", "&&", "||", "|", "&", "(", ")", ";;"}
INLINE = re.compile(r"`((?:[A-Z_]+=\S+ +)*(?:vvt|make|bash|python3?) [^`]+)`")
PLACEHOLDER = "PLACEHOLDER"
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_HEREDOC = re.compile(r"<<-?\s*['\"]?(\w+)['\"]?")


@dataclass(frozen=True)
class Command:
    """A simple command.

    Attributes:
        page: path of the page in the repository.
        variables: names of those that are set for it.
        words: without them.
        whole: it stands in a block of shell; in a line of text, what is needed may be left out.
    """

    page: str
    variables: tuple[str, ...]
    words: tuple[str, ...]
    whole: bool = True

    def __str__(self) -> str:
        return f"{self.page}: {' '.join([*(f'{name}=' for name in self.variables), *self.words])}"


def page_commands() -> list[Command]:
    """Those of all pages, in blocks of shell and in lines of text."""
    found = []
    for path in PAGES:
        text, page = path.read_text(encoding="utf-8"), str(path.relative_to(REPO))
        for block in re.findall(r"^ *```bash\n(.*?)^ *```", text, flags=re.DOTALL | re.MULTILINE):
            found += commands_of(block, page)
        outside = re.sub(r"^ *```.*?^ *```", "", text, flags=re.DOTALL | re.MULTILINE)
        for line in INLINE.findall(outside):
            found += commands_of(line, page, whole=False)
    return found


def commands_of(text: str, page: str = "", whole: bool = True) -> list[Command]:
    """The commands of some lines of shell, those within `$(...)` and arrays among them."""
    arrays: dict[str, list[str]] = {}
    found = []
    for line in _lines(text):
        while inner := re.search(r"\$\(([^()]*)\)", line):
            found += commands_of(inner[1], page, whole)
            line = line.replace(inner[0], PLACEHOLDER)
        for words in _simple(_tokens(line), arrays):
            variables = []
            while words and (match := _ASSIGNMENT.fullmatch(words[0])):
                variables.append(match[1])
                words = words[1:]
            if words:
                found.append(Command(page, tuple(variables), tuple(words), whole))
    return found


def _lines(text: str) -> Iterator[str]:
    """Whole ones: continued, quoted or in brackets over several lines; without here-documents."""
    text = re.sub(r"<[a-zA-Z][^<>\n]*>", PLACEHOLDER, text.replace("\\\n", " "))
    lines = iter(text.splitlines())
    held = ""
    for line in lines:
        held = f"{held}\n{line}" if held else line
        try:
            tokens = _tokens(held)
        except ValueError:  # an open quotation
            continue
        if tokens.count("(") > tokens.count(")"):
            continue
        if heredoc := _HEREDOC.search(held):
            for inner in lines:
                if inner.strip() == heredoc[1]:
                    break
        yield held
        held = ""
    assert not held, f"not closed: {held}"


def _tokens(line: str) -> list[str]:
    lexer = shlex.shlex(line.replace("$(", "("), posix=True, punctuation_chars=";&|()<>")
    lexer.whitespace_split = True
    return list(lexer)


def _simple(tokens: list[str], arrays: dict[str, list[str]]) -> Iterator[list[str]]:
    """Words between separators, without redirections; arrays are noted, and put in where they stand."""
    words: list[str] = []
    rest = iter(tokens)
    for token in rest:
        if token == "(" and words and words[-1].endswith("="):
            inner: list[str] = []
            for part in rest:
                if part == ")":
                    break
                inner.append(part)
            arrays[words.pop().removesuffix("=")] = inner
        elif token in SEPARATORS:
            yield words
            words = []
        elif set(token) <= set("<>&"):
            next(rest, None)
            if words and words[-1] in {"1", "2"}:  # 2>file
                words.pop()
        elif match := re.fullmatch(r"\$\{(\w+)\[@\]\}", token):
            words += arrays.get(match[1], [token])
        else:
            words.append(token)
    yield words
