"""Write docs/formats.md from the readers of published data: python docs/make_formats.py."""

from __future__ import annotations

import re
from pathlib import Path

from verl_video_tools.cli.list_names import Kind, texts_of

PAGE = Path(__file__).parent / "formats.md"
HEAD = """# Published formats

<!-- Written by docs/make_formats.py -->

What `vvt data convert --from` and `vvt eval --benchmark` read: files, fields, and where the format was read from.
`vvt list formats NAME` prints the same. [Data](data.md#published-formats) has the command, and links to the data sets.
"""
_ADDRESS = re.compile(r"(?<![\w/`])(github\.com|huggingface\.co)(/[\w.-]+)+[\w]")
_ARXIV = re.compile(r"arXiv (\d{4}\.\d{5})")


def page() -> str:
    """The text of docs/formats.md."""
    sections = [HEAD]
    for name, (_, text) in texts_of(Kind.FORMATS).items():
        about, _, facts = text.rpartition("\n\n") if re.search(r"\n\n(\w+: .+\n?)+$", text) else (text, "", "")
        sections += [f"## {name}\n", _linked(about.rstrip()) + "\n"]
        if facts:
            sections += [*(f"- {_fact(line)}" for line in facts.splitlines()), ""]
    return "\n".join(sections)


def _fact(line: str) -> str:
    name, _, value = line.partition(": ")
    return f"{name}: {value}" if " " in value.replace(", ", "") else f"{name}: `{value.replace(', ', '`, `')}`"


def _linked(text: str) -> str:
    text = _ARXIV.sub(r"[arXiv \1](https://arxiv.org/abs/\1)", text)
    return _ADDRESS.sub(r"[\g<0>](https://\g<0>)", text)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
