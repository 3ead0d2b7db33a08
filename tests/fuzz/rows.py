"""Surface `rows`: rows with values of odd types, as a parquet file may hold them."""

from __future__ import annotations

import contextlib
import math
from pathlib import Path
from random import Random
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from omegaconf import OmegaConf

from tests.fuzz import methods, texts
from tests.fuzz.surface import Surface
from tests.videos.files import write_video
from verl_video_tools.core.errors import RowError, UsageError
from verl_video_tools.core.types import Sample, StopReason
from verl_video_tools.data.validate import validate_file
from verl_video_tools.rollout.episode import Episode
from verl_video_tools.rollout.policy import ScriptedPolicy
from verl_video_tools.services.config import JudgeConfig
from verl_video_tools.verl_plugin.run_checks import check_rows

FILE_ROWS = 16
"""Rows of a file that is validated; one of them is spoilt in one or two fields."""
QUESTION = "Which?\nA. red circle\nB. blue square"
TYPES = ("mc", "numeric", "regression", "open", "segment", None, "MC", "essay", 7)
TRUTHS = (
    "B",
    "(B)",
    "blue square",
    "7",
    "7.0",
    "[1, 2]",
    "a dog",
    "",
    " ",
    "nan",
    "1e999",
    "\u0667",
    "I",
    "Z",
    "10\u00b2",
)
ROLLOUT = OmegaConf.create({"agent": {"default_agent_loop": "framethinker"}, "n": 2, "val_kwargs": {"n": 1}})


def plain_row(video: str) -> dict[str, Any]:
    return {
        "data_source": "fuzz",
        "agent_name": "framethinker",
        "prompt": [{"role": "user", "content": QUESTION}],
        "ability": "video",
        "reward_model": {"style": "rule", "ground_truth": "B"},
        "extra_info": {
            "question": QUESTION,
            "question_type": "mc",
            "options": ["red circle", "blue square"],
            "video_path": video,
            "video_segment": [0.0, 1.0],
            "classification": "active",
            "index": 0,
            "split": "train",
        },
    }


PLACES = [
    *[("data_source",), ("agent_name",), ("prompt",), ("reward_model",), ("extra_info",)],
    *[("reward_model", "ground_truth")] * 3,
    *[("extra_info", name) for name in plain_row("")["extra_info"]],
    *[("extra_info", name) for name in ("question_type", "options", "video_path", "video_segment", "image_paths")],
    *[("extra_info", name) for name in ("video_paths", "visuals")],
    ("turns",),
]
"""Where a value stands, as the path of its names."""


