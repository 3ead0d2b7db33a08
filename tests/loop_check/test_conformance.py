"""A whole conformance run of verl's own tool loop and of ours, with every fault, but without Ray and vLLM."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
from verl.utils.dataset.rl_dataset import RLHFDataset

from tests.context_method import NAME
from tests.loop_check.runs import GROUP_SIZE, MODEL, conformance_run, run_config
from tests.turns.framethinker import answer as framethinker_answer
from tests.turns.framethinker import choose
from tests.turns.tagged import answer, think, tool_call
from tests.videos.files import write_video
from verl_video_tools.data.stock_rows import to_tool_agent_row
from verl_video_tools.loop_check import reference
from verl_video_tools.loop_check.audit import CLEAN, Verdict, audit, is_good
from verl_video_tools.loop_check.checks import Context
from verl_video_tools.loop_check.faults import FAULTS
from verl_video_tools.loop_check.model import RunModel
from verl_video_tools.loop_check.records import STALE_VARIABLE, STALE_WEIGHTS, read_rollouts, read_settings
from verl_video_tools.loop_check.worker import StockManager, VideoManager
from verl_video_tools.methods import get_method

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]

FIELDS = {"initial_frames": 3, "call_frames": 2}
TURNS = [think(tool_call("crop_video", start_time=1.0, end_time=3.0)), answer("B")]
MAX_DIFFERENCE = 3e-4


@pytest.fixture(scope="module")
def video(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("videos") / "video.mp4"
    return str(write_video(path, num_frames=60, fps=10, width=56, height=56))


def row(video: str, fault: str | None, index: int) -> dict[str, Any]:
    question = "What is shown at 0:03?\nA. red circle\nB. blue square"
    return {
        "data_source": "test",
        "reward_model": {"style": "rule", "ground_truth": "B"},
        "raw_prompt": [{"role": "user", "content": question}],
        "agent_name": "longvt",
        "extra_info": {"question": question, "video_path": video, "index": index, "fault": fault},
    }


async def stock_row(video: str, fault: str | None, index: int, processor: Any) -> dict[str, Any]:
    """As verl's data set makes it of a converted row."""
    converted = await to_tool_agent_row(row(video, fault, index), get_method("longvt", **FIELDS))
    dataset = RLHFDataset.__new__(RLHFDataset)
    dataset.image_key, dataset.video_key, dataset.audio_key, dataset.processor = "images", "videos", "audios", processor
    # Pickled, as on its way to a worker: images that are read at their first use are no matter for several rollouts.
    converted["raw_prompt"] = pickle.loads(pickle.dumps(dataset._build_messages(converted, key="prompt")))
    converted["tools_kwargs"] = converted["extra_info"]["tools_kwargs"]
    return {name: value for name, value in converted.items() if name not in ("prompt", "images")}


def verdicts(folder: Path) -> dict[str, Verdict]:
    rollouts, settings = read_rollouts(folder), read_settings(folder)
    context = Context(RunModel(folder, MODEL, None, settings), settings, frozenset({1}), MAX_DIFFERENCE)
    found = audit(rollouts, context)
    assert is_good(found), [verdict.to_dict() for verdict in found if not verdict.is_good]
    return {verdict.fault: verdict for verdict in found}


@pytest.fixture
async def stock(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, video: str) -> dict[str, Verdict]:
    tools = tmp_path / "tools.yaml"
    config = ", ".join(f"{name}: {value}" for name, value in FIELDS.items())
    tools.write_text(
        f"tools:\n- class_name: verl_video_tools.tools.stock.CropVideoTool\n  config: {{type: native, {config}}}\n"
    )
    processor = reference.load(MODEL)[1]
    rows = [await stock_row(video, fault, i, processor) for i, fault in enumerate([None, *FAULTS])]
    options = run_config(f"actor_rollout_ref.rollout.multi_turn.tool_config_path={tools}", agent_name="tool_agent")
    await conformance_run(monkeypatch, tmp_path / "taps", StockManager, options, rows, TURNS, knows_flags=False)
    return verdicts(tmp_path / "taps")


@pytest.fixture
async def ours(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, video: str) -> dict[str, Verdict]:
    fields = [f"+actor_rollout_ref.rollout.custom.video_tools.longvt.{k}={v}" for k, v in FIELDS.items()]
    rows = [row(video, fault, i) for i, fault in enumerate([None, *FAULTS])]
    options = run_config(*fields, agent_name="longvt")
    await conformance_run(monkeypatch, tmp_path / "taps", VideoManager, options, rows, TURNS, knows_flags=True)
    return verdicts(tmp_path / "taps")


