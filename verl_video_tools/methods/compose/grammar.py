"""Grammars of a composition: how turns are read and written."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from verl_video_tools.methods import toolkit as vt
from verl_video_tools.methods.compose.parts import OfferedTool
from verl_video_tools.methods.longvt.method import is_well_formed
from verl_video_tools.methods.toolkit import hermes
from verl_video_tools.methods.videobrain import grammar as videobrain

GRAMMARS = {"hermes": f"{__name__}:Hermes", "tags": f"{__name__}:Tags"}
"""Python paths of grammars by name. A new grammar is one entry."""


@dataclass(frozen=True, kw_only=True)
class Grammar(ABC):
    """How turns are read and written. Its fields are the keys of the section `grammar`."""

    messages: ClassVar[Mapping[str, str]] = {}
    """Texts of messages that go with the grammar, by the names of `compose.method.TEMPLATES`."""

    @property
    def thought_tag(self) -> str | None:
        """Tag of a turn's thought."""
        return "think"

    @abstractmethod
    def parse(self, text: str) -> vt.ParsedTurn:
        """As `Method.parse`: takes any text and never raises."""

    def is_in_form(self, trajectory: vt.Trajectory) -> bool:
        """Whether a rollout answers and each of its turns follows the grammar to the letter."""
        answered = trajectory.stop_reason is vt.StopReason.ANSWER
        return answered and all(turn.well_formed for turn in trajectory.turns)

    @abstractmethod
    def how_to_call(self, tools: Sequence[OfferedTool]) -> str:
        """What the prompt says about the tools and the form of a call."""

    @abstractmethod
    def write_call(self, thought: str, name: str, arguments: Mapping[str, Any]) -> str:
        """A turn that calls one tool."""

    @abstractmethod
    def write_answer(self, thought: str, answer: str) -> str:
        """A turn that answers."""


@dataclass(frozen=True, kw_only=True)
class Hermes(Grammar):
    """Native tool calls of Qwen's chat templates: `methods.toolkit.hermes`.

    Attributes:
        max_calls_per_turn: calls of one turn that are carried out; further ones are refused (`multiple_calls`).
    """

    messages: ClassVar[Mapping[str, str]] = {
        "observation": "<tool_response>\n{frames}\n</tool_response>",
        "result": "<tool_response>\n{text}\n</tool_response>",
        "refusal": "<tool_response>\nError: {error}\n</tool_response>",
    }

    max_calls_per_turn: int = 5

    def __post_init__(self) -> None:
        vt.require(self, "max_calls_per_turn", self.max_calls_per_turn >= 1, "at least 1")

    def parse(self, text: str) -> vt.ParsedTurn:
        return vt.refuse_surplus_calls(hermes.parse_turn(text), self.max_calls_per_turn)

    def is_in_form(self, trajectory: vt.Trajectory) -> bool:
        """As LongVT's format: one call in every turn but the last; an answer at once has no words around its blocks."""
        return is_well_formed(trajectory)

    def how_to_call(self, tools: Sequence[OfferedTool]) -> str:
        return hermes.tools_section(
            [hermes.tool_schema(tool.name, tool.about, tool.parameters, tool.description.optional) for tool in tools]
        )

    def write_call(self, thought: str, name: str, arguments: Mapping[str, Any]) -> str:
        call = json.dumps({"name": name, "arguments": dict(arguments)})
        return f"<think>{thought}</think>\n<tool_call>\n{call}\n</tool_call>"

    def write_answer(self, thought: str, answer: str) -> str:
        return f"<think>{thought}</think>\n<answer>{answer}</answer>"


@dataclass(frozen=True, kw_only=True)
class Tags(Grammar):
    """VideoBrain's grammar with other tags: a thought, then one call or the answer, each between tags that the
    composition chooses; a call is a JSON object with `name` and `arguments`.

    Attributes:
        thought, call, answer: names of the tags.
    """

    thought: str = "think"
    call: str = "tool_call"
    answer: str = "answer"

    def __post_init__(self) -> None:
        tags = (self.thought, self.call, self.answer)
        for name, tag in zip(("thought", "call", "answer"), tags, strict=True):
            vt.require(self, name, tag.isidentifier(), "a word of letters, digits and underscores")
        vt.require(self, "answer", len(set(tags)) == 3, f"another tag than the other two, {self.thought}, {self.call}")

    @property
    def thought_tag(self) -> str | None:
        return self.thought

    def parse(self, text: str) -> vt.ParsedTurn:
        return videobrain.parse_turn(text, (self.thought, self.call, self.answer))

    def how_to_call(self, tools: Sequence[OfferedTool]) -> str:
        lines = [
            f'<{self.call}>{{"name": "{tool.name}", "arguments": {{{_listed(tool)}}}}}</{self.call}>\n{tool.about}'
            + "".join(f"\n- {name} ({kind}): {text}" for name, (kind, text) in tool.parameters.items())
            for tool in tools
        ]
        return f"A call is a JSON object between <{self.call}> and </{self.call}>:\n\n" + "\n\n".join(lines)

    def write_call(self, thought: str, name: str, arguments: Mapping[str, Any]) -> str:
        call = json.dumps({"name": name, "arguments": dict(arguments)})
        return f"<{self.thought}>{thought}</{self.thought}><{self.call}>{call}</{self.call}>"

    def write_answer(self, thought: str, answer: str) -> str:
        return f"<{self.thought}>{thought}</{self.thought}><{self.answer}>{answer}</{self.answer}>"


def _listed(tool: OfferedTool) -> str:
    return ", ".join(f'"{name}": {name.upper()}' for name in tool.parameters)
