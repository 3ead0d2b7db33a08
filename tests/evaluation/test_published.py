"""The published extractor's verdicts beside ours."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.chat_server import scripted
from tests.evaluation.eval_command import BOAT, BOWLS, WHEEL, command, result_of
from tests.evaluation.made_results import protocol, questions, record
from tests.judge_server import JudgeServer, Reply, completion
from tests.turns.tagged import answer
from verl_video_tools.cli.main import run
from verl_video_tools.core.types import AnswerLabel, QuestionType, Sample
from verl_video_tools.data.extractors import EXTRACTORS, get_extractor
from verl_video_tools.data.formats import BENCHMARK_NAMES, BenchmarkFiles, get_benchmark
from verl_video_tools.evaluation.items import Item, items_of
from verl_video_tools.grading.answers import is_unread

pytest.importorskip("openai", reason="the extra `judge` is not installed")
pytestmark = pytest.mark.usefixtures("short_backoff")

OPTIONS = ("a cup", "a dog", "a lamp", "a chair")


def item(label: AnswerLabel, **fields: Any) -> Item:
    """An item as the benchmark's published rule reads it too; `fields` are those of its record."""
    asked = questions(1, 1)
    made = record(asked.tasks[0], True, answer_label=label)
    made["trajectory"].answer = fields.pop("answer", "A")
    made["extra_info"] = {**made["extra_info"], **fields}
    (found,) = items_of(asked, [made], protocol(), get_extractor("lmms-eval-2025/videomme"))
    return found


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
    assert (result["overall"]["unread"], result["overall"]["unread_published"]) == (2, 0)
    assert result["overall"]["differing"] == 1
    lines = [json.loads(line) for line in (out / "items.jsonl").read_text().splitlines()]
    assert [(each["label"], each["label_published"]) for each in lines] == [
        ("correct", "correct"),
        ("incorrect", "correct"),
        ("incorrect", "incorrect"),
    ]
    table = capsys.readouterr().out
    assert "| accuracy | accuracy, published | unread | frames |" in table
    assert "| 33.3 [too few] | 66.7 [too few] | 2 | 2.0 |" in table


def test_unread_answers_are_for_the_judge(video_mme: BenchmarkFiles, tmp_path: Path) -> None:
    out = tmp_path / "out"
    scripts = {BOWLS: [answer("C")], WHEEL: [answer("Either B or C")], BOAT: [answer("A")]}
    references: list[str] = []

    def verdict(request: dict[str, Any]) -> Reply:
        references.append(json.loads(request["messages"][-1]["content"])["reference"])
        return completion('{"label": "correct"}')

    with JudgeServer(reply=scripted(scripts)) as server, JudgeServer(reply=verdict) as judge:
        assert run([*command(video_mme, out, server), f"--judge-base-url={judge.base_url}"]) == 0
    result = result_of(out)
    assert result["graded_by"] == {"judge": 1, "rule for mc": 2}
    assert (result["overall"]["accuracy"], result["overall"]["unread"]) == (1.0, 1)
    assert len(references) == 1 and references[0][:3] in ("A. ", "B. ", "C. ", "D. ")


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
    assert overall["unread_published"] == 2


def test_a_missing_answer_is_an_empty_one() -> None:
    missing = item(AnswerLabel.INCORRECT, answer=None)
    assert missing.label_published is AnswerLabel.INCORRECT
    assert not missing.readable_published and not missing.differs


def test_partly_right_is_not_right() -> None:
    """What is no multiple-choice question has our verdict."""
    other_type = item(AnswerLabel.PARTIAL, question_type="open", options=None, answer="nearly")
    assert other_type.label_published is AnswerLabel.PARTIAL and not other_type.differs
    assert item(AnswerLabel.CORRECT, answer="Either A or B").differs


@pytest.mark.parametrize(
    ("question_type", "given", "readable"),
    [
        ("mc", "B", True),
        ("mc", "a dog", True),
        ("mc", "A or B", False),
        ("mc", "E", False),
        ("mc", None, False),
        ("numeric", "about 12", True),
        ("numeric", "twelve", True),
        ("numeric", "a dozen", False),
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
    assert is_unread(given, Sample("?", "A", "v.mp4", question_type, options)) is not readable


def test_benchmarks_name_extractors_that_exist() -> None:
    assert {get_benchmark(name).published_extractor for name in BENCHMARK_NAMES} - {None} <= EXTRACTORS.keys()


def test_the_page_lists_every_extractor() -> None:
    page = (Path(__file__).parents[2] / "docs" / "evaluation.md").read_text(encoding="utf-8")
    table = page.partition("| extractor |")[2].partition("\n\n")[0]
    assert [line.split("`")[1] for line in table.splitlines() if line.startswith("| `")] == list(EXTRACTORS)
