"""NeedleClips: by construction the first look tells nothing of needles, and the right place tells everything."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from functools import cache
from pathlib import Path

import pytest

from benchmarks.needle_bounds import (
    METHODS,
    MOST_FIRST_LOOK,
    Guesser,
    first_look,
    kind_of,
    shares_right,
    studied_seed,
    study,
    synthetic_settings,
)
from tests.methods.videobrain.test_oracle import TruthRetriever
from verl_video_tools.cli.main import run
from verl_video_tools.data.sft import scripted_oracle
from verl_video_tools.data.synthetic_rows import (
    load_rows,
    make_demo,
    make_row,
    question_from_row,
    questions_about,
    video_seed,
)
from verl_video_tools.methods import get_method
from verl_video_tools.synthetic.needle import NEEDLE_KINDS, needle_questions, needle_spec
from verl_video_tools.synthetic.questions import LETTERS, Question
from verl_video_tools.synthetic.spec import first_look_frames
from verl_video_tools.synthetic.world import VideoSpec, label_at


@cache
def sample() -> tuple[tuple[VideoSpec, Question], ...]:
    specs = [needle_spec(seed) for seed in range(150)]
    return tuple((spec, question) for spec in specs for question in needle_questions(spec, 8, seed=1))


def test_videos_last_one_to_ten_minutes() -> None:
    minutes = [spec.duration_seconds / 60 for spec, _ in sample()]
    assert 1.0 <= min(minutes) < 1.5 and 9.5 < max(minutes) <= 10.0
    assert len({needle_spec(0), needle_spec(0), needle_spec(1)}) == 2
    assert all(VideoSpec.from_json(spec.to_json()) == spec for spec, _ in sample()[::8])


def test_kinds_come_in_equal_shares_and_letters_evenly() -> None:
    assert Counter(question.kind for _, question in sample()) == dict.fromkeys(NEEDLE_KINDS, 300)
    letters = Counter(question.answer for _, question in sample())
    expected = len(sample()) / 4
    assert sum((letters[letter] - expected) ** 2 / expected for letter in LETTERS) < 16.3  # 0.1 % point


@pytest.mark.parametrize("name", METHODS)
def test_no_option_of_a_needle_question_is_shown_by_a_first_look(name: str) -> None:
    method = get_method(name, **synthetic_settings(name))
    for spec, question in sample():
        shown = first_look(method, spec)
        row = make_row(spec, question, Path("none"), 0, "test", name)
        if question.kind == "direct":
            nearest = min(shown, key=lambda frame: abs(frame - question.evidence[0][0]))
            assert shown[nearest] == question.options[question.answer], (spec, question)
        else:
            assert not set(row["extra_info"]["options"]) & set(shown.values()), (spec, question)


@pytest.mark.parametrize("name", ["framethinker", "videobrain"])
def test_what_the_first_look_shows_helps_no_guesser(name: str) -> None:
    """One who studied thousands of questions does no better than chance, here within four standard deviations."""
    method = get_method(name, **synthetic_settings(name))
    guessers: dict[str, Guesser] = dict(study(method, num_questions=3000))
    right = defaultdict[str, list[bool]](list)
    for spec, question in sample():
        if question.kind != "direct":
            row = make_row(spec, question, Path("none"), 0, "test", name)
            options = row["extra_info"]["options"]
            kind = kind_of(method, spec, question)
            guess = guessers[kind].guess(options, first_look(method, spec).values())
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


def test_clues_lie_on_neighbouring_frames_of_the_first_look_and_one_needle_between() -> None:
    for spec, question in sample():
        if question.kind == "between_things":
            ((start, end),) = question.evidence
            looks = first_look_frames(spec.num_frames)
            assert looks.index(end) == looks.index(start) + 1
            clues = [label_at(spec, start), label_at(spec, end)]
            assert question.text.splitlines()[0] == f"What is shown between the {clues[0]} and the {clues[1]}?"
            inside = {label_at(spec, frame) for frame in range(start, end + 1)} - {None}
            assert inside == {*clues, question.options[question.answer]}


def test_too_many_questions_are_refused() -> None:
    with pytest.raises(ValueError, match="ask for fewer"):
        needle_questions(needle_spec(0), 12_000, seed=0)


def test_fresh_questions_about_a_needle_video_are_of_its_world() -> None:
    spec = needle_spec(5)
    assert questions_about(spec, 4, seed=2) == needle_questions(spec, 4, seed=2)


Clip = tuple[VideoSpec, Question, Path]


@pytest.fixture(scope="module")
def clips(tmp_path_factory: pytest.TempPathFactory) -> list[Clip]:
    """Two videos and their questions, from a data set on disk."""
    folder = make_demo(tmp_path_factory.mktemp("needle"), 1, 1, 8, seed=8, num_processes=1, needle=True)
    rows = [row for split in ("train", "test") for row in load_rows(folder / f"{split}.parquet")]
    return [(*question_from_row(row), Path(row["extra_info"]["video_path"])) for row in rows]


@pytest.mark.parametrize("name", METHODS)
def test_bounds_hold_in_replay(name: str, clips: list[Clip]) -> None:
    by_video = defaultdict[VideoSpec, list[Clip]](list)
    for clip in clips:
        by_video[clip[0]].append(clip)
    guessed: list[bool] = []
    for spec, of_video in by_video.items():
        right = shares_right(name, of_video, TruthRetriever(spec), num_studied=240)
        assert all(all(each) for each in right["oracle"].values())
        assert all(right["first_look"]["direct"])
        guessed += [one for kind, each in right["first_look"].items() if kind != "direct" for one in each]
    assert len(guessed) == 12
    assert sum(guessed) / len(guessed) <= MOST_FIRST_LOOK


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