class Rows(Surface):
    """Single rows, as a loop reads them, and files of rows, as `vvt data validate` and the start of a run do."""

    name: ClassVar[str] = "rows"
    unit: ClassVar[str] = "rows"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.video = str(write_video(folder / "video.mp4", num_frames=10, width=48, height=32))

    def make(self, random: Random) -> Any:
        changes = []
        for _ in range(random.choice((1, 1, 2, 3))):
            place = random.choice(PLACES)
            changes.append([*place, random.choice(("value", "value", "array", "missing")), _odd(random, place[-1])])
        start, file = random.random() < 0.1, random.random() < 0.03
        return {"changes": changes, "name": random.choice([*methods.SMALL, None, "x"]), "start": start, "file": file}

    def check(self, case: Any) -> int:
        row = plain_row(self.video)
        if case["name"] is not None:
            row["agent_name"] = case["name"]
        for *place, kind, value in case["changes"]:
            _change(row, place, kind, value)
        self.run(self._rollout(row))
        if case.get("start", True):  # the methods that it makes anew take longer than all else
            with contextlib.suppress(UsageError):
                check_rows([row], ROLLOUT, JudgeConfig(), validate=True)
        if case["file"]:
            return 1 + self._file(row)
        return 1

    async def _rollout(self, row: dict[str, Any]) -> None:
        """As an agent loop takes a row: it is refused by name, or a rollout goes on to its end."""
        name = row.get("agent_name")
        method = methods.method_of(name if isinstance(name, str) and name in methods.SMALL else "direct")
        try:
            sample = Sample.from_row(row)
            method.check_sample(sample, JudgeConfig())
        except (RowError, UsageError):
            return
        trajectory = await Episode(method, sample).run(ScriptedPolicy(["<answer>B</answer>"]))
        assert trajectory.stop_reason is not None
        if len(sample.videos) == 1:
            assert (trajectory.stop_reason is StopReason.VIDEO_ERROR) == (sample.video_path != self.video)
            assert trajectory.stop_reason is not StopReason.ABORTED
        if sample.image_paths:  # none of which is an image
            assert trajectory.stop_reason is StopReason.ABORTED
        reward = await method.score(trajectory, sample, methods.EqualJudge())
        assert all(math.isfinite(paid) for paid in reward.values())

    def _file(self, row: dict[str, Any]) -> int:
        rows = [plain_row(self.video) for _ in range(FILE_ROWS - 1)]
        try:  # what cannot stand in a file beside the others stands in one of its own
            table = pa.Table.from_pylist([*rows, _without_arrays(row)])
        except (pa.ArrowException, OverflowError, UnicodeError, TypeError, ValueError):
            try:
                table = pa.Table.from_pylist([_without_arrays(row)])
            except (pa.ArrowException, OverflowError, UnicodeError, TypeError, ValueError):
                return 0  # no parquet file holds it
        path, out = self.folder / "rows.parquet", self.folder / "good.parquet"
        try:
            pa.parquet.write_table(table, path)
        except pa.ArrowException:  # a struct without fields
            return 0
        reports = list(validate_file(path, out=out))
        assert [report.number for report in reports] == list(range(table.num_rows))
        assert pa.parquet.read_table(out).num_rows == sum(not report.problems for report in reports)
        return table.num_rows


def _odd(random: Random, name: str) -> Any:
    """A value for a field: one that fits, of another field, of another type, or spoilt."""
    roll = random.random()
    if name == "question_type" and roll < 0.8:
        return random.choice(TYPES)
    if name == "ground_truth" and roll < 0.7:
        return random.choice(TRUTHS)
    if name == "options" and roll < 0.6:
        return random.choice(
            ([], ["B"], "A", '["x", "y"]', "[1", {"A": "x"}, [None, 1.5], [["x"]], ["x"] * 40, 3, "[" * 9000)
        )
    if name == "video_segment" and roll < 0.6:
        return [texts.number(random, 2.0) for _ in range(random.choice((0, 1, 2, 2, 2, 3)))]
    if name == "video_path" and roll < 0.6:
        return random.choice(("", "missing.mp4", "/dev/null", "a\x00b.mp4", "x" * 5000, "http://x.invalid/v.mp4", "/"))
    if name == "video_paths" and roll < 0.6:
        return random.choice(([], ["missing.mp4"], ["missing.mp4"] * 2, [""], ["a", None], "v.mp4"))
    if name == "visuals" and roll < 0.6:
        return "none"
    return texts.value(random) if roll < 0.9 else texts.mutated(random, QUESTION)


def _change(row: dict[str, Any], place: list[str], kind: str, value: Any) -> None:
    *folders, name = place
    inner: Any = row
    for folder in folders:
        inner = inner.get(folder)
        if not isinstance(inner, dict):  # another change has taken its place
            return
    if kind == "missing":
        inner.pop(name, None)
    else:
        inner[name] = _array(value) if kind == "array" else value


def _array(value: Any) -> Any:
    """As verl's data sets hand over lists and numbers: as NumPy's."""
    if isinstance(value, list):
        array = np.empty(len(value), object)
        array[:] = value
        return array
    if isinstance(value, bool | float):
        return np.asarray(value)[()]
    return np.int64(value) if isinstance(value, int) and abs(value) < 2**63 else value


def _without_arrays(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_arrays(inner) for name, inner in value.items()}
    if isinstance(value, list | np.ndarray):
        return [_without_arrays(inner) for inner in value]
    return value.item() if isinstance(value, np.generic) else value
