"""The scripted expert for cards: a look finds a card and its place, a zoom shows the thing on it."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.methods.compose.test_composition import write
from verl_video_tools.core.types import PixelEnvelope, Sample, ToolContext
from verl_video_tools.data.sft import scripted_oracle
from verl_video_tools.methods import get_method
from verl_video_tools.methods.compose import Compose, composition
from verl_video_tools.methods.compose.oracle import ComposeOracle
from verl_video_tools.methods.longvt.method import CropVideo
from verl_video_tools.methods.toolkit.oracle import Script, video_info
from verl_video_tools.synthetic.questions import Question
from verl_video_tools.synthetic.spatial import card_at, spatial_questions, spatial_spec, window_of
from verl_video_tools.synthetic.world import VideoSpec

WORLD = [(spec, question) for spec in map(spatial_spec, range(60)) for question in spatial_questions(spec, 4, seed=0)]
TEXT = Path(composition.__file__).with_name("spatial.yaml").read_text()


def composed(folder: Path, text: str = TEXT) -> Compose:
    shutil.copy(Path(composition.__file__).with_name("prompt_synthetic.txt"), folder)
    method = get_method("compose", file=write(folder, text))
    assert isinstance(method, Compose)
    return method


def calls_of(method: Compose, script: Script) -> list[tuple[str, dict[str, Any]]]:
    parsed = [method.parse(turn) for turn in script.turns]
    assert all(turn.well_formed for turn in parsed)
    return [(call.name, dict(call.arguments)) for turn in parsed for call in turn.calls]


def crop_frames(method: Compose, spec: VideoSpec, arguments: dict[str, Any]) -> list[int]:
    tool = method.composition.tools["crop_video"]
    assert isinstance(tool, CropVideo)
    return tool.frame_numbers(arguments["start_time"], arguments["end_time"], video_info(spec))


@pytest.mark.slow
@pytest.mark.parametrize("zoom", ["unit: pixels", "unit: thousandths", "unit: normalised"])
async def test_it_crops_then_zooms_into_a_card_that_the_crop_shows_and_is_right(zoom: str, tmp_path: Path) -> None:
    method = composed(tmp_path, TEXT.replace("unit: pixels", zoom))
    expert = ComposeOracle(method=method, answers_in_words=True)
    tool = method.tools(video_info(WORLD[0][0]))["zoom"]
    for spec, question in WORLD:
        script = expert.script(spec, question)
        assert script.template == "zoom" and len(script.turns) == 3
        (crop, segment), (name, arguments) = calls_of(method, script)
        assert (crop, name) == ("crop_video", "zoom")
        shown = crop_frames(method, spec, segment)
        context = ToolContext(video_info(spec), Sample("", "", "", "mc"), PixelEnvelope(), nowhere)
        request = (await tool.plan(arguments, context)).frames
        assert request is not None and request.region is not None
        (frame,) = (round(seconds * spec.fps) for seconds in request.seconds or ())
        card = card_at(spec, frame)
        assert frame in shown and card is not None
        side = spec.side_pixels
        assert tuple(request.region.in_pixels(side, side)) == window_of(card[0])
        assert (request.width, request.height) == (56, 56)
        assert f"{frame / spec.fps:.1f}s {card[0]}" in script.turns[1], "the thought says what the crop shows"
        answer = method.parse(script.turns[-1]).answer
        assert answer == card[1] == question.options[question.answer]


async def nowhere(seconds: float) -> int:
    raise AssertionError("no tool of these looks frames up")


def what_it_did(method: Compose, spec: VideoSpec, question: Question, script: Script) -> str:
    calls = calls_of(method, script)
    if not calls:
        return "guessed"
    found = any(card_at(spec, frame) for frame in crop_frames(method, spec, calls[0][1]))
    if len(calls) == 2:
        return "zoomed"
    return "hurried" if found else "missed"


def test_an_imperfect_one_mostly_guesses_and_now_and_then_misses_the_card_or_does_not_zoom(tmp_path: Path) -> None:
    """As the learning example asks it to: so the policy that imitates it guesses, too."""
    method = composed(tmp_path)
    expert = ComposeOracle(method=method, imperfection=0.75, skip_rate=0.85, answers_in_words=True)
    scripts = [(spec, question, expert.script(spec, question)) for spec, question in WORLD]
    did = Counter(what_it_did(method, *each) for each in scripts)
    shares = {what: count / len(WORLD) for what, count in did.items()}
    assert 0.55 < shares["guessed"] < 0.73 and 0.18 < shares["zoomed"] < 0.33
    assert 0.02 < shares["hurried"] < 0.12 and 0.02 < shares["missed"] < 0.12
    unseen = [each for each in scripts if what_it_did(method, *each) != "zoomed"]
    right = [
        method.parse(script.turns[-1]).answer == question.options[question.answer] for _, question, script in unseen
    ]
    assert 0.1 < sum(right) / len(right) < 0.4, "who has not zoomed guesses"
    for _, _, script in unseen:
        thought = re.findall(r"<think>(.*)</think>", script.turns[-1])[0]
        assert re.match(r"(nothing|\d+\.\ds (top|bottom) (left|right))\. ", thought), "and says what was seen"


def test_without_a_zoom_it_guesses_where_it_has_seen_the_card(tmp_path: Path) -> None:
    line = next(line for line in TEXT.splitlines(keepends=True) if "name: zoom" in line)
    text = TEXT.replace(line, "").replace(", tools: [zoom]", "")
    method = composed(tmp_path, text)
    assert list(method.composition.tools) == ["crop_video"]
    expert = ComposeOracle(method=method)
    assert {what_it_did(method, *each, expert.script(*each)) for each in WORLD} == {"hurried"}


@pytest.mark.parametrize("name", ["longvt", "videozoomer", "framethinker", "framemind", "direct"])
def test_other_methods_experts_claim_to_see_nothing(name: str) -> None:
    method = get_method(name)
    expert = scripted_oracle(method)
    answers = [expert.script(*each).turns[-1] for each in WORLD]
    letters = [method.parse(answer).answer or "" for answer in answers]
    right = [question.answer in letter for letter, (_, question) in zip(letters, WORLD, strict=True)]
    assert 0.1 < sum(right) / len(right) < 0.4
    assert all("nothing" in answer for answer in answers)
