"""A method with a context policy of its own beside the toolkit's, and what makes it known to `get_method`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from verl_video_tools.methods import toolkit as vt
from verl_video_tools.methods.framethinker import FrameThinker

NAME = "framethinker_context"
NOTE = "You thought: "


@dataclass(frozen=True, kw_only=True)
class FrameThinkerWithContext(FrameThinker):
    """FrameThinker, except for what later turns see."""

    name: ClassVar[str] = NAME

    context: Literal["append", "last_evidence", "initial_plus_last", "notes"] = "last_evidence"

    def context_policy(self) -> vt.ContextPolicy:
        return self.with_notes if self.context == "notes" else getattr(vt, self.context)

    def with_notes(self, dialogue: Sequence[vt.Message]) -> list[vt.Message]:
        """The prompt with the thoughts of all turns, and what answers the last one."""
        system, question, *exchanges = dialogue
        thoughts = [self.parse(vt.content_text(turn.content)).thought for turn in exchanges[::2]]
        notes = "".join(f"\n{NOTE}{thought}" for thought in thoughts)
        return [system, vt.Message("user", (*question.content, notes, *exchanges[-1].content))]


PATH = f"{__name__}:FrameThinkerWithContext"
