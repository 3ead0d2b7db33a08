"""Grammars of a composition: how turns are read and written."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from verl_video_tools.methods import toolkit as vt
from verl_video_tools.methods.compose.parts import OfferedTool
from verl_video_tools.methods.longvt.method import is_well_formed
from verl_video_tools.methods.toolkit import hermes

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
    """A thought, then one call or the answer, each between tags that the composition chooses; a call is a JSON object
    with `name` and `arguments`.

    Tags inside thoughts are ignored. Several calls in one turn are all refused (`multiple_calls`). A turn that holds a
    call does not answer, because its answer was written without the frames. Of several answers the last counts.

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
        thoughts = vt.find_blocks(text, self.thought)
        thought = thoughts[0].inner.strip() if thoughts else None
        outside = vt.without_blocks(text, thoughts)
        calls = tuple(
            hermes.read_call(block.inner, takes_parameters=False) for block in vt.find_blocks(outside, self.call)
        )
        if len(calls) > 1:
            message = f"{len(calls)} calls in one turn; write exactly one <{self.call}>"
            error = vt.CallError(vt.CallErrorCode.MULTIPLE_CALLS, message)
            return vt.ParsedTurn(thought, tuple(replace(call, error=error) for call in calls))
        if calls:
            is_good = calls[0].error is None and self._is_in_order(text, thoughts, vt.find_blocks(text, self.call))
            return vt.ParsedTurn(thought, calls, well_formed=is_good)
        answers = vt.find_blocks(outside, self.answer)
        answer = answers[-1].inner.strip() if answers else ""
        is_good = bool(answer) and self._is_in_order(text, thoughts, vt.find_blocks(text, self.answer))
        return vt.ParsedTurn(thought, answer=answer or None, well_formed=is_good)

    def _is_in_order(self, text: str, thoughts: Sequence[vt.Block], actions: Sequence[vt.Block]) -> bool:
        """Whether a turn is one thought that says something, then one action, and no other tag."""
        names = (self.thought, self.call, self.answer)
        num_tags = sum(text.count(f"<{slash}{name}>") for name in names for slash in ("", "/"))
        if len(thoughts) != 1 or len(actions) != 1 or num_tags != 4:
            return False
        return bool(thoughts[0].inner.strip()) and thoughts[0].end <= actions[0].start

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
