"""Names that the command line takes, each with its description."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from enum import StrEnum


class Kind(StrEnum):
    """Kinds of names."""

    METHODS = "methods"
    BENCHMARKS = "benchmarks"
    FORMATS = "formats"
    PROTOCOLS = "protocols"
    EXTRACTORS = "extractors"


def names_of(kind: str) -> Callable[[str], list[str]]:
    """For `typer.Option(autocompletion=...)`: the names of a kind that start with what is typed."""

    def complete(incomplete: str) -> list[str]:
        return [name for name in texts_of(Kind(kind)) if name.startswith(incomplete)]

    return complete


Texts = Mapping[str, tuple[str, str]]
"""The description of each name, in a line and in full."""


def texts_of(kind: Kind) -> Texts:
    """The names of a kind."""
    return _NAMES[kind]()


def _methods() -> Texts:
    from verl_video_tools.methods import method_class, method_names

    texts = {name: inspect.getdoc(sys.modules[method_class(name).__module__]) or "" for name in method_names()}
    return {name: (_first_paragraph(text), text) for name, text in texts.items()}


def _benchmarks() -> Texts:
    from verl_video_tools.data.formats import BENCHMARK_NAMES

    return _readers(BENCHMARK_NAMES)


def _formats() -> Texts:
    from verl_video_tools.data.formats import SOURCE_NAMES
    from verl_video_tools.data.table import Table

    text = _about(Table)
    return {Table.name: (_first_paragraph(text), text), **_readers(SOURCE_NAMES)}


def _readers(names: tuple[str, ...]) -> Texts:
    """Each reader's docstring, with its split, extractor, groups and subtitles."""
    from verl_video_tools.data.formats import get_source

    texts = {}
    for name in names:
        reader = get_source(name)
        by_file = getattr(reader, "has_split_in_file_name", False)
        facts = {
            "Split": "by the name of the file" if by_file else getattr(reader, "split", None),
            "Extractor": reader.published_extractor,
            "Groups": ", ".join(reader.groupings),
            "Subtitles": "before the question" if reader.takes_subtitles else None,
        }
        about = _about(type(reader))
        extractor = f" [{reader.published_extractor}]" if reader.published_extractor else ""
        lines = [f"{fact}: {value}" for fact, value in facts.items() if value]
        texts[name] = (_first_paragraph(about) + extractor, "\n".join([about, "", *lines]).rstrip())
    return texts


def _protocols() -> Texts:
    from verl_video_tools.evaluation.protocols import PROTOCOLS, described

    return {name: (protocol.about, described(protocol)) for name, protocol in PROTOCOLS.items()}


def _extractors() -> Texts:
    from verl_video_tools.data.extractors import EXTRACTORS, get_extractor

    rules = {name: get_extractor(name).rule for name in EXTRACTORS}
    return {name: (rule, rule) for name, rule in rules.items()}


_NAMES: dict[Kind, Callable[[], Texts]] = {
    Kind.METHODS: _methods,
    Kind.BENCHMARKS: _benchmarks,
    Kind.FORMATS: _formats,
    Kind.PROTOCOLS: _protocols,
    Kind.EXTRACTORS: _extractors,
}


def _about(reader: type) -> str:
    """A reader's docstring, or its module's where the docstring only refers to the module."""
    text = inspect.getdoc(reader) or ""
    return (inspect.getdoc(sys.modules[reader.__module__]) or "") if text.lower().endswith("see the module.") else text


def _first_paragraph(text: str) -> str:
    return " ".join(text.partition("\n\n")[0].split())
