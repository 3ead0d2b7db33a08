"""The agent loop with a chat template that opens the reasoning: tokens as sampled, turns as the method reads them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.turns.framethinker import answer, choose
from tests.verl_plugin.harness import (
    make_row,
    open_reasoning,
    processor,
    run_loop,
    tokenizer,
    using_vocabulary,
    video,
)
from verl_video_tools.core.types import Sample, StopReason
from verl_video_tools.methods import get_method
from verl_video_tools.synthetic import Family
from verl_video_tools.verl_plugin.sft_dataset import TrajectorySFTDataset

LOOK, ANSWER = choose(20, 100), answer("B")
NAMES_AN_ANSWER = "First <action>output answer: A</action>, no."


@pytest.fixture(params=["home-made", "released", "released, thinking"])
def family(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Family]:
    """Of Qwen2.5-VL, tiny and with the released vocabulary, the template is changed; Qwen3-VL-Thinking's opens one."""
    family: Family = "qwen3_vl" if request.param == "released, thinking" else "qwen2_5_vl"
    with using_vocabulary(request.param):
        if family == "qwen2_5_vl":
            open_reasoning(monkeypatch)
        yield family


async def test_a_turn_that_goes_on_from_the_opened_thought_is_well_formed(family: Family) -> None:
    turns = [turn.removeprefix("<think>") for turn in (LOOK, ANSWER)]
    rollout = await run_loop(turns, family=family)
    trajectory = rollout.trajectory
    assert [turn.text for turn in trajectory.turns] == [LOOK, ANSWER]
    assert all(turn.well_formed and turn.reasoning is None for turn in trajectory.turns)
    reward = await get_method("framethinker").score(trajectory, Sample.from_row(make_row(video())))
    assert (reward["ccv"], reward["accuracy"]) == (1.0, 1.0)
    assert rollout.text_of(1) == "".join(f"{turn}<|im_end|>" for turn in turns)
    assert rollout.text_of(0).count("<think>\n") == 1


async def test_reasoning_before_the_methods_own_thought_is_no_part_of_the_turn(family: Family) -> None:
    rollout = await run_loop([f"{NAMES_AN_ANSWER}\n</think>\n\n{turn}" for turn in (LOOK, ANSWER)], family=family)
    assert [turn.text for turn in rollout.trajectory.turns] == [LOOK, ANSWER]
    assert {turn.reasoning for turn in rollout.trajectory.turns} == {NAMES_AN_ANSWER}
    assert (rollout.trajectory.answer, len(rollout.trajectory.executed_calls())) == ("B", 1)
    assert rollout.text_of(1).count(NAMES_AN_ANSWER) == 2  # sampled, so trained on


async def test_reasoning_that_is_cut_says_nothing(family: Family) -> None:
    turn = f"{NAMES_AN_ANSWER} {'and so on ' * 200}"
    rollout = await run_loop([turn], method_fields={"max_turn_tokens": 60}, family=family)
    trajectory = rollout.trajectory
    assert (trajectory.stop_reason, trajectory.answer) == (StopReason.RESPONSE_BUDGET, None)
    assert trajectory.turns[0].text == "" and str(trajectory.turns[0].reasoning).startswith(NAMES_AN_ANSWER)


@pytest.mark.parametrize("reasoning", [None, NAMES_AN_ANSWER])
async def test_fine_tuning_has_the_tokens_of_the_rollout(family: Family, tmp_path: Path, reasoning: str | None) -> None:
    if reasoning is None:
        turns = [turn.removeprefix("<think>") for turn in (LOOK, ANSWER)]
    else:
        turns = [f"{reasoning}\n</think>\n\n{turn}" for turn in (LOOK, ANSWER)]
    rollout = await run_loop(turns, family=family)
    trajectory = rollout.trajectory
    row = {
        **{name: value for name, value in make_row(video()).items() if name != "raw_prompt"},
        "agent_name": "framethinker",
        "turns": [turn.text for turn in trajectory.turns],
        "reasoning": [turn.reasoning for turn in trajectory.turns],
        "settings": json.dumps({}),
    }
    pq.write_table(pa.Table.from_pylist([row]), tmp_path / "rows.parquet")
    loaded = (tokenizer(family), {"max_length": 8192}, processor(family))
    dataset = TrajectorySFTDataset(str(tmp_path / "rows.parquet"), *loaded)
    (stream,) = await dataset._encode(dataset.rows[0])
    assert (stream.ids, stream.response_mask) == (rollout.ids, rollout.output.response_mask)
