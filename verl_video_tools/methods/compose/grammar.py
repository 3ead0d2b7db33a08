"""The grammar of a composition: how turns are read, and what the prompt says about calls."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from verl_video_tools.methods import toolkit as vt
from verl_video_tools.methods.longvt.method import is_well_formed
from verl_video_tools.methods.toolkit import hermes

GRAMMARS = {"hermes": f"{__name__}:Hermes"}
"""Python paths of grammars by name."""


@dataclass(frozen=True, kw_only=True)
class Hermes:
    """Native tool calls of Qwen's chat templates (`methods.toolkit.hermes`). Another grammar is a subclass.

    Attributes:
        max_calls_per_turn: calls of one turn that are executed; further ones are refused (`multiple_calls`).
    """

    thought_tag: ClassVar[str | None] = "think"

    max_calls_per_turn: int = 5

    def __post_init__(self) -> None:
        vt.require(self, "max_calls_per_turn", self.max_calls_per_turn >= 1, "at least 1")

    def parse(self, text: str) -> vt.ParsedTurn:
        """As `Method.parse`: takes any text and never raises."""
        return vt.refuse_surplus_calls(hermes.parse_turn(text), self.max_calls_per_turn)

    def is_in_form(self, trajectory: vt.Trajectory) -> bool:
        """LongVT's format: one call in every turn but the last; an answer at once has no words around its blocks."""
        return is_well_formed(trajectory)

    def how_to_call(self, tools: Iterable[vt.ToolDescription]) -> str:
        """What the prompt says about the tools and the form of a call."""
        return hermes.tools_section(
            [hermes.tool_schema(tool.name, tool.description, tool.parameters, tool.optional) for tool in tools]
        )
