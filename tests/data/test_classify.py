"""`vvt data classify` with two stub endpoints: letters, shares, exports, failures, and going on after a kill."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.chat_server import chat_reply, pictures_of, scripted, texts_of
from tests.judge_server import JudgeServer, Reply, completion
from tests.videos.files import MakeVideo
from verl_video_tools.cli.main import run
from verl_video_tools.data.classify import CATEGORY_OF_LETTER, letter_of
from verl_video_tools.records.records import read_records

pytest.importorskip("openai", reason="the extra `judge` is not installed")
pytestmark = pytest.mark.usefixtures("short_backoff")

LETTERS = "aaaabbbcddeeeffffghh" + "aaaaaaaaeefffffffggh"
"""What 40 rows shall become: 20 of the source `left`, 20 of `right`."""
SETTINGS = ("--method=longvt", "--set=initial_frames=4", "--set=call_frames=4")
LOOK = (
    "<think>closer</think>\n<tool_call>\n"
    '{"name": "crop_video", "arguments": {"start_time": 0, "end_time": 1}}\n</tool_call>'
)


@dataclass(frozen=True)
class Case:
    """Rows whose right answer is B, and two models that make these letters of them."""

    parquet: Path
    letters: str

    def base(self) -> Callable[[dict[str, Any]], Reply]:
        return scripted({mark(row): [answer(letter in "abcd")] for row, letter in enumerate(self.letters)})

    def teacher(self) -> Callable[[dict[str, Any]], Reply]:
        turns = {
            mark(row): [*([LOOK] if letter in "bdfh" else []), f"<think>so</think>\n{answer(letter in 'abef')}"]
            for row, letter in enumerate(self.letters)
        }
        return scripted(turns)

    def command(self, out: Path, base: JudgeServer, teacher: JudgeServer, *options: str) -> list[str]:
        urls = ["--base-model-url", base.base_url, "--teacher-url", teacher.base_url]
        return ["data", "classify", str(self.parquet), str(out), *urls, *SETTINGS, *options]


def mark(row: int) -> str:
    return f"(question {row})"


def answer(right: bool) -> str:
    return f"<answer>{'B' if right else 'A'}</answer>"


def row_of(request: dict[str, Any], num_rows: int) -> int:
    asked = texts_of(next(message for message in request["messages"] if message["role"] == "user"))
    (row,) = [row for row in range(num_rows) if mark(row) in asked]
    return row


@pytest.fixture
def make_case(tmp_path: Path, make_video: MakeVideo) -> Callable[..., Case]:
    def make(letters: str, sources: Sequence[str] = ("left",), **extra: Any) -> Case:
        video_path = make_video(num_frames=60)
        rows = [
            {
                "data_source": sources[row * len(sources) // len(letters)],
                "agent_name": "videobrain",
                "prompt": [{"role": "user", "content": "What is it?"}],
                "reward_model": {"style": "rule", "ground_truth": "B"},
                "extra_info": {
                    "question": f"What is it? {mark(row)}",
                    "video_path": video_path,
                    "index": row,
                    "video_segment": [0.0, 1.5],
                    **extra,
                },
            }
            for row in range(len(letters))
        ]
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet")
        return Case(tmp_path / "rows.parquet", letters)

    return make


def report_of(out: Path) -> dict[str, Any]:
    report: dict[str, Any] = json.loads((out / "report.json").read_text())
    return report


def rows_at(path: Path) -> list[dict[str, Any]]:
    return pq.read_table(path).to_pylist()


def test_letters_count_the_base_model_then_the_teacher_then_its_calls() -> None:
    cells = [(base, teacher, looked) for base in (True, False) for teacher in (True, False) for looked in (False, True)]
    letters = [
        letter_of(base_right=base, teacher_right=teacher, teacher_called=looked) for base, teacher, looked in cells
    ]
    assert "".join(letters) == "abcdefgh"
    assert [CATEGORY_OF_LETTER[letter] for letter in letters] == [
        *["direct"] * 2,
        *["filtered"] * 2,
        "adaptive",
        *["active"] * 3,
    ]


@pytest.mark.slow
def test_a_killed_run_goes_on_and_gives_the_expected_shares(
    make_case: Callable[..., Case], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    case, out = make_case(LETTERS, ("left", "right")), tmp_path / "out"
    files = {"base": out / "base.jsonl", "teacher": out / "teacher.jsonl"}
    with (
        JudgeServer(reply=case.base(), latency_seconds=0.2) as base,
        JudgeServer(reply=case.teacher(), latency_seconds=0.1) as teacher,
    ):
        command = case.command(out, base, teacher, "--concurrency", "2")
        process = subprocess.Popen([sys.executable, "-m", "verl_video_tools.cli", *command], stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 60
        while not all(path.exists() and path.read_bytes().count(b"\n") > 3 for path in files.values()):
            assert time.monotonic() < deadline and process.poll() is None
            time.sleep(0.02)
        process.kill()
        process.wait()
        assert not (out / "report.json").exists()
        done = {name: {int(line["uid"]) for line in read_records(path)} for name, path in files.items()}
        assert all(3 < len(rows) < 40 for rows in done.values())

        for server in (base, teacher):
            server.requests.clear()
            server.latency_seconds = 0.0
        assert run(command) == 0
        asked = Counter(row_of(request, 40) for request in base.requests)
        assert asked == {row: 1 for row in range(40) if row not in done["base"]}
        asked = Counter(row_of(request, 40) for request in teacher.requests)
        assert asked == {row: 1 + (LETTERS[row] in "bdfh") for row in range(40) if row not in done["teacher"]}
        printed = capsys.readouterr().out

        num_requests = len(base.requests) + len(teacher.requests)
        before = (out / "rl.parquet").read_bytes()
        assert run(command) == 0
        assert len(base.requests) + len(teacher.requests) == num_requests
        assert (out / "rl.parquet").read_bytes() == before

    assert "left: direct 7, adaptive 3, active 7, filtered 3, failed 0\n" in printed
    assert "right: direct 8, adaptive 2, active 10, filtered 0, failed 0\n" in printed
    report = report_of(out)
    assert "".join(report["letters"][str(row)] for row in range(40)) == LETTERS
    assert report["counts"]["right"] == {"direct": 8, "adaptive": 2, "active": 10, "filtered": 0, "failed": 0}
    assert report["failures"] == []
    for name, path in files.items():
        assert Counter(line["uid"] for line in read_records(path)) == {str(row): 1 for row in range(40)}, name


def test_rows_for_fine_tuning_and_for_reinforcement_learning(
    make_case: Callable[..., Case], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    case, out = make_case("abcdeeffgh", classification="stale"), tmp_path / "out"
    with JudgeServer(reply=case.base()) as base, JudgeServer(reply=case.teacher()) as teacher:
        assert run(case.command(out, base, teacher, "--sft-share", "0.5")) == 0
        asked = [request["messages"] for request in base.requests]
        assert all("crop_video" not in texts_of(message) for messages in asked for message in messages)
        assert {sum(len(pictures_of(message)) for message in messages) for messages in asked} == {16}

        sft, rl = rows_at(out / "sft.parquet"), rows_at(out / "rl.parquet")
        chosen = {row["extra_info"]["index"] for row in sft}
        assert len(chosen) == 2 and chosen <= {4, 5, 6, 7}
        assert [row["extra_info"]["index"] for row in rl] == sorted({0, 1, 4, 5, 6, 7, 8, 9} - chosen)
        for row in sft + rl:
            letter = case.letters[row["extra_info"]["index"]]
            assert row["extra_info"]["classification"] == letter
            assert row["extra_info"]["question_category"] == CATEGORY_OF_LETTER[letter]
        original = {row["extra_info"]["index"]: row for row in rows_at(case.parquet)}
        for row in rl:
            expected = dict(original[row["extra_info"]["index"]])
            added = {name: row["extra_info"][name] for name in ("classification", "question_category")}
            assert row == {**expected, "extra_info": {**expected["extra_info"], **added}}
        for row in sft:
            looks = [LOOK] if case.letters[row["extra_info"]["index"]] == "f" else []
            assert row["turns"] == [*looks, "<think>so</think>\n<answer>B</answer>"]
            assert row["agent_name"] == "longvt"

        with pytest.MonkeyPatch.context() as patch, pytest.raises(RuntimeError, match="stopped"):
            patch.setattr(pq.ParquetWriter, "write_table", Mock(side_effect=RuntimeError("stopped")))
            run(case.command(out, base, teacher, "--sft-share", "0.25"))
        assert rows_at(out / "sft.parquet") == sft, "a file is replaced by a whole one only"

        capsys.readouterr()
        assert run(case.command(out, base, teacher, "--sft-share", "0")) == 0
        assert not (out / "sft.parquet").exists() and len(rows_at(out / "rl.parquet")) == 8
        printed = capsys.readouterr().out
        assert "sft.parquet: 0 rows; teacher's rollouts kept 4 (rollout: 4), dropped 2 (wrong answer: 2)" in printed


@pytest.mark.slow
def test_failures_are_listed_and_never_classified(
    make_case: Callable[..., Case], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    case, out = make_case("aefh"), tmp_path / "out"

    def broken(good: Callable[[dict[str, Any]], Reply], row: int) -> Callable[[dict[str, Any]], Reply]:
        return lambda request: Reply(b"{}", status=500) if row_of(request, 4) == row else good(request)

    with JudgeServer(reply=broken(case.base(), 1)) as base, JudgeServer(reply=broken(case.teacher(), 2)) as teacher:
        assert run(case.command(out, base, teacher)) == 0
        report = report_of(out)
        assert report["letters"] == {"0": "a", "3": "h"}
        assert [(failure["row"], failure["model"]) for failure in report["failures"]] == [(1, "base"), (2, "teacher")]
        assert all("HTTP 500" in failure["reason"] for failure in report["failures"])
        assert report["counts"]["left"]["failed"] == 2
        assert [row["extra_info"]["index"] for row in rows_at(out / "rl.parquet")] == [0, 3]
        printed = capsys.readouterr()
        assert "left: direct 1, adaptive 0, active 1, filtered 0, failed 2" in printed.out
        assert "row 1, base: aborted: " in printed.err and "row 2, teacher: aborted: " in printed.err

        base.reply, teacher.reply = case.base(), case.teacher()
        base.requests.clear(), teacher.requests.clear()
        assert run(case.command(out, base, teacher, "--retry-flagged")) == 0
        assert (len(base.requests), len(teacher.requests)) == (1, 2)
        assert "".join(report_of(out)["letters"].values()) == case.letters and not report_of(out)["failures"]

        base.reply = lambda request: Reply(b"{}", status=500)
        assert run(case.command(tmp_path / "none", base, teacher, "--deadline-seconds", "1")) == 1
        assert report_of(tmp_path / "none")["letters"] == {} and not (tmp_path / "none" / "rl.parquet").exists()


def test_open_answers_are_judged_once_and_a_judge_that_fails_leaves_the_row_out(
    make_case: Callable[..., Case], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    case, out = make_case("ae", question_type="open"), tmp_path / "out"
    verdicts = {"A": "partial", "yes": "correct"}

    def judged(request: dict[str, Any]) -> Reply:
        case_asked = json.loads(next(m["content"] for m in request["messages"] if m["role"] == "user"))
        if mark(1) in case_asked["question"] and case_asked["answer"] == "yes":
            return Reply(b"no such key", 401)
        return completion(json.dumps({"label": verdicts[case_asked["answer"]]}))

    with (
        JudgeServer(reply=case.base()) as base,
        JudgeServer(reply=lambda request: chat_reply("<think>so</think>\n<answer>yes</answer>")) as teacher,
        JudgeServer(reply=judged) as judge,
    ):
        assert run(case.command(out, base, teacher)) == 2
        assert "needs a judge" in capsys.readouterr().err and not base.requests
        assert run(case.command(out, base, teacher, "--judge-base-url", judge.base_url)) == 0
        assert report_of(out)["letters"] == {"0": "a"}
        (failure,) = report_of(out)["failures"]
        assert (failure["row"], failure["model"]) == (1, "teacher") and failure["reason"].startswith("judge: ")

        judge.reply = lambda request: completion('{"label": "correct"}')
        judge.requests.clear()
        options = ("--judge-base-url", judge.base_url, "--retry-flagged")
        assert run(case.command(out, base, teacher, *options)) == 0
        assert len(judge.requests) == 1  # the reward asks the same
        assert report_of(out)["letters"] == {"0": "a", "1": "e"}


@pytest.mark.slow
def test_a_folder_of_another_method_or_without_labels_is_not_continued(
    make_case: Callable[..., Case], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    case, out = make_case("a"), tmp_path / "out"
    with JudgeServer(reply=case.base()) as base, JudgeServer(reply=case.teacher()) as teacher:
        assert run(case.command(out, base, teacher)) == 0
        urls = ["--base-model-url", base.base_url, "--teacher-url", teacher.base_url]
        assert run(["data", "classify", str(case.parquet), str(out), *urls, "--method", "videozoomer"]) == 2
        assert "holds rollouts of 'longvt', not of 'videozoomer'" in capsys.readouterr().err
        assert run(["data", "classify", str(case.parquet), str(out), *urls, "--method", "nothing"]) == 2
        assert "there is no method 'nothing'" in capsys.readouterr().err

        line = json.loads((out / "base.jsonl").read_text())
        (out / "base.jsonl").write_text(json.dumps({**line, "answer_label": None}) + "\n")
        assert run(case.command(out, base, teacher)) == 2
        assert "row 0: its record has no answer_label" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ("--set=max_turns=2", "teacher.jsonl holds rollouts that were made otherwise: config.max_turns was"),
    ],
)
def test_a_folder_goes_on_as_it_was_begun(
    make_case: Callable[..., Case], tmp_path: Path, capsys: pytest.CaptureFixture[str], changed: str, told: str
) -> None:
    case, out = make_case("a"), tmp_path / "out"
    with JudgeServer(reply=case.base()) as base, JudgeServer(reply=case.teacher()) as teacher:
        assert run(case.command(out, base, teacher)) == 0
        assert run(case.command(out, base, teacher, changed)) == 2
        assert told in capsys.readouterr().err
        assert run(case.command(out, base, teacher, "--concurrency=2")) == 0
