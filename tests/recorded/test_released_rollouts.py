"""With released vocabularies rollouts have the recorded tokens (`released_rollouts` says how to read them)."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("verl", reason="rollouts have verl's token builder")

from tests.recorded.record import DATA
from tests.recorded.released_rollouts import TOOL_CASES, file_name, roll_out, rollout_lines
from tests.released_models import vocabulary_dir
from tests.turns.every_method import Case
from tests.verl_plugin.harness import make_row, processor, tokenizer, using_vocabulary, video
from verl_video_tools.services.retrieval import recorded_answers
from verl_video_tools.synthetic import FAMILIES, Family
from verl_video_tools.verl_plugin.sft_dataset import TrajectorySFTDataset

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("case", TOOL_CASES, ids=lambda case: case.method)
def test_a_rollout_has_the_recorded_tokens(case: Case, family: Family) -> None:
    vocabulary_dir(family)
    recorded = (DATA / file_name(case, family)).read_text(encoding="utf-8").splitlines()
    assert rollout_lines(case, family) == recorded, "python -m tests.recorded.released_rollouts records them anew"


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("case", TOOL_CASES, ids=lambda case: case.method)
async def test_fine_tuning_on_the_same_turns_has_the_same_tokens(case: Case, family: Family, tmp_path: Path) -> None:
    vocabulary_dir(family)
    with using_vocabulary("released"):
        rollout = await roll_out(case, family)
        row = {
            **{name: value for name, value in make_row(video()).items() if name != "raw_prompt"},
            "agent_name": case.method,
            "turns": [turn.text for turn in rollout.trajectory.turns],
            "retrieved_frames": recorded_answers(rollout.trajectory),
            "settings": json.dumps(case.fields | rollout.trajectory.settings),
        }
        pq.write_table(pa.Table.from_pylist([row]), tmp_path / "rows.parquet")
        options = {"max_length": 16_384}
        dataset = TrajectorySFTDataset(str(tmp_path / "rows.parquet"), tokenizer(family), options, processor(family))
        (stream,) = await dataset._encode(dataset.rows[0])
    assert (stream.ids, stream.response_mask) == (rollout.ids, rollout.output.response_mask)
