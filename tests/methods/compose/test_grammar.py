"""Grammars of compositions: what they read of any text, and that they read what they write."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl_video_tools.methods.compose.composition import PACKAGED, load_composition
from verl_video_tools.methods.compose.grammar import Grammar, Hermes, Tags
from verl_video_tools.methods.compose.parts import TOOLS
from verl_video_tools.methods.toolkit import hermes
from verl_video_tools.methods.videobrain import grammar as videobrain

GRAMMARS: list[Grammar] = [Hermes(), Tags()]

TAGS = [f"<{slash}{name}>" for name in ("thinking", "think", "tool_call", "answer") for slash in ("", "/")]
CALL = '{"name": "clip_sample", "arguments": {"prompt": "a"}}'
PIECES = [*TAGS, CALL, '{"name": 3}', "{", "A", "so", " ", "\n", "</tool_call", '"parameters"']
texts = st.lists(st.sampled_from(PIECES), max_size=14).map("".join)

CALLS: dict[str, dict[str, Any]] = {
    "crop_video": {"start_time": 1.0, "end_time": 2.5},
    "video_zoom": {"segment": [1.0, 2.5], "fps": 2},
    "FrameAt": {"t": 3.5},
    "VideoClip": {"t_start": 1.0, "t_end": 2.5},
    "choose_frames": {"start_frame": 10, "end_frame": 40},
    "get_frame_number": {"time": "01:05"},
    "uniform_sample": {"start_frame": 10, "end_frame": 40},
    "clip_sample": {"start_frame": 10, "end_frame": 40, "prompt": "a dog"},
    "zoom": {"time": 1.5, "box": [0.25, 0.0, 0.75, 1.0]},
    "grid": {"start_time": 1.0, "end_time": 2.5, "num_frames": 4},
    "subtitles_at": {"start_time": 1.0, "end_time": 2.5},
    "search_subtitles": {"words": "a dog"},
    "ask_model": {"question": "What is shown?", "time": 1.5},
}


@given(text=texts)
def test_tags_read_as_videobrain_by_other_names(text: str) -> None:
    parsed = Tags(thought="ideaing", call="look", answer="said").parse(renamed(text))
    expected = videobrain.parse_turn(text)
    assert parsed.answer == (expected.answer and renamed(expected.answer))
    assert (parsed.well_formed, len(parsed.calls)) == (expected.well_formed, len(expected.calls))


def renamed(text: str) -> str:
    return text.replace("think", "idea").replace("tool_call", "look").replace("answer", "said")


@given(text=texts)
def test_hermes_reads_as_longvt(text: str) -> None:
    assert Hermes(max_calls_per_turn=99).parse(text) == hermes.parse_turn(text)


@pytest.mark.parametrize("grammar", GRAMMARS, ids=lambda grammar: type(grammar).__name__)
@given(text=st.one_of(texts, st.text(max_size=80)))
def test_any_text_is_read(grammar: Grammar, text: str) -> None:
    parsed = grammar.parse(text)
    assert not (parsed.well_formed and parsed.answer is None and not parsed.calls)


@pytest.mark.parametrize("grammar", GRAMMARS, ids=lambda grammar: type(grammar).__name__)
def test_a_grammar_reads_what_it_writes(grammar: Grammar) -> None:
    tag = grammar.thought_tag
    for name in TOOLS:
        parsed = grammar.parse(grammar.write_call("so", name, CALLS[name]))
        (call,) = parsed.calls
        assert (call.name, call.arguments, call.error) == (name, CALLS[name], None)
        assert parsed.thought == "so" and parsed.well_formed and parsed.answer is None
    answered = grammar.parse(grammar.write_answer("so", "B"))
    assert (answered.answer, answered.thought, answered.well_formed) == ("B", "so", True)
    assert not answered.calls
    assert tag is not None and grammar.write_answer("so", "B").startswith(f"<{tag}>so</{tag}>")


@pytest.mark.parametrize("name", PACKAGED)
def test_the_model_is_told_of_every_tool_and_of_no_other(name: str) -> None:
    composition = load_composition(name)
    told = composition.grammar.how_to_call(list(composition.tools.values()))
    for offered in composition.tools.values():
        assert offered.about in told
    assert [tool for tool in TOOLS if f'"{tool}"' in told] == list(composition.tools)
    assert "video_path" not in told


def test_surplus_calls_are_refused() -> None:
    call = '<tool_call>{"name": "crop_video", "arguments": {}}</tool_call>'
    parsed = Hermes(max_calls_per_turn=1).parse(f"<think>so</think>{call}{call}")
    assert [str(one.error) for one in parsed.calls] == [
        "None",
        "multiple_calls: at most 1 calls in one turn are carried out",
    ]
    several = Tags().parse(f"<think>so</think>{call}{call}")
    assert all(one.error is not None and one.error.code == "multiple_calls" for one in several.calls)
