"""`vvt plan`: what it prints, and its exit codes."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from verl_video_tools.cli.main import run
from verl_video_tools.planner import memory_page, published

pytestmark = pytest.mark.slow

LADDER = Path(__file__).parents[2] / "examples" / "compose" / "longvt_search_ladder.yaml"
LONGVT = ["plan", "--model", "qwen2.5-vl-7b", "--method", "longvt"]


@pytest.mark.parametrize("gpus", ["8", "64"])
def test_a_run_that_fits(gpus: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*LONGVT, "--gpus", gpus]) == 0
    text = capsys.readouterr().out
    assert "fits (modelled" in text and f"NNODES={int(gpus) // 8}\n" in text and "bound by" in text


def test_a_run_that_cannot_fit(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*LONGVT, "--gpus", "8", "--gpu", "a100-40gb"]) == 1
    text = capsys.readouterr().out
    assert "cannot fit: the actor's update takes" in text and "NNODES=" not in text


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--host-memory-gb", "100"], "a node needs"),
        (["--shm-gb", "1"], "/dev/shm needs"),
        (["--prompt-length", "1000"], "prompts of"),
        (["--no-offload", "--utilization", "0.95"], "of the actor stay"),
        (["--utilization", "0.2"], "holds no rollout"),
    ],
)
def test_reasons(options: list[str], reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*LONGVT, *options]) == 1
    assert reason in capsys.readouterr().out


def agent_workers(output: str) -> int:
    (line,) = (line for line in output.splitlines() if line.startswith("AGENT_WORKERS="))
    return int(line.split("=")[1])


@pytest.mark.parametrize(
    ("cores", "gpus", "workers"),
    [(96, 8, 16), (12, 8, 2), (4, 8, 1), (24, 64, 32), (192, 8, 32), (960, 8, 128)],
)
def test_as_many_workers_as_cores_allow(
    cores: int, gpus: int, workers: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """And none without a question: VideoZoomer's step has 128."""
    videozoomer = ["plan", "--model", "qwen2.5-vl-7b", "--method", "videozoomer"]
    assert run([*videozoomer, "--gpus", str(gpus), "--cores", str(cores)]) == 0
    assert agent_workers(capsys.readouterr().out) == workers


def test_a_smaller_batch_takes_the_mini_batch_with_it(capsys: pytest.CaptureFixture[str]) -> None:
    """And a larger one does not."""
    for batch_size, mini_batch_size in (("16", "16"), ("64", "32")):
        assert run(["plan", "--model", "qwen2.5-vl-7b", "--method", "framethinker", "--batch-size", batch_size]) == 0
        assert f"TRAIN_BATCH_SIZE={batch_size}\nMINI_BATCH_SIZE={mini_batch_size}\n" in capsys.readouterr().out


def test_a_composition_has_the_lengths_of_its_file(capsys: pytest.CaptureFixture[str]) -> None:
    compose = ["plan", "--model", "qwen2.5-vl-7b", "--method", "compose"]
    assert run([*compose, "--set", f"file={LADDER}"]) == 0
    pasted = capsys.readouterr().out.partition("# to paste")[2].splitlines()
    assert {"MAX_PROMPT_LENGTH=16384", "MAX_RESPONSE_LENGTH=24576", f"COMPOSE={shlex.quote(str(LADDER))}"} <= set(
        pasted
    )
    assert run([*compose, "--set", f"file={LADDER}", "--prompt-length", "9000"]) == 1, "given ones win"


@pytest.mark.parametrize(
    ("options", "warning"),
    [
        (["--response-length", "2000"], "not a single call"),
        (["--response-length", "2000", "--set", "max_turns=2"], "not a single call"),
        ([], "only one call"),
        (["--set", "max_turns=2"], None),  # as many as it may make
        (["--response-length", "65536"], None),
        (["--prompt-length", "1000", "--response-length", "2000"], None),  # there is no first look to call after
    ],
)
def test_too_few_calls_are_warned_of(
    options: list[str], warning: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    run([*LONGVT, *options])
    text = capsys.readouterr().out
    assert ("at the largest size fits" in text) == (warning is not None) and (warning or "") in text


def test_fields_of_the_method_are_to_paste_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*LONGVT, "--set", "initial_frames=256", "--set", "call_frames=64"]) == 0
    assert "\nMETHOD_FIELDS='initial_frames=256 call_frames=64'\n" in capsys.readouterr().out


def test_an_adapter_takes_less(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*LONGVT, "--json"]) == 0 and run([*LONGVT, "--lora-rank", "32", "--json"]) == 0
    text = capsys.readouterr().out
    whole, end = json.JSONDecoder().raw_decode(text)
    adapted = json.loads(text[end:])
    assert adapted["actor"]["optimizer"] < whole["actor"]["optimizer"] / 50
    assert adapted["actor"]["weights"] > whole["actor"]["weights"]
    assert adapted["host"]["checkpoint"] < whole["host"]["checkpoint"] / 2
    assert "LORA_RANK=32" in adapted["settings"] and not any("LORA" in line for line in whole["settings"])


def test_for_a_machine(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*LONGVT, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (
        found["fits"] and found["modelled"] and found["step_seconds"] == pytest.approx(sum(found["seconds"].values()))
    )


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["plan", "--model", "qwen9", "--method", "longvt"], "'qwen9'"),
        ([*LONGVT, "--gpu", "tpu"], "'tpu'"),
        ([*LONGVT, "--gpus", "12"], "12"),
        ([*LONGVT, "--ulysses", "3"], "--ulysses 3"),
        (
            [*LONGVT, "--ulysses", "8"],
            "qwen2.5-vl-7b so, which has 28 heads, 4 of keys and values; with --gpus 8 it can",
        ),
        ([*LONGVT, "--tp", "8"], "with --gpus 8 it can be 1, 2, 4\n"),
        (["plan", "--model", "qwen2.5-vl-3b", "--method", "longvt", "--tp", "8"], "3,420 values inside the vision"),
        ([*LONGVT, "--mini-batch-size", "32"], "--mini-batch-size 32 is more than --batch-size 16"),
        ([*LONGVT, "--batch-size", "4", "--mini-batch-size", "8"], "8 is more than --batch-size 4"),
        (["plan", "--model", "qwen2.5-vl-7b", "--method", "guess"], "guess"),
    ],
)
def test_bad_usage(arguments: list[str], named: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments) == 2
    assert named in capsys.readouterr().err


def test_a_plan_of_a_known_model_needs_no_torch() -> None:
    program = (
        "import sys; from verl_video_tools.cli.main import run; "
        f"run({[*LONGVT, '--print', 'mm-cache-gb']!r}); sys.exit('torch' in sys.modules)"
    )
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert process.stdout == "4\n"


@pytest.mark.parametrize(
    ("table", "page"),
    [(published.table, "planning"), (memory_page.images_table, "memory"), (memory_page.ulysses_table, "memory")],
)
def test_tables_of_the_documentation(table: Callable[[], str], page: str) -> None:
    assert table() in (Path(__file__).parents[2] / "docs" / f"{page}.md").read_text(encoding="utf-8")


def test_no_memory_is_told_where_heads_cannot_be_shared() -> None:
    rows = [line for line in memory_page.ulysses_table().splitlines() if "qwen" in line]
    assert [row.endswith("| - |") for row in rows] == ["qwen2.5-vl-7b" in row for row in rows]
