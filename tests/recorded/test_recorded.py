"""The package gives what it gave when `data/` was recorded, byte for byte (`record` says how to read and renew it)."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from tests.recorded.compositions import composition_lines
from tests.recorded.prompts import prompt_lines
from tests.recorded.record import DATA
from tests.recorded.replays import replay_lines
from tests.recorded.run_keys import (
    WITH_TOKENS,
    logged_names,
    metric_differences,
    metric_names,
    record_differences,
    record_keys,
)
from tests.recorded.sft_rows import sft_lines

MOST_DIFFERENCES_SHOWN = 10


def assert_as_recorded(name: str, lines: Iterable[str]) -> None:
    """Compare lines with those of `data/<name>`; tells the ids that differ, and how."""
    recorded = _by_id((DATA / name).read_text(encoding="utf-8").split("\n")[:-1])
    given = _by_id(lines)
    differ = [id for id in {**recorded, **given} if recorded.get(id) != given.get(id)]
    if differ:
        shown = "\n\n".join(_diff(id, recorded.get(id), given.get(id)) for id in differ[:MOST_DIFFERENCES_SHOWN])
        pytest.fail(f"{name}: {len(differ)} of {len(recorded)} differ: {', '.join(differ)}\n\n{shown}", pytrace=False)
    assert list(given) == list(recorded), "the order of lines differs"


def _by_id(lines: Iterable[str]) -> dict[str, str]:
    by_id: dict[str, str] = {}
    for line in lines:
        id = json.loads(line).get("id", "columns")
        assert id not in by_id, f"two lines are called {id!r}"
        by_id[id] = line
    return by_id


def _diff(id: str, recorded: str | None, given: str | None) -> str:
    """Of one line, laid out on many."""
    before, after = (
        [] if line is None else json.dumps(json.loads(line), indent=1, ensure_ascii=False).splitlines()
        for line in (recorded, given)
    )
    # Where only the spelling of the JSON differs, as laid out both are the same.
    lines = difflib.unified_diff(before, after, f"{id}: recorded", f"{id}: now", lineterm="", n=2)
    return "\n".join(lines) or f"{id}\n-{recorded}\n+{given}"


@pytest.mark.slow
def test_replays(tmp_path_factory: pytest.TempPathFactory) -> None:
    assert_as_recorded("replays.jsonl", replay_lines(tmp_path_factory.mktemp("replays")))


def test_prompts() -> None:
    assert_as_recorded("prompts.jsonl", prompt_lines())


@pytest.mark.slow
def test_sft_rows(tmp_path_factory: pytest.TempPathFactory) -> None:
    assert_as_recorded("sft_rows.jsonl", sft_lines(tmp_path_factory.mktemp("sft")))


@pytest.mark.slow
def test_compositions(tmp_path_factory: pytest.TempPathFactory) -> None:
    assert_as_recorded("compositions.jsonl", composition_lines(tmp_path_factory.mktemp("compositions")))


def test_a_difference_is_told_with_the_script_that_differs() -> None:
    lines = (DATA / "replays.jsonl").read_text(encoding="utf-8").split("\n")[:-1]
    changed = [line.replace('"score":1.0', '"score":1.5') if i == 0 else line for i, line in enumerate(lines)]
    with pytest.raises(pytest.fail.Exception, match=r"1 of \d+ differ: framethinker/strict/answer\n(.*\n)*\+ .*1\.5"):
        assert_as_recorded("replays.jsonl", changed)
    with pytest.raises(pytest.fail.Exception, match="refused/"):
        assert_as_recorded("replays.jsonl", lines[:-1])


# ------------------------------------------------------------------------------------------------------ keys of a run


@pytest.fixture
def keys() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((DATA / "run_keys.json").read_text(encoding="utf-8"))
    return loaded


@pytest.fixture
def run_lines() -> list[dict[str, Any]]:
    return [json.loads(line) for line in (DATA / "run_lines.jsonl").read_text(encoding="utf-8").splitlines()]


def records_of(run_lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [line["record"] for line in run_lines if "record" in line]


def test_recorded_lines_have_the_recorded_keys(keys: dict[str, Any], run_lines: list[dict[str, Any]]) -> None:
    records = records_of(run_lines)
    assert record_differences(keys["records"], record_keys(records)) == []
    assert record_differences(keys["records"], record_keys(records[:1])) == []  # no calls
    tokens = {"prompts": [1], "response_mask": [0, 1], "advantages": [0.5], "responses": [3]}
    tokens |= {"old_log_probs": [-0.5], "rollout_log_probs": [-0.5]}
    with_tokens = [{**record, "sequences": [tokens]} for record in records]
    assert record_differences({**keys["records"], **WITH_TOKENS}, record_keys(with_tokens)) == []
    assert record_differences(keys["records"], record_keys(with_tokens))[0] == "sequences is new"


def test_changed_records_are_told(keys: dict[str, Any], run_lines: list[dict[str, Any]]) -> None:
    _, record = records_of(run_lines)
    call = next(call for turn in record["trajectory"]["turns"] for call in turn["calls"])
    call["latency_seconds"] = call.pop("latency_ms")
    record["session_id"] = "0"
    del record["reward"]["acc"]
    assert record_differences(keys["records"], record_keys([record])) == [
        "reward.acc is missing",
        "session_id is text, was integer",
        "trajectory.turns[].calls[].latency_ms is missing",
        "trajectory.turns[].calls[].latency_seconds is new",
    ]


COMPONENTS: Mapping[str, tuple[str, ...]] = {"longvt": ("accuracy", "format", "temporal_iou")}


def test_recorded_metrics_have_the_recorded_names(keys: dict[str, Any], run_lines: list[dict[str, Any]]) -> None:
    (data,) = (line["metrics"] for line in run_lines if "metrics" in line)
    assert metric_differences(keys["metrics"], metric_names(data), COMPONENTS) == []
    log = "(Trainer pid=1) step:1 - " + " - ".join(f"{name}:{value}" for name, value in data.items())
    assert logged_names(f"noise\n{log}\n") == set(data)
    other = {**data, "stop/bored": 0.0, "tool/rewind/calls_per_rollout": 1.0}
    del other["cache/hit_rate"]
    told = metric_differences(keys["metrics"], metric_names(other), COMPONENTS)
    assert told == ["cache/hit_rate is missing", "stop/bored is new"]
    told = metric_differences(keys["metrics"], metric_names(data), {"videozoomer": ("tool",)})
    assert "video_tools/videozoomer/tool/mean is missing" in told and "video_tools/longvt/acc/mean is new" in told
