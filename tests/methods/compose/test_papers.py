"""Each paper's composition against its class: the same turns, and every difference by name.

docs/compose.md has the same table in words; a difference that goes, or one that comes, fails here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.judge_server import JudgeServer
from tests.methods.compose.papers import PAPERS, differences, prompt_texts, scripts
from tests.recorded.replays import replay_script
from tests.recorded.scripts import VIDEOS
from tests.videos.files import write_grey
from verl_video_tools.core.types import PixelEnvelope, Sample, VideoInfo
from verl_video_tools.methods import get_method

_OTHER_GRADING = ["reward.score", "reward.accuracy"]
_NOTE_ON_FEW_FRAMES = ["observation"]
_UNGATED = ["reward.score", "reward.accuracy", "reward.format", "reward.behavior"]

DIFFERENCES: dict[str, dict[str, list[str]]] = {
    "longvt": {},
    "videozoomer": {
        # Each refused call is answered; the class answers once.
        "two calls": ["observation"],
    },
    "framemind": {
        # No note where a clip has fewer frames than it should.
        "clip without a frame": _NOTE_ON_FEW_FRAMES,
        "long": _NOTE_ON_FEW_FRAMES,
        "short": _NOTE_ON_FEW_FRAMES,
        # A clip that shows one frame counts as a clip.
        "clip of one frame and a frame": ["observation", "reward.score", "reward.tool"],
    },
    "framethinker": {
        # Answers are graded as everywhere, not by their first word.
        "mc 'b'": _OTHER_GRADING,
        "mc 'B. a goal'": _OTHER_GRADING,
        "mc '(B)'": _OTHER_GRADING,
        "mc 'a goal'": _OTHER_GRADING,
        "numeric '3.0 goals'": _OTHER_GRADING,
        # The bonus for a clock does not ask for a time in the question, nor for a frame number above 0.
        "question without a time": ["reward.score", "reward.action_bonus"],
        "number of the first frame": ["reward.score", "reward.action_bonus"],
        # A long video has as many frames as a short one, in as large a box.
        "long": ["initial_frames", "calls", "observation"],
    },
    "videobrain": {
        # Calls repeat one another only where they are the same: no tolerance, and a text may be searched elsewhere.
        "nearly the same range": _UNGATED,
        "same text, other range": _UNGATED,
    },
}

OTHER_PROMPT = {"videobrain"}
"""Papers whose composition describes its tools by their parameters, in the grammar's words."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("videos")
    for name, (num_frames, fps) in VIDEOS.items():
        write_grey(made / f"{name}.mp4", num_frames, fps, 64, 36)
    return made


@pytest.fixture(scope="module")
def judge() -> Iterator[str]:
    with JudgeServer() as server:
        yield server.base_url


@pytest.mark.slow
@pytest.mark.parametrize(
    "every",
    # The rest when the compositions change: each is played twice, which takes a second per paper and video.
    [5, pytest.param(1, marks=pytest.mark.long)],
)
@pytest.mark.parametrize("paper", PAPERS)
def test_class_and_composition_differ_where_it_is_said(paper: str, every: int, folder: Path, judge: str) -> None:
    """In all scripts of which a difference is told, and in every fifth of the others."""
    found = {}
    for number, script in enumerate(scripts(paper)):
        if number % every and script.id not in DIFFERENCES[paper]:
            continue
        of_class = replay_script(script, folder, judge)
        composed = replay_script(replace(script, method="compose", settings={"file": paper}), folder, judge)
        assert of_class["method"] == paper and composed["method"] == "compose"
        if named := differences(paper, of_class, composed):
            found[script.id] = named
    assert found == DIFFERENCES[paper]


@pytest.mark.parametrize("paper", PAPERS)
def test_the_prompt_is_the_classs(paper: str) -> None:
    info = VideoInfo(duration_seconds=60.0, num_frames=600, average_fps=10.0, width=64, height=36)
    (system, user), (own_system, own_user) = (
        prompt_texts(get_method(name, **fields), info) for name, fields in ((paper, {}), ("compose", {"file": paper}))
    )
    assert user == own_user
    assert (system != own_system) == (paper in OTHER_PROMPT)


@pytest.mark.parametrize("paper", PAPERS)
def test_limits_and_turns_are_the_classs(paper: str) -> None:
    of_class, composed = get_method(paper), get_method("compose", file=paper)
    for name in (
        "max_turns",
        "max_turn_tokens",
        "stop",
        "end_on_call_error",
        "recipe_budget",
        "thought_tag",
        "searches",
        "asks_model",
    ):
        assert getattr(composed, name) == getattr(of_class, name), name
    assert composed.ends_on_budget() == of_class.ends_on_budget()


def test_a_ladder_has_the_rungs_of_framemind() -> None:
    info = VideoInfo(duration_seconds=100.0, num_frames=3000, average_fps=30.0, width=640, height=360)
    sample, envelope = Sample("Which?", "A", "v.mp4", "mc", ("a cat", "a dog")), PixelEnvelope(28, 784, 1 << 20)
    of_class, composed = get_method("framemind"), get_method("compose", file="framemind")
    for session_id in range(4):
        for validate in (False, True):
            own, other = (method.for_session(session_id, 4, validate) for method in (of_class, composed))
            expected = own.plan_initial_frames(info, sample, envelope)
            assert other.plan_initial_frames(info, sample, envelope) == expected
            assert other.own_settings(composed) == ({} if validate else {"num_rungs": 4, "rung": session_id + 1})
