"""`vvt data generate` and `export-sft` against a real HTTP server, in the synthetic world."""

from __future__ import annotations

import fcntl
import json
import re
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.chat_server import chat_reply, pictures_of, scripted, texts_of
from tests.data.generation.world import END, SETTINGS, World, lines
from tests.judge_server import JudgeServer, Reply, completion
from tests.verl_plugin.harness import tokenizer
from verl_video_tools.cli.main import run
from verl_video_tools.core.errors import EndpointError, UsageError
from verl_video_tools.core.types import StopReason
from verl_video_tools.data.filters import pass_rates_of_records
from verl_video_tools.data.generate import RolloutTask, generate, tasks_of_rows
from verl_video_tools.data.synthetic_rows import load_rows, make_demo
from verl_video_tools.methods import get_method
from verl_video_tools.rollout.chat_policy import PolicyConfig
from verl_video_tools.services.judge import JudgeConfig

pytest.importorskip("openai", reason="the extra `judge` is not installed")
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("short_backoff")]


def test_an_experts_rollouts_become_training_rows(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, sft = tmp_path / "records.jsonl", tmp_path / "sft.parquet"
    with JudgeServer(reply=scripted(world.right)) as server:
        assert world.generate(out, server, "--samples", "2") == 0
        printed = capsys.readouterr().out
        records = lines(out)
        assert len(records) == 8
        assert printed.startswith(f"{out}: 8 rollouts, accuracy 1.000, ")
        assert "ended by answer: 8; failures none" in printed
        sent = [request["messages"] for request in server.requests]
    for record in records:
        row, trajectory = world.rows[int(record["uid"])], record["trajectory"]
        assert (record["extra_info"], record["ground_truth"]) == (
            row["extra_info"],
            row["reward_model"]["ground_truth"],
        )
        assert [turn.text for turn in trajectory.turns] == list(world.right[trajectory.question])
        assert (record["reward"]["acc"], record["reward"]["flagged"]) == (1.0, 0.0)
        sizes = [(frame.width, frame.height) for frame in trajectory.initial_frames]
        sizes += [(frame.width, frame.height) for call in trajectory.executed_calls() for frame in call.frames]
        whole = [[picture.size for message in messages for picture in pictures_of(message)] for messages in sent]
        assert sizes in whole
    assert {(record["uid"], record["session_id"]) for record in records} == {
        (str(row), sample) for row in range(4) for sample in range(2)
    }
    assert set(pass_rates_of_records(out).values()) == {1.0}

    assert run(["data", "export-sft", str(out), str(sft), "--well-formed"]) == 0
    assert "kept 4 (rollout: 4), dropped 4 (repetition: 4)" in capsys.readouterr().out
    dataset = world.dataset(sft)
    for index, row in enumerate(dataset.rows):
        item = dataset[index]
        assert row["turns"] == list(world.right[row["extra_info"]["question"]])
        trained = tokenizer().decode(item["input_ids"][item["loss_mask"].bool()])
        assert trained == "".join(text if text.endswith("</video_zoom>") else text + END for text in row["turns"])


def test_failures_are_flagged_and_the_rest_goes_on(
    zoomer: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "records.jsonl"
    good, bad_question = scripted(zoomer.right), zoomer.rows[1]["extra_info"]["question"]

    def half_broken(request: dict[str, Any]) -> Reply:
        return Reply(b"{}", status=500) if bad_question in texts_of(request["messages"][1]) else good(request)

    with JudgeServer(reply=half_broken) as server:
        assert zoomer.generate(out, server) == 0
        flagged = [record for record in lines(out) if record["reward"]["flagged"]]
        assert [record["uid"] for record in flagged] == ["1"]
        assert flagged[0]["trajectory"].stop_reason is StopReason.ABORTED
        assert "HTTP 500" in flagged[0]["trajectory"].error
        printed = capsys.readouterr()
        assert "4 rollouts, accuracy 1.000" in printed.out and "failures aborted: 1" in printed.out
        progress = printed.err.splitlines()[-1]
        assert "| 4/4 [" in progress and progress.endswith("accuracy 1.000, 1 flagged]")

        server.reply, num_requests = good, len(server.requests)
        assert zoomer.generate(out, server) == 0
        assert len(server.requests) == num_requests and len(lines(out)) == 4
        assert zoomer.generate(out, server, "--retry-flagged") == 0
        printed = capsys.readouterr()
        assert len(lines(out)) == 5 and "4 rollouts" in printed.out.splitlines()[-1]
        progress = printed.err.splitlines()[-1]
        assert "| 4/4 [" in progress and progress.endswith("accuracy 1.000]")
        assert [record["uid"] for record in lines(out) if not record["reward"]["flagged"]][-1] == "1"
    assert set(pass_rates_of_records(out).values()) == {1.0}


@pytest.mark.parametrize("column", ["reward_model", "extra_info"])
def test_a_column_stored_as_text_flags_its_rollouts(zoomer: World, tmp_path: Path, column: str) -> None:
    rows = pa.Table.from_pylist([{**row, column: json.dumps(row[column])} for row in zoomer.rows[:2]])
    pq.write_table(rows, tmp_path / "rows.parquet")
    out = tmp_path / "records.jsonl"
    with JudgeServer(reply=scripted(zoomer.right)) as server:
        assert run(zoomer.command("generate", tmp_path / "rows.parquet", out, server)) == 1
        assert run(zoomer.command("generate", tmp_path / "rows.parquet", out, server)) == 1
    assert [record["trajectory"].flags for record in lines(out)] == [["row_error"], ["row_error"]]


def test_all_failed_is_a_failure_and_no_endpoint_an_error(
    zoomer: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with JudgeServer(reply=lambda request: Reply(b"{}", status=500)) as server:
        assert zoomer.generate(tmp_path / "a.jsonl", server, "--deadline-seconds", "1") == 1
        server.kill()
        assert zoomer.generate(tmp_path / "b.jsonl", server) == 1
    assert "EndpointError: no usable reply from" in capsys.readouterr().err
    assert lines(tmp_path / "b.jsonl") == []


def test_malformed_turns_are_data(zoomer: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with JudgeServer(reply=lambda request: chat_reply("I see a cat.")) as server:
        assert zoomer.generate(tmp_path / "a.jsonl", server) == 0
    assert "accuracy 0.000" in (printed := capsys.readouterr().out) and "no_action: 4; failures none" in printed
    assert run(["data", "export-sft", str(tmp_path / "a.jsonl"), str(tmp_path / "sft.parquet")]) == 2
    assert "no rollout passes the filters" in capsys.readouterr().err


def test_half_a_surrogate_pair_in_a_reply_is_recorded_as_text_that_has_utf8(zoomer: World, tmp_path: Path) -> None:
    with JudgeServer(reply=lambda request: chat_reply("I see \ud83d.")) as server:
        assert zoomer.generate(tmp_path / "a.jsonl", server) == 0
    assert [record["trajectory"].turns[0].text for record in lines(tmp_path / "a.jsonl")] == ["I see ?."] * 4


def test_a_killed_run_goes_on_without_asking_twice(zoomer: World, tmp_path: Path) -> None:
    out = tmp_path / "records.jsonl"
    with JudgeServer(reply=scripted(zoomer.right), latency_seconds=0.2) as server:
        options = ("--samples", "3", "--concurrency", "1", "--seed", "7")
        command = zoomer.command("generate", zoomer.parquet, out, server, *options)
        process = subprocess.Popen([sys.executable, "-m", "verl_video_tools.cli", *command], stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 60
        while (not out.exists() or out.read_bytes().count(b"\n") < 2) and time.monotonic() < deadline:
            time.sleep(0.02)
        process.kill()
        process.wait()
        before = out.read_bytes()
        num_done = before.count(b"\n")
        assert 2 <= num_done < 12
        with out.open("ab") as file:
            file.write(b'{"step": 0, "uid": "2", "sess')
        assert len(lines(out)) == num_done

        server.requests.clear()
        server.latency_seconds = 0.0
        assert run(command) == 0
        records = lines(out)
        assert out.read_bytes().startswith(before[: before.rfind(b"\n") + 1])
        assert len({(record["uid"], record["session_id"]) for record in records}) == len(records) == 12
        turns_left = sum(len(record["trajectory"].turns) for record in records[num_done:])
        assert len(server.requests) == turns_left
        assert len({request["seed"] for request in server.requests}) == turns_left


def test_a_file_of_other_rows_or_in_use_is_not_continued(
    zoomer: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "records.jsonl"
    with JudgeServer(reply=scripted(zoomer.right)) as server:
        assert zoomer.generate(out, server) == 0
        reversed_rows = tmp_path / "reversed.parquet"
        pq.write_table(pq.read_table(zoomer.parquet).take([3, 2, 1, 0]), reversed_rows)
        assert run(zoomer.command("generate", reversed_rows, out, server)) == 2
        assert "holds a rollout of another question" in capsys.readouterr().err
        with out.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            assert zoomer.generate(out, server, "--samples", "2") == 2
        assert "is being written by another process" in capsys.readouterr().err
        before = out.read_bytes()
        assert zoomer.generate(out, server, "--samples", "2", "--model", "another") == 2
        assert "holds rollouts of the model 'comparing-judge', not of 'another'" in capsys.readouterr().err
        assert out.read_bytes() == before
        out.write_text("{}\n")
        assert zoomer.generate(out, server) == 2
        assert "line 1: not a recorded rollout" in capsys.readouterr().err


def test_a_file_goes_on_as_it_was_begun(
    zoomer: World, tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """What a rollout, its reward or its form depends on may not change; places, load and keys may."""
    out, prompt, other = tmp_path / "records.jsonl", tmp_path / "prompt.txt", tmp_path / "other.txt"
    prompt.write_text("Look again.")
    other.write_text("Look twice.")
    begun = (f"--set=prompt_file={prompt}", "--temperature=0.5")
    with JudgeServer(reply=scripted(zoomer.right)) as server, JudgeServer() as judge:
        assert zoomer.generate(out, server, *begun) == 0
        before = out.read_bytes()
        for changed, told in {
            "--set=max_turns=3": "config.max_turns was 5 and is now 3",
            "--seed=7": "sampling.seed was null and is now 7",
            "--templates=framethinker": "templates was null and is now [{",
            f"--judge-base-url={judge.base_url}": 'judge was null and is now {"model"',
        }.items():
            assert zoomer.generate(out, server, "--samples=2", *begun, changed) == 2
            assert f"{out} holds rollouts that were made otherwise: {told}" in (error := capsys.readouterr().err)
            assert "Give the same options, or another file to write" in error
        assert zoomer.generate(out, server, "--samples=2", f"--set=prompt_file={other}", "--temperature=0.7") == 2
        assert "; prompt_digest was " in (error := capsys.readouterr().err)
        assert "; sampling.temperature was 0.5 and is now 0.7" in error and out.read_bytes() == before

        begun = (f"--set=prompt_file={prompt.rename(tmp_path / 'moved.txt')}", "--temperature=0.5")
        load = ("--concurrency=2", "--deadline-seconds=60")
        assert zoomer.generate(out, server, "--samples=2", *begun, *load) == 0
        assert len(lines(out)) == 8 and not caplog.records

        (tmp_path / "records.jsonl.protocol.json").unlink()  # as files of earlier versions
        assert zoomer.generate(out, server, "--samples=3", *begun) == 0
        assert "protocol.json is missing: the rollouts beside it count as made as these options say" in caplog.text
        assert zoomer.generate(out, server, "--samples=4") == 2


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"extra_info": {"options": ["this", "that"]}}, "extra_info.options was ["),
        ({"extra_info": {"question_type": "open"}}, 'extra_info.question_type was "mc" and is now "open"'),
        ({"extra_info": {"video_segment": [0.5, 1.5]}}, "and is now [0.5, 1.5]"),
        ({"reward_model": {"ground_truth": "Z"}}, 'and is now "Z"'),
    ],
)
async def test_rewards_by_other_annotations_do_not_stay(
    zoomer: World, tmp_path: Path, change: dict[str, dict[str, Any]], told: str
) -> None:
    out, method = tmp_path / "records.jsonl", get_method("videozoomer", **SETTINGS["videozoomer"])
    row: Mapping[str, Any] = zoomer.rows[0]
    changed = {name: {**row[name], **change.get(name, {})} for name in ("extra_info", "reward_model")}
    judge = JudgeConfig(base_url="http://127.0.0.1:9/v1", model="m")
    with JudgeServer(reply=scripted(zoomer.right)) as server:
        policy = PolicyConfig(base_url=server.base_url)
        await generate([RolloutTask("0", 0, row)], out, method, policy, judge=judge)
        await generate([RolloutTask("0", 0, row)], out, method, policy, judge=judge)
        with pytest.raises(UsageError, match=f"another question as row 0: .*{re.escape(told)}.*give the rows"):
            await generate([RolloutTask("0", 0, {**row, **changed})], out, method, policy, judge=judge)


async def test_a_failed_rollout_is_made_again_after_its_row_was_mended(zoomer: World, tmp_path: Path) -> None:
    out, method = tmp_path / "records.jsonl", get_method("videozoomer", **SETTINGS["videozoomer"])
    row: Mapping[str, Any] = zoomer.rows[0]
    broken = {**row, "extra_info": {**row["extra_info"], "question_type": "numeric"}}
    with JudgeServer(reply=scripted(zoomer.right)) as server:
        policy = PolicyConfig(base_url=server.base_url)
        assert (await generate([RolloutTask("0", 0, broken)], out, method, policy)).num_flagged == 1
        with pytest.raises(UsageError, match='question_type was "numeric"'):
            await generate([RolloutTask("0", 0, row)], out, method, policy)
        summary = await generate([RolloutTask("0", 0, row)], out, method, policy, retry_flagged=True)
    assert (summary.num_flagged, summary.accuracy) == (0, 1.0)


@pytest.mark.parametrize(
    "content",
    [
        b"PAR1\x15\x00\nno line of ours",
        b"PAR1",
        b'{"title": "notes"}',
        b'{"step": 0}\n{"key": 1}',
        b'{\n  "step": 0\n}',
    ],
)
def test_a_file_of_another_kind_is_not_touched(
    zoomer: World, tmp_path: Path, content: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "other"
    out.write_bytes(content)
    with JudgeServer(reply=scripted(zoomer.right)) as server:
        assert zoomer.generate(out, server) == 2
        assert "is no file to append to" in capsys.readouterr().err
        assert out.read_bytes() == content


def test_what_is_read_is_not_written(zoomer: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows, records = tmp_path / "rows.parquet", tmp_path / "records.jsonl"
    rows.write_bytes(zoomer.parquet.read_bytes())
    with JudgeServer(reply=scripted(zoomer.wrong)) as server:
        assert run(zoomer.command("generate", rows, tmp_path / "." / "rows.parquet", server)) == 2
        assert "is the source; name another file to write" in capsys.readouterr().err
        assert zoomer.generate(records, server) == 0
        before = records.read_bytes()
        assert run(zoomer.command("reflect", records, records, server)) == 2
        assert "is the source; name another file to write" in capsys.readouterr().err
    assert (rows.read_bytes(), records.read_bytes()) == (zoomer.parquet.read_bytes(), before)


def test_open_questions_need_a_judge_whose_failure_flags(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_demo(tmp_path, 1, 1, questions_per_video=3, agent_names=["longvt"], num_processes=1, open_ended=True)
    rows = [row for row in load_rows(tmp_path / "train.parquet") if row["extra_info"]["question_type"] == "open"]
    world = World("longvt", tmp_path / "train.parquet", rows, {}, {})
    out = tmp_path / "records.jsonl"
    with (
        JudgeServer(reply=lambda request: chat_reply("<think>so</think><answer>a thing</answer>")) as server,
        JudgeServer(reply=lambda request: completion("I would rather not say.")) as judge,
    ):
        assert rows and world.generate(out, server) == 2
        assert "needs a judge" in capsys.readouterr().err
        world.generate(out, server, "--judge-base-url", judge.base_url)
        flagged = [record for record in lines(out) if record["trajectory"].flags == ["judge"]]
        assert len(flagged) == len(rows)
        judge.reply = lambda request: completion('{"label": "correct"}')
        assert world.generate(out, server, "--judge-base-url", judge.base_url, "--retry-flagged") == 0
    assert [record["reward"]["acc"] for record in lines(out)[-len(rows) :]] == [1.0] * len(rows)


def test_options_of_one_source_are_refused_for_the_other(
    zoomer: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "out.parquet")
    assert run(["data", "export-sft", str(zoomer.parquet), out, "--min-iou", "0.5"]) == 2
    assert "--min-iou belongs to recorded rollouts" in capsys.readouterr().err
    assert run(["data", "export-sft", str(tmp_path), out, "--imperfection", "0.5"]) == 2
    assert "--imperfection belongs to rows (.parquet)" in capsys.readouterr().err


async def test_a_method_that_searches_asks_for_its_encoder_before_any_request(zoomer: World, tmp_path: Path) -> None:
    async def generate_with(*tool_names: str) -> None:
        await generate(
            tasks_of_rows(zoomer.parquet, num_samples=1),
            tmp_path / "records.jsonl",
            get_method("videobrain", tool_names=tool_names),
            PolicyConfig(base_url="http://127.0.0.1:9/v1", model="m"),
        )

    with pytest.raises(UsageError, match="videobrain searches for frames by text"):
        await generate_with("uniform_sample", "clip_sample")
    assert not (tmp_path / "records.jsonl").exists()
    with pytest.raises(EndpointError):  # without the tool that searches it goes on to ask the endpoint
        await generate_with("uniform_sample")