LOOP_FAULTS = {
    "missing_image": {"ids_given"},
    "wrong_order": {"images_given", "engine_log_probs"},
    "stale_encoder_cache": {"engine_log_probs"},
    "retokenised_text": {"ids_sampled", "mask", "log_probs_kept"},
    "mask_off_by_one": {"mask"},
    "flat_positions": {"positions", "actor_log_probs"},
}
"""Checks that must see a fault, whatever the loop."""


def assert_caught(found: dict[str, Verdict]) -> None:
    assert found[CLEAN].num_rollouts == GROUP_SIZE
    assert min(found[CLEAN].num_checked.values()) == GROUP_SIZE, "every check was applied to every clean rollout"
    for name, checks in LOOP_FAULTS.items():
        verdict = found[name]
        assert verdict.num_caught == verdict.num_rollouts == GROUP_SIZE, (name, verdict)
        assert checks <= set(verdict.by_check), (name, verdict)


async def test_verls_tool_loop(stock: dict[str, Verdict]) -> None:
    assert_caught(stock)
    placeholder = stock["sampled_placeholder"]
    assert placeholder.num_rollouts == GROUP_SIZE
    assert placeholder.num_failed + placeholder.num_caught == GROUP_SIZE
    lost = stock["lost_rollout"]
    assert (lost.num_rollouts, lost.num_caught, set(lost.by_check)) == (1, 1, {"advantages"})


async def test_our_loop(ours: dict[str, Verdict]) -> None:
    assert_caught(ours)
    placeholder = ours["sampled_placeholder"]
    assert (placeholder.num_rollouts, placeholder.num_left_out) == (GROUP_SIZE, GROUP_SIZE)
    assert set(placeholder.flags) == {"invariant"}
    lost = ours["lost_rollout"]
    assert (lost.num_rollouts, lost.num_left_out, lost.num_caught) == (1, 1, 0)


async def test_stale_weights_are_planted_in_place_of_the_rows_own_fault(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, video: str
) -> None:
    """Here the weights are as they should be, so that nothing is caught."""
    monkeypatch.setenv(STALE_VARIABLE, "1")
    rows = [row(video, "mask_off_by_one", 0)]
    await conformance_run(
        monkeypatch, tmp_path, VideoManager, run_config(agent_name="longvt"), rows, TURNS, knows_flags=True
    )
    rollouts, settings = read_rollouts(tmp_path), read_settings(tmp_path)
    found = audit(
        rollouts, Context(RunModel(tmp_path, MODEL, None, settings), settings, frozenset({1}), MAX_DIFFERENCE)
    )
    stale = next(verdict for verdict in found if verdict.fault == STALE_WEIGHTS)
    assert (stale.num_rollouts, stale.num_caught, stale.is_good) == (GROUP_SIZE, 0, False)


@pytest.mark.usefixtures("context_method")
async def test_rollouts_of_several_sequences(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, video: str) -> None:
    """Each turn is a sequence of its own, without the frames of the turns before."""
    section = f"+actor_rollout_ref.rollout.custom.video_tools.{NAME}"
    fields = [f"{section}.{name}={value}" for name, value in FIELDS.items()]
    loops = Path(__file__).parents[1] / "integration" / "method_loops.yaml"
    options = run_config(*fields, f"actor_rollout_ref.rollout.agent.agent_loop_config_path={loops}", agent_name=NAME)
    faults = [None, "wrong_order", "mask_off_by_one", "flat_positions", "lost_rollout"]
    rows = [row(video, fault, i) | {"agent_name": NAME} for i, fault in enumerate(faults)]
    turns = [choose(1, 40), framethinker_answer("B")]
    await conformance_run(monkeypatch, tmp_path, VideoManager, options, rows, turns, knows_flags=True)
    assert all(len(rollout.rows) == len(rollout.generations) == 2 for rollout in read_rollouts(tmp_path))
    found = verdicts(tmp_path)
    assert found[CLEAN].num_rollouts == min(found[CLEAN].num_checked.values()) == GROUP_SIZE
    for name in faults[1:4]:
        assert found[name].num_caught == GROUP_SIZE and LOOP_FAULTS[name] <= set(found[name].by_check), found[name]
    assert (found["lost_rollout"].num_left_out, found["lost_rollout"].num_caught) == (1, 0)
