"""The published extractor's verdicts beside ours."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.chat_server import scripted
from tests.evaluation.eval_command import BOAT, BOWLS, WHEEL, command, result_of
from tests.judge_server import JudgeServer
from tests.turns.tagged import answer
from tests.videos.files import MakeVideo
from verl_video_tools.cli.main import run
from verl_video_tools.core.grading import is_readable
from verl_video_tools.core.types import AnswerLabel, QuestionType, Sample
from verl_video_tools.data.extractors import EXTRACTORS, get_extractor
from verl_video_tools.data.formats import BENCHMARK_NAMES, BenchmarkFiles, GradedItem, get_benchmark
from verl_video_tools.evaluation.items import AskedItem, read_by
from verl_video_tools.evaluation.results import mean_metrics

pytest.importorskip("openai", reason="the extra `judge` is not installed")
pytestmark = pytest.mark.usefixtures("short_backoff")

OPTIONS = ("a cup", "a dog", "a lamp", "a chair")


def asked(graded: GradedItem, published: GradedItem) -> AskedItem:
    return AskedItem({}, graded, published, {})


def choice(given: str | None, truth: str, label: AnswerLabel) -> GradedItem:
    return GradedItem(Sample("What?", truth, "v.mp4", "mc", OPTIONS), given, label)


def test_both_accuracies_and_what_they_differ_on(
    video_mme: BenchmarkFiles, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two answers name two options each: nothing to us, while the published rule takes the first letter."""
    out = tmp_path / "out"
    scripts = {BOWLS: [answer("C")], WHEEL: [answer("Either B or C")], BOAT: [answer("Either C or D")]}
    with JudgeServer(reply=scripted(scripts)) as server:
        assert run(command(video_mme, out, server)) == 0
    result = result_of(out)
    assert result["protocol"]["extractor"] == "lmms-eval-2025/videomme"
    assert result["overall"]["accuracy"] == pytest.approx(1 / 3)
    assert result["overall"]["accuracy_published"] == pytest.approx(2 / 3)
    assert (result["overall"]["unreadable"], result["overall"]["unreadable_published"]) == (2, 0)
    assert result["overall"]["differing"] == 1
    lines = [json.loads(line) for line in (out / "items.jsonl").read_text().splitlines()]
    assert [(each["label"], each["label_published"]) for each in lines] == [
        ("correct", "correct"),
        ("incorrect", "correct"),
        ("incorrect", "incorrect"),
    ]
    table = capsys.readouterr().out
    assert "| accuracy | accuracy, published | unreadable | frames |" in table
    assert "| 33.3 [too few] | 66.7 [too few] | 2 | 2.0 |" in table


