"""The checks of a fine-tuning run: rows are encoded as training would."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.launch.checks.conftest import Checks, ChecksOf, failed
from verl_video_tools.data.sft import export_sft
from verl_video_tools.launch.checks import rows as rows_module
from verl_video_tools.launch.checks.report import Status
from verl_video_tools.methods import method_class
from verl_video_tools.methods.toolkit.oracle import synthetic_fields

pytestmark = pytest.mark.slow

WriteRows = Callable[[list[dict[str, Any]]], str]
SftRun = Callable[..., Checks]


@pytest.fixture(scope="session")
def sft_rows_of_demo(
    demo_dir: Path, recipe_options: Callable[[str], list[str]], tmp_path_factory: pytest.TempPathFactory
) -> list[dict[str, Any]]:
    path = tmp_path_factory.mktemp("sft") / "train.parquet"
    settings = synthetic_fields(method_class("framethinker"), demo_dir / "prompts")
    export_sft(demo_dir / "train.parquet", path, answers_in_words=True, settings=settings)
    return pq.read_table(path).to_pylist()


@pytest.fixture
def sft_run(checks_of: ChecksOf, write_rows: WriteRows) -> SftRun:
    def checks(rows: list[dict[str, Any]], *options: str, **fields: Any) -> Checks:
        return checks_of(f"data.train_files={write_rows(rows)}", *options, recipe="framethinker_sft", **fields)

    return checks


@pytest.mark.parametrize("thorough", [False, True])
def test_good_rows(thorough: bool, sft_run: SftRun, sft_rows_of_demo: list[dict[str, Any]]) -> None:
    checks = sft_run(sft_rows_of_demo, thorough=thorough)
    assert {check.status for check in checks.values()} == {Status.OK}
    total = len(sft_rows_of_demo)
    assert checks["training rows"].found == f"4 of {total} looked at"
    assert not thorough or checks["sequences"].found.startswith(f"4 of {total} encoded; ")


def test_bad_rows_are_named(sft_run: SftRun, sft_rows_of_demo: list[dict[str, Any]]) -> None:
    bad = copy.deepcopy(sft_rows_of_demo[:16])
    bad[0]["extra_info"]["video_path"] = "/no/such.mp4"
    bad[8]["turns"] = bad[8]["turns"][:1]
    checks = sft_run(bad, num_rows=16)
    assert failed(checks) == {"training rows", "sequences"}
    assert checks["training rows"].detail == "1 row cannot be used: row 0: no such file: /no/such.mp4"
    detail = checks["sequences"].detail
    assert detail.startswith("2 rows cannot be trained on: row 0: RowError") and "; row 8: RowError" in detail


@pytest.mark.parametrize(("truncation", "status"), [("error", Status.FAILED), ("skip", Status.OK)])
def test_long_rows(truncation: str, status: Status, sft_run: SftRun, sft_rows_of_demo: list[dict[str, Any]]) -> None:
    check = sft_run(sft_rows_of_demo, "data.max_length=100", f"data.truncation={truncation}")["sequences"]
    assert check.status is status
    if status is Status.FAILED:
        assert check.detail.startswith("4 rows cannot be trained on: row 0: ") and "the run allows 100" in check.detail
        assert check.fix.startswith("set data.max_length=")


def test_rows_that_are_none(sft_run: SftRun, checks_of: ChecksOf, rows: list[dict[str, Any]]) -> None:
    assert "lacks the columns turns" in sft_run(rows)["sequences"].detail
    checks = checks_of("data.train_files=/no/such.parquet", recipe="framethinker_sft", thorough=False)
    assert "/no/such.parquet" in checks["training rows"].detail


def test_too_few_rows_for_a_batch(sft_run: SftRun, sft_rows_of_demo: list[dict[str, Any]]) -> None:
    checks = sft_run(sft_rows_of_demo[:3], thorough=False)
    assert "3 training rows do not fill one batch of 8" in checks["training rows"].detail


def test_time_is_bounded_but_one_row_is_always_encoded(
    sft_run: SftRun, sft_rows_of_demo: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows_module, "ENCODE_SECONDS", -1.0)
    assert sft_run(sft_rows_of_demo)["sequences"].found.startswith("1 of ")


def test_rows_of_another_data_set_are_left_alone(sft_run: SftRun, sft_rows_of_demo: list[dict[str, Any]]) -> None:
    checks = sft_run(sft_rows_of_demo, "data.custom_cls.name=Other")
    assert checks["training rows"].status is Status.SKIPPED
