"""`vvt estimate`: what it prints, and its exit codes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from verl_video_tools.cli.main import run

pytestmark = pytest.mark.slow

LADDER = Path(__file__).parents[2] / "examples" / "compose" / "longvt_search_ladder.yaml"
LONGVT = ["estimate", "--model", "qwen2.5-vl-7b", "--method", "longvt"]


@pytest.mark.parametrize(
    ("options", "warning"),
    [
        ([], "only one call"),
        (["--gpus", "64"], "only one call"),
        (["--set", "max_turns=2"], ""),  # as many as it may make
        (["--option", "response_length=110000"], "set actor_rollout_ref.actor.ulysses_sequence_parallel_size=4"),
        (["--option", "response_length=2000"], "not a single call"),
        (["--gpu", "a100-40gb"], "the update needs"),
        (["--gpu", "rtx-4090", "--option", "lora_rank=32"], "holds no rollout"),
        (["--option", "prompt_length=1000"], "set data.max_prompt_length="),
        (["--option", "batch_size=4096"], "a node needs"),
        (["--gpus", "1", "--option", "ulysses=1"], "the update needs"),
        (["--option", "ulysses=8"], "ulysses=8 does not divide 28 attention heads"),
    ],
)
def test_warnings(options: list[str], warning: str, capsys: pytest.CaptureFixture[str]) -> None:
    """They change no exit code: no figure has been compared with a GPU."""
    assert run([*LONGVT, *options]) == 0
    text = capsys.readouterr().out
    assert (
        ": an estimate, never compared with a GPU\n" in text
        and warning in text
        and ("warning" in text) == bool(warning)
    )


def test_a_composition_has_the_lengths_of_its_file(capsys: pytest.CaptureFixture[str]) -> None:
    compose = ["estimate", "--model", "qwen2.5-vl-7b", "--method", "compose", "--set", f"file={LADDER}"]
    assert run(compose) == 0
    assert f"at most {16384 + 24576:,} tokens" in capsys.readouterr().out
    assert run([*compose, "--option=prompt_length=9000"]) == 0
    assert f"at most {9000 + 24576:,} tokens" in capsys.readouterr().out, "given ones win"


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["estimate", "--model", "qwen9", "--method", "longvt"], "'qwen9'"),
        ([*LONGVT, "--gpu", "tpu"], "'tpu'"),
        (["estimate", "--model", "qwen2.5-vl-7b", "--method", "guess"], "guess"),
        ([*LONGVT, "--option=ulyses=4"], "'ulyses'"),
        ([*LONGVT, "--option=tp=0"], "tp must be at least 1"),
    ],
)
def test_bad_usage(arguments: list[str], named: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments) == 2
    assert named in capsys.readouterr().err


def test_a_plan_of_a_known_model_needs_no_torch() -> None:
    program = (
        f"import sys; from verl_video_tools.cli.main import run; run({LONGVT!r}); sys.exit('torch' in sys.modules)"
    )
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "mm_processor_cache_gb" in process.stdout
