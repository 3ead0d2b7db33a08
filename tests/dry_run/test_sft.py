"""The dry run of a fine-tuning recipe: rows are encoded as training would."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.dry_run.conftest import Checks, DryRunOf
from verl_video_tools.core.check import Status
from verl_video_tools.data.sft import export_sft
from verl_video_tools.dry_run import sft_rows
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
def sft_run(dry_run: DryRunOf, write_rows: WriteRows) -> SftRun:
    def checks(rows: list[dict[str, Any]], *options: str, **fields: Any) -> Checks:
        return dry_run(f"data.train_files={write_rows(rows)}", *options, recipe="framethinker_sft", **fields)

    return checks


def failed(checks: Checks) -> set[str]:
    return {name for name, check in checks.items() if check.status is Status.FAILED}


def test_good_rows(sft_run: SftRun, sft_rows_of_demo: list[dict[str, Any]]) -> None:
    checks = sft_run(sft_rows_of_demo)
    assert failed(checks) == set()
    assert checks["training rows"].found.startswith(f"4 of {len(sft_rows_of_demo)} encoded in ")
    assert "checkpoints" in checks and "of 1,024" in checks["sequences"].found


def test_bad_rows_are_named(sft_run: SftRun, sft_rows_of_demo: list[dict[str, Any]]) -> None:
    bad = copy.deepcopy(sft_rows_of_demo[:16])
    bad[0]["extra_info"]["video_path"] = "/no/such.mp4"
    bad[8]["turns"] = bad[8]["turns"][:1]
    checks = sft_run(bad, num_rows=16)
    assert failed(checks) == {"training rows"}
    detail = checks["training rows"].detail
    assert detail.startswith("2 rows cannot be replayed: row 0: RowError") and "; row 8: RowError" in detail


@pytest.mark.parametrize(("truncation", "status"), [("error", Status.FAILED), ("skip", Status.WARNING)])
def test_long_rows(truncation: str, status: Status, sft_run: SftRun, sft_rows_of_demo: list[dict[str, Any]]) -> None:
    checks = sft_run(sft_rows_of_demo, "data.max_length=100", f"data.truncation={truncation}")
    assert checks["sequences"].status is status
    assert checks["sequences"].detail.startswith("4 rows too long: row 0 (")


def test_rows_that_are_none(sft_run: SftRun, dry_run: DryRunOf, rows: list[dict[str, Any]]) -> None:
    assert "lacks the columns turns" in sft_run(rows)["training rows"].detail
    checks = dry_run("data.train_files=/no/such.parquet", recipe="framethinker_sft")
    assert "/no/such.parquet" in checks["training rows"].detail


def test_too_few_rows_for_a_batch(sft_run: SftRun, sft_rows_of_demo: list[dict[str, Any]]) -> None:
    assert "3 rows do not fill one batch of 8" in sft_run(sft_rows_of_demo[:3])["training rows"].detail


def test_time_is_bounded_but_one_row_is_always_encoded(
    sft_run: SftRun, sft_rows_of_demo: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sft_rows, "ENCODE_SECONDS", -1.0)
    assert sft_run(sft_rows_of_demo)["training rows"].found.startswith("1 of ")


def test_relative_paths(
    sft_run: SftRun, sft_rows_of_demo: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    some = copy.deepcopy(sft_rows_of_demo[:16])
    path = Path(some[4]["extra_info"]["video_path"])
    some[4]["extra_info"]["video_path"] = path.name
    monkeypatch.chdir(path.parent)
    check = sft_run(some)["relative paths"]
    assert check.status is Status.WARNING and check.detail.startswith("1 row (row 4 first)")


def test_rows_of_another_data_set_are_left_alone(sft_run: SftRun, sft_rows_of_demo: list[dict[str, Any]]) -> None:
    checks = sft_run(sft_rows_of_demo, "data.custom_cls.name=Other")
    assert checks["training rows"].status is Status.SKIPPED