def test_another_extractor_is_another_evaluation(
    video_mme: BenchmarkFiles, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    scripts = {BOWLS: [answer("C")], WHEEL: [answer("B.")], BOAT: [answer("no idea")]}
    with JudgeServer(reply=scripted(scripts)) as server:
        assert run(command(video_mme, out, server, "--extractor=framethinker/exact")) == 0
        assert run(command(video_mme, out, server)) == 2
        assert run(command(video_mme, tmp_path / "other", server, "--extractor=lmms")) == 2
    told = capsys.readouterr().err
    assert 'extractor was "framethinker/exact" and is now "lmms-eval-2025/videomme"' in told
    assert "there is no extractor 'lmms'" in told
    overall = result_of(out)["overall"]
    assert (overall["accuracy"], overall["accuracy_published"]) == pytest.approx((2 / 3, 1 / 3))  # `B.` is no letter
    assert overall["unreadable_published"] == 2


def test_a_benchmarks_figures_by_the_published_verdicts() -> None:
    """The ends are reversed, which our grader calls wrong and the published rule turns around."""
    sample = Sample("When?", "[2.0, 7.0]", "v.mp4", "segment")
    item = GradedItem(sample, "It happens in 7 - 2 seconds.", AnswerLabel.INCORRECT)
    published = read_by(get_extractor("lmms-eval/charades_sta"), item)
    figures = mean_metrics(get_benchmark("charades-sta"), [published])
    assert asked(item, published).differs and published.label is AnswerLabel.CORRECT
    assert (figures["R@0.7"], figures["mIoU"]) == (1.0, 1.0)


def test_a_missing_answer_is_an_empty_one() -> None:
    item = choice(None, "A", AnswerLabel.INCORRECT)
    published = read_by(get_extractor("lmms-eval-2025/videomme"), item)
    assert published.answer is None and not asked(item, published).differs


def test_partly_right_is_not_right() -> None:
    extractor = get_extractor("lmms-eval-2025/videomme")
    item = choice("A", "A", AnswerLabel.PARTIAL)
    assert asked(item, read_by(extractor, item)).differs
    other_type = GradedItem(Sample("How?", "well", "v.mp4", "open"), "well", AnswerLabel.CORRECT)
    assert read_by(extractor, other_type) == other_type


@pytest.mark.parametrize(
    ("question_type", "given", "readable"),
    [
        ("mc", "B", True),
        ("mc", "a dog", True),
        ("mc", "A or B", False),
        ("mc", "E", False),
        ("mc", None, False),
        ("numeric", "about 12", True),
        ("numeric", "twelve", False),
        ("regression", "3.5 m", True),
        ("regression", "3 to 5", False),
        ("segment", "[2, 5]", True),
        ("segment", "at 2", False),
        ("open", "whatever", True),
        ("open", " ", False),
    ],
)
def test_what_our_grader_can_read(question_type: QuestionType, given: str | None, readable: bool) -> None:
    options = OPTIONS if question_type == "mc" else ()
    assert is_readable(given, Sample("?", "A", "v.mp4", question_type, options)) is readable


def test_video_mmmu_needs_no_judge(tmp_path: Path, make_video: MakeVideo) -> None:
    """Its open questions are scored by the official rule; one truth of the data set is a list that breaks off."""
    folder = tmp_path / "Adaptation"
    folder.mkdir()
    truths = {"Which law is used?": "Ohm's law", "What are the roots?": "['2', 'two'", "How many?": "1,200"}
    entries = [
        {"id": f"validation_Math_{number}", "question": question, "answer": truth, "question_type": "open"}
        for number, (question, truth) in enumerate(truths.items())
    ]
    (folder / "test.json").write_text(json.dumps(entries))
    for number in range(len(entries)):
        (tmp_path / f"validation_Math_{number}.mp4").symlink_to(make_video(100))
    scripts = {
        "Which law is used?": [answer("Therefore it is OHM'S LAW of circuits")],
        "What are the roots?": [answer("2 and two")],
        "How many?": [answer("The total is 1200.001")],
    }
    with JudgeServer(reply=scripted(scripts)) as server:
        paths = [f"--annotations={tmp_path}", f"--videos={tmp_path}", f"--out={tmp_path / 'out'}"]
        method = ["--method=direct", "--set=initial_frames=2", f"--base-url={server.base_url}"]
        assert run(["eval", "--benchmark=video-mmmu", *paths, *method]) == 0
    result = result_of(tmp_path / "out")
    assert result["failures"] == [] and result["protocol"]["judge"] is None
    assert result["protocol"]["grader"].endswith(
        "open questions by verl_video_tools.data.extractors.open.OpenAnswerRule"
    )
    assert result["graded_by"] == {"rule for numeric": 1, "rule of video-mmmu": 2}
    # Only the official rule rounds to two decimals.
    assert (result["overall"]["accuracy"], result["overall"]["accuracy_published"]) == (1 / 3, 2 / 3)


def test_benchmarks_name_extractors_that_exist() -> None:
    assert {get_benchmark(name).published_extractor for name in BENCHMARK_NAMES} - {None} <= EXTRACTORS.keys()


def test_the_page_lists_every_extractor() -> None:
    page = (Path(__file__).parents[2] / "docs" / "evaluation.md").read_text(encoding="utf-8")
    table = page.partition("| extractor |")[2].partition("\n\n")[0]
    assert [line.split("`")[1] for line in table.splitlines() if line.startswith("| `")] == list(EXTRACTORS)
