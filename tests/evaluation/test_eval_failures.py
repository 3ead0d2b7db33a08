"""`vvt eval` where items, rows, the endpoint or the command line are bad."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.chat_server import scripted, texts_of
from tests.data.row_files import make_row, write_rows
from tests.evaluation.eval_command import BOWLS, SCRIPTS, WHEEL, command, result_of
from tests.judge_server import JudgeServer, Reply
from tests.videos.files import MakeVideo
from verl_video_tools.cli.main import run
from verl_video_tools.data.formats import BenchmarkFiles
from verl_video_tools.data.formats.entries import benchmark_row
from verl_video_tools.records.records import read_records

pytest.importorskip("openai", reason="the extra `judge` is not installed")
pytestmark = pytest.mark.usefixtures("short_backoff")


@pytest.mark.slow
def test_a_failing_item_is_named_and_asked_again(
    video_mme: BenchmarkFiles, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, out = scripted(SCRIPTS), tmp_path / "out"
    (video_mme.videos / "-Tide02.MP4").unlink()

    def half_broken(request: dict[str, Any]) -> Reply:
        return Reply(b"{}", status=500) if WHEEL in texts_of(request["messages"][1]) else good(request)

    with JudgeServer(reply=half_broken) as server:
        assert run(command(video_mme, out, server, "--deadline-seconds=2")) == 0
        result = result_of(out)
        overall = {name: result["overall"][name] for name in ("items", "failed", "accuracy", "partial")}
        assert overall == {"items": 3, "failed": 2, "accuracy": 1.0, "partial": 0.0}
        first, second = result["failures"]
        assert (first["item"], first["flags"]) == ("001-2", ["aborted"]) and "HTTP 500" in first["reason"]
        assert (second["item"], second["flags"]) == ("entry 2", ["row_error"])
        assert second["reason"] == f"no video '-Tide02' in {video_mme.videos}"
        told = capsys.readouterr().err
        assert "failed: 001-2: aborted: " in told and "failed: entry 2: row_error: no video" in told

        server.requests.clear()
        server.reply = good
        assert run(command(video_mme, out, server)) == 0
        assert [WHEEL in texts_of(request["messages"][1]) for request in server.requests] == [True, True]
    assert [failure["item"] for failure in result_of(out)["failures"]] == ["entry 2"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("column", "value"), [("reward_model", "A"), ("extra_info", '{"question": "?"}'), ("extra_info", 7)]
)
def test_a_column_without_named_entries_fails_its_items(
    column: str, value: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_rows(tmp_path / "rows.parquet", [{**make_row("video.mp4"), column: value}])
    out = tmp_path / "out"
    with JudgeServer(reply=scripted({})) as server:
        options = [f"--rows={tmp_path / 'rows.parquet'}", "--method=direct", f"--base-url={server.base_url}"]
        for _ in range(2):  # the second run looks at what the first has recorded
            assert run(["eval", *options, f"--out={out}"]) == 1
    (failure,) = result_of(out)["failures"]
    assert failure["flags"] == ["row_error"] and f"{column} must hold named entries" in failure["reason"]
    assert f"{column} must hold named entries" in capsys.readouterr().err


def test_failing_rows_of_one_index_are_told_apart(
    tmp_path: Path, make_video: MakeVideo, capsys: pytest.CaptureFixture[str]
) -> None:
    videos = (make_video(100), tmp_path / "gone.mp4", tmp_path / "lost.mp4", tmp_path / "away.mp4")
    rows = [
        benchmark_row("one", index=0, split="test", video_path=Path(video), question="?", options=["a", "b"], truth="A")
        for video in videos
    ]
    rows[3]["extra_info"]["index"] = None
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet")
    with JudgeServer(reply=scripted({"?": ["<answer>A</answer>"]})) as server:
        options = [f"--rows={tmp_path / 'rows.parquet'}", "--method=direct", f"--base-url={server.base_url}"]
        assert run(["eval", *options, f"--out={tmp_path / 'out'}"]) == 0
        before = (tmp_path / "out" / "results.json").read_bytes()
        told = capsys.readouterr().err
        assert run(["eval", *options, f"--out={tmp_path / 'out'}"]) == 0
    names = ["row 1 (index 0)", "row 2 (index 0)", "row 3"]
    assert [failure["item"] for failure in result_of(tmp_path / "out")["failures"]] == names
    assert all(f"failed: {name}: " in told for name in names)
    assert (tmp_path / "out" / "results.json").read_bytes() == before


def test_an_endpoint_that_is_not_there(
    video_mme: BenchmarkFiles, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with JudgeServer() as server:
        pass
    for options in ((), ("--model=m",)):
        assert run(command(video_mme, tmp_path / "out", server, *options)) == 1
        assert "EndpointError: no usable reply from http://127.0.0.1" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_an_endpoint_that_is_lost_ends_the_run_and_loses_nothing(
    video_mme: BenchmarkFiles, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, good = tmp_path / "out", scripted(SCRIPTS)
    with JudgeServer() as server:

        def dying(request: dict[str, Any]) -> Reply:
            if BOWLS not in texts_of(request["messages"][1]):
                threading.Thread(target=server.kill).start()
                time.sleep(0.1)
            return good(request)

        server.reply = dying
        assert run(command(video_mme, out, server, "--concurrency=1", "--deadline-seconds=1")) == 1
    told = capsys.readouterr().err
    assert "EndpointError: no usable reply" in told and "1 of 3 are recorded, and the next run goes on there" in told
    (record,) = read_records(out / "rollouts.jsonl")
    assert (record["uid"], record["trajectory"].flags) == ("0", [])
    with JudgeServer(reply=good) as server:
        assert run(command(video_mme, out, server)) == 0
        assert not any(BOWLS in texts_of(request["messages"][1]) for request in server.requests)
    assert result_of(out)["overall"]["failed"] == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "give either --rows, or --benchmark"),
        (["--rows=r.parquet", "--benchmark=video-mme"], "give either --rows, or --benchmark"),
        (["--benchmark=video-mme", "--videos=."], "give either --rows, or --benchmark"),
        (["--rows=r.parquet"], "cannot read rows from r.parquet"),
        (["--rows=r.parquet", "--serve=m"], "give either --base-url or --serve"),
        (["--rows=r.parquet", "--serve-option=dtype=half"], "--serve-option belongs to --serve"),
        (["--rows=r.parquet", "--method=best"], "there is no method 'best'"),
    ],
)
def test_bad_usage(options: list[str], message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    line = ["eval", f"--out={tmp_path / 'out'}", "--base-url=http://127.0.0.1:9/v1", "--method=direct", *options]
    assert run(line) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
