"""`vvt check-loop` on a small folder, with the tiny model."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from verl_video_tools.cli.main import run
from verl_video_tools.loop_check import reference
from verl_video_tools.loop_check.model import RunModel
from verl_video_tools.loop_check.records import Generation, Row, TapFolder

MODEL = Path(__file__).parents[2] / "examples" / "tiny_models" / "base"


def write_run(folder: Path, mask_of_fault: list[int]) -> None:
    """A clean rollout and one with a fault, each of one turn on one picture."""
    taps, model = TapFolder(folder), RunModel(folder, MODEL, None, None)
    tokenizer = reference.load(MODEL)[1].tokenizer
    prompt = tokenizer.encode("<|im_start|>user\n<|vision_start|>", add_special_tokens=False)
    prompt += [model.image_id] * 4 + tokenizer.encode("<|vision_end|>A?<|im_end|>\n", add_special_tokens=False)
    response = tokenizer.encode("B<|im_end|>", add_special_tokens=False)
    assert len(response) == 2
    taps.keep_image("a", np.random.default_rng(0).integers(0, 256, (56, 56, 3), dtype=np.uint8))
    log_probs = model.log_probs(0, [*prompt, *response], ["a"], banned=True)
    assert log_probs is not None
    kept = log_probs[len(prompt) - 1 :].tolist()
    for uid, fault, mask in (("g0", None, [1, 1]), ("g1", "mask_off_by_one", mask_of_fault)):
        where = {"uid": uid, "session_id": 0, "step": 1, "loop": "my_loop", "fault": fault}
        taps.write(
            Generation(
                **where,
                planted=False,
                given_ids=prompt,
                images=["a"],
                returned_ids=response,
                log_probs=kept,
                version=0,
            )
        )
        taps.write(
            Row(
                **where,
                sequence=0,
                planted=fault is not None,
                lost=False,
                prompt_ids=prompt,
                response_ids=response,
                response_mask=mask,
                log_probs=kept,
                images=["a"],
                grids_N3=[[1, 4, 4]],
                position_ids_CL=model.positions([*prompt, *response], [[1, 4, 4]]),
                flags=[],
            )
        )


def test_all_is_as_it_should_be(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(tmp_path / "run", [0, 1])
    out = tmp_path / "results.json"
    assert run(["check-loop", str(tmp_path / "run"), f"--model={MODEL}", f"--out={out}"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert [line.split()[:3] for line in printed[1:]] == [["clean", "1", "clean"], ["mask_off_by_one", "1", "caught"]]
    found = json.loads(out.read_text())
    assert found["loops"] == ["my_loop"] and [fault["good"] for fault in found["faults"]] == [True, True]
    assert found["faults"][0]["checked"]["engine_log_probs"] == 1


def test_a_fault_that_no_check_sees(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(tmp_path, [1, 1])
    assert run(["check-loop", str(tmp_path), f"--model={MODEL}"]) == 1
    assert "MISSED" in capsys.readouterr().out


def test_wrong_folders(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check-loop", str(tmp_path), f"--model={MODEL}"]) == 2
    write_run(tmp_path / "run", [0, 1])
    assert run(["check-loop", str(tmp_path / "run"), f"--model={tmp_path}"]) == 2
    arguments = ["check-loop", str(tmp_path / "run"), f"--model={MODEL}", f"--checkpoints={tmp_path}"]
    assert run(arguments) == 2
    errors = capsys.readouterr().err.splitlines()
    assert "no lines of a conformance run" in errors[0]
    assert "holds no model" in errors[1]
    assert "holds no checkpoint" in errors[2]
