"""`vvt eval --where`, `--limit` and `--repeats`: what is asked, what the protocol says, and what goes on."""

from __future__ import annotations

import itertools
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.chat_server import scripted
from tests.evaluation.eval_command import SCRIPTS, command, result_of
from tests.evaluation.made_results import questions
from tests.judge_server import JudgeServer, Reply
from verl_video_tools.cli.main import run
from verl_video_tools.core.errors import UsageError
from verl_video_tools.data.formats import BenchmarkFiles
from verl_video_tools.evaluation.questions import scoped

pytest.importorskip("openai", reason="the extra `judge` is not installed")
pytestmark = pytest.mark.usefixtures("short_backoff")


@pytest.mark.slow
def test_only_questions_with_a_value_are_asked(
    video_mme: BenchmarkFiles, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    with JudgeServer(reply=scripted(SCRIPTS)) as server:
        assert run(command(video_mme, out, server, "--where=duration=short")) == 0
        result = result_of(out)
        assert result["protocol"]["scope"] == {"where": {"duration": "short"}, "limit": None}
        assert result["overall"]["items"] == 2 and list(result["groups"]["duration"]) == ["short"]
        capsys.readouterr()
        assert run(command(video_mme, out, server)) == 2
        assert "holds another evaluation: scope" in capsys.readouterr().err
        assert run(command(video_mme, tmp_path / "both", server, '--where=duration=["short", "long"]')) == 0
        assert result_of(tmp_path / "both")["overall"]["items"] == 3


def test_entries_that_cannot_be_read_are_not_among_some_questions(
    video_mme: BenchmarkFiles, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (video_mme.videos or Path()).joinpath("-Tide02.MP4").unlink()
    with JudgeServer(reply=scripted(SCRIPTS)) as server:
        assert run(command(video_mme, tmp_path / "out", server, "--limit=1")) == 0
        assert "entries that cannot be read and are skipped: 1" in capsys.readouterr().err
    assert result_of(tmp_path / "out")["overall"]["items"] == 1


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("length=long", "--where: no question has a field 'length'; there are 'duration', 'domain', "),
        ("duration=endless", "--where: no question has duration = 'endless'; its values are 'short', 'long'"),
        ("duration", "--where: expected field=value, got 'duration'"),
    ],
)
def test_unknown_fields_and_values_are_told(
    where: str, message: str, video_mme: BenchmarkFiles, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with JudgeServer(reply=scripted(SCRIPTS)) as server:
        assert run(command(video_mme, tmp_path / "out", server, f"--where={where}")) == 2
        assert server.requests == []
    assert message in capsys.readouterr().err and not (tmp_path / "out").exists()


def test_values_are_compared_as_texts_and_all_fields_count() -> None:
    asked = questions(4, 2)
    found = scoped(asked, where={"kind": ["even"], "index": 5})
    assert [task.uid for task in found.tasks] == ["5"]
    with pytest.raises(UsageError, match="none of 8 questions has all of"):
        scoped(asked, where={"kind": "odd", "index": 5})
    assert scoped(asked).scope is None


def test_a_limit_draws_the_same_questions_wherever_the_videos_lie() -> None:
    asked, moved = questions(50, 2), questions(50, 2)
    for task in moved.tasks:
        task.row["extra_info"]["video_path"] = f"/elsewhere/{Path(task.row['extra_info']['video_path']).name}"
    few, more = ([task.uid for task in scoped(asked, limit=limit).tasks] for limit in (10, 30))
    assert [task.uid for task in scoped(moved, limit=10).tasks] == few
    assert len(few) == 10 and len(more) == 30 and set(few) < set(more)
    assert more == sorted(more, key=int) and more != [str(number) for number in range(30)]
    assert len(scoped(asked, limit=1000).tasks) == 100


def test_each_question_is_asked_so_often_with_seeds_of_its_own(
    video_mme: BenchmarkFiles, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    with JudgeServer(reply=scripted(SCRIPTS)) as server:
        assert run(command(video_mme, out, server, "--repeats=3", "--temperature=1")) == 0
        first_turns = [request for request in server.requests if len(request["messages"]) == 2]
    seeds = [request["seed"] for request in first_turns]
    assert len(seeds) == len(set(seeds)) == 9
    result = result_of(out)
    assert (result["overall"]["items"], result["overall"]["accuracy"]) == (3, pytest.approx(2 / 3))
    assert result["repeats"] == {
        **{"number": 3, "accuracy": [2 / 3] * 3, "mean": pytest.approx(2 / 3)},
        "standard_deviation": pytest.approx(0),
    }
    assert (result["protocol"]["repeats"], result["protocol"]["sampling"]["seed"]) == (3, 0)
    assert "| 3 | 0 | 3 (SD 0.0) | 66.7 [too few] |" in capsys.readouterr().out


@pytest.mark.slow
def test_repeats_resume_to_the_same_bytes(video_mme: BenchmarkFiles, tmp_path: Path) -> None:
    """The model answers by the seed, so that the times of an item differ; its two endpoints die half-way."""
    good, whole, killed = scripted(SCRIPTS), tmp_path / "whole" / "out", tmp_path / "killed" / "out"

    def by_seed(request: dict[str, Any]) -> Reply:
        reply = good(request)
        return reply if request["seed"] % 2 else Reply((reply.body or b"").replace(b"<answer>C", b"<answer>A"))

    options = ("--repeats=3", "--temperature=1", "--seed=3", "--deadline-seconds=1", "--concurrency=2")
    with JudgeServer(reply=by_seed) as server:
        assert run(command(video_mme, whole, server, *options)) == 0
        num_requests = len(server.requests)
    with JudgeServer() as one, JudgeServer() as two:
        answered = itertools.count(1)  # one step under the lock of the interpreter: two threads never skip a number

        def dying(request: dict[str, Any]) -> Reply:
            if next(answered) == num_requests // 2:
                for server in (one, two):
                    threading.Thread(target=server.kill).start()
            return by_seed(request)

        one.reply = two.reply = dying
        assert run(command(video_mme, killed, one, f"--base-url={two.base_url}", *options)) == 1
    assert 0 < (killed / "rollouts.jsonl").read_bytes().count(b"\n") < 9 and not (killed / "results.json").exists()
    with JudgeServer(reply=by_seed) as one, JudgeServer(reply=by_seed) as two:
        assert run(command(video_mme, killed, one, f"--base-url={two.base_url}", *options)) == 0
        assert 0 < len(one.requests) + len(two.requests) < num_requests
    for name in ("results.json", "items.jsonl", "table.md", "table.csv", "protocol.json"):
        assert (killed / name).read_bytes() == (whole / name).read_bytes(), name
    assert len(set(result_of(whole)["repeats"]["accuracy"])) > 1, "the times differ"
