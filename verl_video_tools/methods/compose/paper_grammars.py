"""The grammars of three papers that have words of their own for their tools, as a composition names them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from verl_video_tools.methods import toolkit as vt
from verl_video_tools.methods.compose.grammar import Grammar
from verl_video_tools.methods.compose.tools import OfferedTool
from verl_video_tools.methods.framemind import grammar as framemind
from verl_video_tools.methods.framethinker import grammar as framethinker
from verl_video_tools.methods.videozoomer import grammar as videozoomer


@dataclass(frozen=True, kw_only=True)
class FrameThinkerGrammar(Grammar):
    """One action of plain words in a turn: `methods.framethinker.grammar`."""

    callable_tools: ClassVar[frozenset[str] | None] = frozenset(
        {framethinker.CHOOSE_FRAMES, framethinker.GET_FRAME_NUMBER}
    )
    messages: ClassVar[Mapping[str, str]] = {
        "observation": "{frames}",
        "result": "{text}",
        "refusal": "The action was refused: {error}",
    }

    def parse(self, text: str) -> vt.ParsedTurn:
        return framethinker.parse_turn(text)

    def how_to_call(self, tools: Sequence[OfferedTool]) -> str:
        forms = {
            framethinker.CHOOSE_FRAMES: "choose frames between START and END",
            framethinker.GET_FRAME_NUMBER: "get frame number at time MM:SS",
        }
        lines = [f"{forms[tool.name]}\n{tool.about}" for tool in tools]
        return "An action stands between <action> and </action>, word for word:\n\n" + "\n\n".join(
            [*lines, "output answer: ANSWER\nEnds with your answer."]
        )

    def write_call(self, thought: str, name: str, arguments: Mapping[str, Any]) -> str:
        if name == framethinker.GET_FRAME_NUMBER:
            action = f"get frame number at time {arguments['time']}"
        else:
            action = f"choose frames between {arguments['start_frame']} and {arguments['end_frame']}"
        return f"<think>{thought}</think><action>{action}</action>"

    def write_answer(self, thought: str, answer: str) -> str:
        return f"<think>{thought}</think><action>output answer: {answer}</action>"


@dataclass(frozen=True, kw_only=True)
class VideoZoomerGrammar(Grammar):
    """One request for a zoom in a turn, which it ends: `methods.videozoomer.grammar`."""

    callable_tools: ClassVar[frozenset[str] | None] = frozenset({videozoomer.VIDEO_ZOOM})
    messages: ClassVar[Mapping[str, str]] = {
        "observation": "<tool_response>\n{frames}\n</tool_response>",
        "refusal": "<tool_response>\nError: {error}\n</tool_response>",
    }

    @property
    def stop(self) -> tuple[str, ...]:
        return (videozoomer.STOP,)

    def parse(self, text: str) -> vt.ParsedTurn:
        return videozoomer.parse_turn(text)

    def how_to_call(self, tools: Sequence[OfferedTool]) -> str:
        (zoom,) = tools
        return (
            "A zoom names a segment by its start and end in seconds, and a rate in frames per second:\n"
            f'<video_zoom>{{"segment": [START, END], "fps": RATE}}</video_zoom>\n{zoom.about}'
        )

    def write_call(self, thought: str, name: str, arguments: Mapping[str, Any]) -> str:
        return f"<think>{thought}</think><video_zoom>{json.dumps(dict(arguments))}</video_zoom>"

    def write_answer(self, thought: str, answer: str) -> str:
        return f"<think>{thought}</think><answer>{answer}</answer>"


@dataclass(frozen=True, kw_only=True)
class FrameMindGrammar(Grammar):
    """Function calls and a summary: `methods.framemind.grammar`.

    Attributes:
        max_calls_per_turn: calls of one turn that are carried out; further ones are refused (`multiple_calls`).
    """

    callable_tools: ClassVar[frozenset[str] | None] = frozenset(framemind.PARAMETERS)
    messages: ClassVar[Mapping[str, str]] = {
        "observation": "{frames}",
        "refusal": "ERROR: {error}. The video lasts {duration} seconds.",
        "nothing": "No frames were asked for.",
    }

    max_calls_per_turn: int = 2

    def __post_init__(self) -> None:
        vt.require(self, "max_calls_per_turn", self.max_calls_per_turn >= 1, "at least 1")

    def parse(self, text: str) -> vt.ParsedTurn:
        return vt.refuse_surplus_calls(framemind.parse_turn(text), self.max_calls_per_turn)

    def goes_on_after(self, parsed: vt.ParsedTurn) -> bool:
        return parsed.summary is not None or bool(parsed.calls)

    def is_in_form(self, trajectory: vt.Trajectory) -> bool:
        """The paper's rule, which reads all turns as one text."""
        return framemind.is_valid_transcript("\n".join(turn.text for turn in trajectory.turns))

    def how_to_call(self, tools: Sequence[OfferedTool]) -> str:
        calls = {tool.name: f"{tool.name}({', '.join(framemind.PARAMETERS[tool.name])})" for tool in tools}
        lines = [f"{calls[tool.name]}\n{tool.about}" for tool in tools]
        return (
            "A call is a function with numbers of seconds between <tool_call> and </tool_call>; after the calls of a "
            "turn sum up what you know between <turn_sum> and </turn_sum>:\n\n" + "\n\n".join(lines)
        )

    def write_call(self, thought: str, name: str, arguments: Mapping[str, Any]) -> str:
        numbers = ", ".join(f"{arguments[parameter]:.1f}" for parameter in framemind.PARAMETERS[name])
        return f"<think>{thought}</think><tool_call>{name}({numbers})</tool_call><turn_sum>look</turn_sum>"

    def write_answer(self, thought: str, answer: str) -> str:
        return f"<think>{thought}</think><answer>{answer}</answer>"
