"""What the trainer writes down of a step: one line a rollout."""

# Imports after a skip: what they name is not there on every machine.

from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("verl_video_tools.verl_plugin.trainer", reason="the trainer subclasses verl's")

from tests.verl_plugin.trainer_batches import Step, run_logging
from verl_video_tools.methods.breakdown import all_components
from verl_video_tools.methods.framethinker import FrameThinker
from verl_video_tools.records.records import RecordWriter, read_records
from verl_video_tools.verl_plugin.trainer import ReplayTap


def lines_of(step: Step, folder: Path, *, trained: bool) -> list[dict[str, Any]]:
    return run_logging(step.trainer, folder, record_tokens=True)._lines(step.batch, 1, trained=trained)


def test_batches_of_validation_are_seen_before_verl_clears_them_and_failures_in_any() -> None:
    class Buffer:
        def __init__(self) -> None:
            self.poll_interval = 2.0
            self.failure_keys: dict[str, set[str]] = {"train": set(), "val": set()}

        def sample(self, *, partition_id: str, batch_size: int) -> tuple[str, dict]:
            return f"{batch_size} of {partition_id}", {}

    seen: list[Any] = []
    failures: list[int] = []
    buffer: Any = Buffer()  # all of verl's buffer that the tap uses
    tap = ReplayTap(buffer, seen.append, failures.append)
    assert tap.sample(partition_id="train", batch_size=2) == ("2 of train", {})
    assert tap.sample(partition_id="val", batch_size=3) == ("3 of val", {})
    assert seen == ["3 of val"] and failures == [] and tap.poll_interval == 2.0
    buffer.failure_keys = {"train": {"a", "b"}, "val": {"c"}}
    tap.sample(partition_id="train", batch_size=2)
    assert failures == [2]
    tap.sample(partition_id="val", batch_size=1)
    assert failures == [2, 1]


def test_a_rollout_is_one_line_of_the_records(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    step = Step(monkeypatch)
    step.advantages()
    lines = lines_of(step, tmp_path, trained=True)
    by_name = {f"{line['uid']}_{line['session_id']}": line for line in lines}
    assert sorted(by_name) == ["a_0", "a_1", "b_0", "b_1"]
    line = by_name["a_1"]
    counts = [line[f"num_{name}"] for name in ("sequences", "prompt_tokens", "generated_tokens", "observation_tokens")]
    assert counts == [3, 3 + 4 + 5, 1 + 2 + 3, 3]
    assert (line["num_cached_tokens"], line["num_sampled_tokens"]) == (7, 9)
    assert (line["advantage"], line["reward"], line["trajectory"].question) == (-0.5, {"score": 0.0}, "a_1")
    assert [len(sequence["prompts"]) for sequence in line["sequences"]] == [3, 4, 5]
    assert line["sequences"][0].keys() == {
        *("prompts", "responses", "response_mask", "rollout_log_probs", "old_log_probs", "advantages")
    }
    validation = lines_of(step, tmp_path, trained=False)
    assert all(line["advantage"] is None for line in validation)
    assert validation[0]["sequences"][0].keys() == {"prompts", "responses", "response_mask", "rollout_log_probs"}


def test_a_record_has_the_components_of_its_method_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """verl's rows have those of all methods."""
    step = Step(monkeypatch)
    step.advantages()
    own = {**dict.fromkeys(FrameThinker.reward_components, 0.5), "score": 1.0, "acc": 1.0, "judge_calls": 0.0}
    for row in step.queue.rows.values():
        row["extra_fields"]["reward_extra_info"] = {**dict.fromkeys(all_components(), 0.0), **own}
    line, *_ = lines_of(step, tmp_path, trained=True)
    assert (line["agent_name"], line["reward"]) == ("framethinker", own)


def test_records_of_an_engine_that_gives_no_log_probabilities(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    step = Step(monkeypatch, log_probs=False)
    step.advantages()
    assert "rollout_log_probs" not in lines_of(step, tmp_path, trained=True)[0]["sequences"][0]


def test_a_flagged_rollout_has_generated_what_it_has(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its mask is 0 by then, so that it does not train."""
    step = Step(monkeypatch, flagged=("a_1",))
    step.advantages()
    (line,) = [line for line in lines_of(step, tmp_path, trained=True) if line["trajectory"].flags]
    assert (line["num_generated_tokens"], line["num_observation_tokens"]) == (1 + 2 + 3, 3)


def test_a_column_of_any_type_is_kept_as_text(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    step = Step(monkeypatch)
    step.advantages()
    values = {"day": date(2026, 1, 2), "price": Decimal("1.5"), "at": np.datetime64("2026-01-02T03:04"), "key": b"k"}
    for row in step.queue.rows.values():
        row["extra_info"] = {"index": 7, "shape": np.array([2, 3]), "depth": np.array(4), **values}
    lines = lines_of(step, tmp_path, trained=True)
    (read, *_) = read_records(RecordWriter(tmp_path).write(1, lines))
    assert read["extra_info"] == {
        **{"index": 7, "shape": [2, 3], "depth": 4},
        **{"day": "2026-01-02", "price": "1.5", "at": "2026-01-02 03:04:00", "key": "b'k'"},
    }


@pytest.mark.parametrize("reward_model", ["B", None, {"style": "rule"}])
def test_a_row_without_a_truth_has_its_line_too(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, reward_model: Any
) -> None:
    step = Step(monkeypatch, flagged=("a_1",))
    step.advantages()
    for row in step.queue.rows.values():
        row["reward_model"] = reward_model
    lines = lines_of(step, tmp_path, trained=True)
    assert [line["ground_truth"] for line in lines] == [None] * 4
