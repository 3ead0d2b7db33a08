"""`vvt data generate --reflect` against a real HTTP server, in the synthetic world: wrong rollouts, corrected."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.chat_server import scripted
from tests.data.generation.world import END, SETTINGS, WRONG_LOOK, World, lines
from tests.judge_server import JudgeServer
from tests.verl_plugin.harness import tokenizer
from verl_video_tools.cli.main import run
from verl_video_tools.core.prompts import prompt_digest

pytest.importorskip("openai", reason="the extra `judge` is not installed")
pytestmark = pytest.mark.usefixtures("short_backoff")


@pytest.mark.slow
def test_a_reflection_is_trained_on_from_where_the_expert_goes_on(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    failed, corrected, sft = tmp_path / "failed.jsonl", tmp_path / "corrected.jsonl", tmp_path / "sft.parquet"
    with JudgeServer(reply=scripted(world.wrong)) as server:
        assert world.generate(failed, server) == 0
    with JudgeServer(reply=scripted(world.right, num_given=1)) as server:
        assert run(world.command("reflect", failed, corrected, server)) == 0
        capsys.readouterr()
        num_requests = len(server.requests)
        assert run(world.command("reflect", failed, corrected, server)) == 0  # done already
        assert len(server.requests) == num_requests
        for request in server.requests:
            assert "never mention that you were told" in request["messages"][0]["content"]
            written = [message["content"] for message in request["messages"] if message["role"] == "assistant"]
            assert written[0] == WRONG_LOOK[world.method]
            answers = [turns[-1] for turns in world.wrong.values()]
            assert not any(message["content"] in answers for message in request["messages"])
    records = lines(corrected)
    assert all(record["turn_weights"] == [0.0] + [1.0] * (len(record["trajectory"].turns) - 1) for record in records)
    assert run(["data", "export-sft", str(corrected), str(sft)]) == 0
    assert "kept 4 (reflection: 4)" in capsys.readouterr().out

    dataset = world.dataset(sft)
    for index, row in enumerate(dataset.rows):
        expert_turns = world.right[row["extra_info"]["question"]]
        assert row["turns"] == [WRONG_LOOK[world.method], *expert_turns]
        assert row["turn_weights"] == [0.0] + [1.0] * len(expert_turns)
        item = dataset[index]
        trained = tokenizer().decode(item["input_ids"][item["loss_mask"].bool()])
        assert trained == "".join(text if text.endswith("</video_zoom>") else text + END for text in expert_turns)
        whole = tokenizer().decode(item["input_ids"])
        assert WRONG_LOOK[world.method] in whole

        # But for the mask it is the sequence of a rollout that says the same.
        plain = tmp_path / f"plain_{index}.parquet"
        pq.write_table(pq.read_table(sft).drop_columns("turn_weights").slice(index, 1), plain)
        twin = world.dataset(plain)[0]
        assert twin["input_ids"].tolist() == item["input_ids"].tolist()
        assert twin["position_ids"].tolist() == item["position_ids"].tolist()
        assert int(twin["loss_mask"].sum()) > int(item["loss_mask"].sum())
        assert bool((twin["loss_mask"] >= item["loss_mask"]).all())


def test_only_wrong_rollouts_that_looked_again_are_reflected_on(
    zoomer: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records, out = tmp_path / "records.jsonl", tmp_path / "out.jsonl"
    questions = [row["extra_info"]["question"] for row in zoomer.rows]
    scripts = dict(zoomer.wrong)
    scripts[questions[0]] = zoomer.right[questions[0]]
    scripts[questions[1]] = zoomer.wrong[questions[1]][1:]
    with JudgeServer(reply=scripted(scripts)) as server:
        assert zoomer.generate(records, server) == 0
        server.reply = scripted(zoomer.right, num_given=1)
        assert run(zoomer.command("reflect", records, out, server, "--samples", "2")) == 0
        assert {(record["uid"], record["session_id"]) for record in lines(out)} == {
            (f"0/{row}/0", sample) for row in (2, 3) for sample in (0, 1)
        }
        server.reply = scripted(zoomer.right)
        assert zoomer.generate(tmp_path / "right.jsonl", server) == 0
        capsys.readouterr()
        assert run(zoomer.command("reflect", tmp_path / "right.jsonl", tmp_path / "none.jsonl", server)) == 2
    assert "no wrong rollout with an executed call" in capsys.readouterr().err


@pytest.mark.slow
def test_reflections_on_other_rollouts_are_not_gone_on_with(
    zoomer: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Records of every `vvt data generate` have the same keys."""
    own, out = tmp_path / "own.jsonl", tmp_path / "corrected.jsonl"
    with JudgeServer(reply=scripted(zoomer.wrong)) as server:
        assert zoomer.generate(own, server) == 0
        server.reply = scripted(zoomer.right, num_given=1)
        command = zoomer.command("reflect", own, out, server)
        assert run(command) == 0
        records = [json.loads(line) for line in own.read_text().splitlines()]
        for record in records:
            text = record["trajectory"]["turns"][0]["text"]
            record["trajectory"]["turns"][0]["text"] = text.replace("<think>", "<think>Hm. ", 1)
        own.write_text("".join(json.dumps(record) + "\n" for record in records))
        server.requests.clear()
        assert run(command) == 2 and server.requests == []
    assert "given turns was [" in capsys.readouterr().err


