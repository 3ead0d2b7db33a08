"""Forms that a teacher's dialogues are to take: given as instructions, drawn by shares, and checked on what was done.

FrameThinker's cold start has five (arXiv 2509.24304, F.2). A file of templates is TOML, one table for each, whose keys
are the fields of `DialogueTemplate`; a method may have one in its folder (`FILE`).
"""

from __future__ import annotations

import random
import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Literal

from verl_video_tools.core.config import checked_fields, require
from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.prompts import file_beside
from verl_video_tools.core.types import CallRecord, Trajectory
from verl_video_tools.methods import METHOD_NAMES, method_class

FILE = "dialogue_templates.toml"
"""Beside the module of a method that has templates."""

_TIME = re.compile(r"\d+:\d{2}")


@dataclass(frozen=True, kw_only=True)
class DialogueTemplate:
    """One form of a dialogue.

    Raises:
        UsageError: a value outside its range.
    """

    name: str
    share: float = 1.0
    """In proportion to the shares of the other templates."""
    instruction: str = ""
    """Appended to the method's system prompt."""
    calls: tuple[str, ...] | None = None
    """Names of the calls that the dialogue makes, in order; None: any."""
    segments: Literal["inside", "apart"] | None = None
    """How the second of two segments lies to the first, by `start_frame` and `end_frame` of the calls: inside it and
    shorter, or without overlap."""
    needs_time: bool = False
    """Only for questions that name a time such as 0:34."""

    def __post_init__(self) -> None:
        require(self, "share", self.share >= 0.0, "at least 0")
        segments = self.calls is not None and len(self.calls) >= 2
        require(self, "segments", self.segments is None or segments, "left out where there are no two calls")

    def suits(self, question: str) -> bool:
        """Whether a question can be answered in this form."""
        return self.share > 0.0 and (not self.needs_time or _TIME.search(question) is not None)

    def fault(self, trajectory: Trajectory) -> str | None:
        """How a dialogue departs from this form; None where it keeps to it."""
        if self.calls is None:
            return None
        calls = trajectory.calls()
        if refused := [call.name for call in calls if not call.ok]:
            return f"a call was not carried out: {refused[0]}"
        if (made := tuple(call.name for call in calls)) != self.calls:
            return f"calls {_listed(made)} instead of {_listed(self.calls)}"
        return None if self.segments is None else self._segments_fault(calls)

    def _segments_fault(self, calls: Sequence[CallRecord]) -> str | None:
        segments = [(call.arguments["start_frame"], call.arguments["end_frame"]) for call in calls if _is_segment(call)]
        if len(segments) != 2:
            return f"{len(segments)} segments instead of 2"
        (start, end), (next_start, next_end) = segments
        inside = start <= next_start and next_end <= end and (start, end) != (next_start, next_end)
        disjoint = next_end <= start or end <= next_start
        if inside if self.segments == "inside" else disjoint:
            return None
        return f"segment {next_start} to {next_end} is not {self.segments} {start} to {end}"


def load_templates(source: str) -> tuple[DialogueTemplate, ...]:
    """The templates of a file, or those packaged for a method, by its name.

    Raises:
        UsageError: there are none, or they cannot be read.
    """
    path: Path | Traversable = Path(source)
    if source in METHOD_NAMES and (packaged := file_beside(method_class(source), FILE)).is_file():
        path = packaged
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(
            f"cannot read templates from {source}: {error}; give a TOML file, or a method that has some (framethinker)"
        ) from error
    if not tables or not all(isinstance(table, dict) for table in tables.values()):
        raise UsageError(f"{source}: a file of templates has a table for each, such as [A]")
    templates = []
    for name, table in tables.items():
        fields = {**table, "name": name, "instruction": str(table.get("instruction", "")).strip()}
        templates.append(DialogueTemplate(**checked_fields(DialogueTemplate, fields)))
    return tuple(templates)


def draw_templates(
    templates: Sequence[DialogueTemplate], questions: Sequence[str], seed: int
) -> list[DialogueTemplate]:
    """A template for a dialogue about each question, drawn by the shares of those that suit it.

    Raises:
        UsageError: none suits one of the questions.
    """
    rng = random.Random(seed)
    drawn = []
    for question in questions:
        suited = [template for template in templates if template.suits(question)]
        if not suited:
            raise UsageError(f"no template with a share suits the question {question[:80]!r}")
        drawn += rng.choices(suited, [template.share for template in suited])
    return drawn


def _is_segment(call: CallRecord) -> bool:
    return {"start_frame", "end_frame"} <= call.arguments.keys()


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"
