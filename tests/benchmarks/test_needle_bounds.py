"""NeedleClips' bounds: the initial frames tell nothing of needles, and the right place tells everything."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import pytest

from benchmarks.needle_bounds import (
    METHODS,
    Guesser,
    initial_frames,
    kind_of,
    shares_right,
    studied_seed,
    study,
    synthetic_settings,
)
from tests.methods.videobrain.test_oracle import TruthRetriever
from tests.synthetic.test_needle import sample
from verl_video_tools.cli.main import run
from verl_video_tools.data.sft import scripted_oracle
from verl_video_tools.data.synthetic_rows import (
    load_rows,
    make_demo,
    make_row,
    question_from_row,
    video_seed,
)
from verl_video_tools.methods import get_method
from verl_video_tools.synthetic.needle import MOST_BY_INITIAL_FRAMES
from verl_video_tools.synthetic.questions import LETTERS, Question
from verl_video_tools.synthetic.world import VideoSpec


@pytest.mark.long
@pytest.mark.parametrize("name", METHODS)
def test_no_option_of_a_needle_question_is_shown_by_initial_frames(name: str) -> None:
    method = get_method(name, **synthetic_settings(name))
    for spec, question in sample():
        shown = initial_frames(method, spec)
        row = make_row(spec, question, Path("none"), 0, "test", name)
        if question.kind == "direct":
            nearest = min(shown, key=lambda frame: abs(frame - question.evidence[0][0]))
            assert shown[nearest] == question.options[question.answer], (spec, question)
        else:
            assert not set(row["extra_info"]["options"]) & set(shown.values()), (spec, question)


@pytest.mark.long
@pytest.mark.parametrize("name", ["framethinker", "videobrain"])
def test_what_the_initial_frames_show_helps_no_guesser(name: str) -> None:
    """One who studied thousands of questions does no better than chance, here within four standard deviations."""
    method = get_method(name, **synthetic_settings(name))
    guessers: dict[str, Guesser] = dict(study(method, num_questions=3000))
    right = defaultdict[str, list[bool]](list)
    for spec, question in sample():
        if question.kind != "direct":
            row = make_row(spec, question, Path("none"), 0, "test", name)
            options = row["extra_info"]["options"]
            kind = kind_of(method, spec, question)
            guess = guessers[kind].guess(options, initial_frames(method, spec).values())
            right[kind].append(LETTERS[options.index(guess)] == row["reward_model"]["ground_truth"])
    for kind, each in right.items():
        assert sum(each) / len(each) < 0.25 + 4 * (0.25 * 0.75 / len(each)) ** 0.5, kind
    assert sum(map(sum, right.values())) / sum(map(len, right.values())) < 0.31


def test_the_guesser_studies_no_video_of_a_data_set() -> None:
    """Whatever the seed of `vvt demo`: 5 makes video seeds on both sides of the studied ones."""
    studied = {studied_seed(number) for number in range(375)}
    assert len(studied) == 375
    for seed in range(-20, 21):
        for split in ("train", "test"):
            assert studied.isdisjoint(video_seed(seed, split, number) for number in range(2000)), (seed, split)


Clip = tuple[VideoSpec, Question, Path]


@pytest.fixture(scope="module")
def clips(tmp_path_factory: pytest.TempPathFactory) -> list[Clip]:
    """Two videos and their questions, from a data set on disk."""
    folder = make_demo(tmp_path_factory.mktemp("needle"), 1, 1, 8, seed=8, num_processes=1, needle=True)
    rows = [row for split in ("train", "test") for row in load_rows(folder / f"{split}.parquet")]
    return [(*question_from_row(row), Path(row["extra_info"]["video_path"])) for row in rows]


@pytest.mark.long
@pytest.mark.parametrize("name", METHODS)
def test_bounds_hold_in_replay(name: str, clips: list[Clip]) -> None:
    by_video = defaultdict[VideoSpec, list[Clip]](list)
    for clip in clips:
        by_video[clip[0]].append(clip)
    guessed: list[bool] = []
    for spec, of_video in by_video.items():
        right = shares_right(name, of_video, TruthRetriever(spec), num_studied=240)
        assert all(all(each) for each in right["oracle"].values())
        assert all(right["initial_frames"]["direct"])
        guessed += [one for kind, each in right["initial_frames"].items() if kind != "direct" for one in each]
    assert len(guessed) == 12
    assert sum(guessed) / len(guessed) <= MOST_BY_INITIAL_FRAMES


def test_the_command_replays_an_oracle_and_a_guess(
    clips: list[Clip], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same through `vvt replay`: who looks is right, who answers with another letter at once is not."""
    spec, question, video = next(clip for clip in clips if clip[1].kind == "at_time")
    settings = synthetic_settings("framethinker")
    turns = scripted_oracle(get_method("framethinker", **settings)).script(spec, question).turns
    wrong = next(letter for letter in LETTERS if letter != question.answer)
    guess = [f"<think>guess</think><action>output answer: {wrong}</action>"]
    results = []
    for script in (turns, guess):
        (tmp_path / "turns.json").write_text(json.dumps(list(script)))
        options = ["--method", "framethinker", "--video", str(video), "--question", question.text]
        options += ["--answer", question.answer, "--turns", str(tmp_path / "turns.json")]
        options += [part for name, value in settings.items() for part in ("--set", f"{name}={json.dumps(value)}")]
        assert run(["replay", *options]) == 0
        results.append(json.loads(capsys.readouterr().out))
    assert [result["reward"]["accuracy"] for result in results] == [1.0, 0.0]
    calls = [[call for turn in result["turns"] for call in turn["calls"]] for result in results]
    assert [any(call["frames"] for call in each) for each in calls] == [True, False]