def test_a_reflection_is_shown_the_initial_frames_of_its_beginning(zoomer: World, tmp_path: Path) -> None:
    """The run's setting of a field may have changed; a rollout that had its own keeps it, and others do not replay."""
    own, others, shown = tmp_path / "own.jsonl", tmp_path / "others.jsonl", SETTINGS["videozoomer"]
    with JudgeServer(reply=scripted(zoomer.wrong)) as server:
        assert zoomer.generate(others, server) == 0
        records = [json.loads(line) for line in others.read_text().splitlines()]
        for record in records:
            record["trajectory"]["settings"] = shown
        own.write_text("".join(json.dumps(record) + "\n" for record in records))
        server.reply = scripted(zoomer.right, num_given=1)
        command = ["data", "generate", "--reflect", "--base-url", server.base_url, "--set", "initial_frames=4"]
        assert run([*command, str(own), str(tmp_path / "corrected.jsonl")]) == 0
        for record in lines(tmp_path / "corrected.jsonl"):
            trajectory = record["trajectory"]
            assert (len(trajectory.initial_frames), trajectory.settings, trajectory.flags) == (8, shown, [])
        num_requests = len(server.requests)
        assert run([*command, str(others), str(tmp_path / "failed.jsonl")]) == 1
        assert len(server.requests) == num_requests
    for record in lines(tmp_path / "failed.jsonl"):
        assert record["trajectory"].flags == ["aborted"]
        assert re.search("first shown 8 frames .* replayed with 4 frames", record["trajectory"].error)


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [{"prompt_file": "/etc/hostname"}, {"initial_frames_selector": "tests.data.imported:function"}],
    ids=["file", "code"],
)
def test_a_record_names_no_code_and_no_file(zoomer: World, tmp_path: Path, settings: dict[str, Any]) -> None:
    records, out = tmp_path / "records.jsonl", tmp_path / "out.jsonl"
    with JudgeServer(reply=scripted(zoomer.wrong)) as server:
        assert zoomer.generate(records, server) == 0
        written = [json.loads(line) for line in records.read_text().splitlines()]
        for record in written:
            record["trajectory"]["settings"] = settings
        records.write_text("".join(json.dumps(record) + "\n" for record in written))
        num_requests = len(server.requests)
        assert run(zoomer.command("reflect", records, out, server)) == 1
        assert len(server.requests) == num_requests
    assert "tests.data.imported" not in sys.modules
    for record in lines(out):
        assert record["trajectory"].flags == ["row_error"]
        assert f"may not set {next(iter(settings))} of VideoZoomer" in record["trajectory"].error


@pytest.mark.slow
def test_rows_for_fine_tuning_say_which_prompt_they_were_recorded_with(zoomer: World, tmp_path: Path) -> None:
    prompt, records = tmp_path / "prompt.txt", tmp_path / "records.jsonl"
    prompt.write_text("Look closely.")
    with JudgeServer(reply=scripted(zoomer.wrong)) as server:
        assert zoomer.generate(records, server, f"--set=prompt_file={prompt}") == 0
    assert {record["trajectory"].prompt_digest for record in lines(records)} == {prompt_digest(prompt)}
    assert run(["data", "export-sft", str(records), str(tmp_path / "sft.parquet"), "--min-accuracy", "0"]) == 0
    assert set(pq.read_table(tmp_path / "sft.parquet")["prompt_digest"].to_pylist()) == {prompt_digest(prompt)}
