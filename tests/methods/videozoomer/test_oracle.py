"""VideoZoomer's scripted expert: its templates, true thoughts, requests within the limit, and rows made of it."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch
from omegaconf import OmegaConf

from tests.verl_plugin.harness import LARGE_PIXELS, Unended, processor, run_loop, tokenizer
from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.types import ParsedTurn, Sample
from verl_video_tools.data.sft import execute, export_sft
from verl_video_tools.data.synthetic_rows import load_rows, make_demo, question_from_row
from verl_video_tools.methods.toolkit.oracle import Script
from verl_video_tools.methods.videozoomer import VideoZoomer
from verl_video_tools.methods.videozoomer.grammar import parse_turn
from verl_video_tools.methods.videozoomer.oracle import VideoZoomerOracle
from verl_video_tools.synthetic.questions import KINDS, make_questions
from verl_video_tools.synthetic.seconds import frames_in_seconds
from verl_video_tools.synthetic.world import label_at, random_spec
from verl_video_tools.verl_plugin.sft_dataset import TrajectorySFTDataset

WORLD = [
    (spec, frames_in_seconds(spec, question))
    for spec in map(random_spec, range(60))
    for question in make_questions(spec, count=4, seed=0)
]
METHOD = VideoZoomer(initial_frames=8)
"""The initial frames of the synthetic world's recipe: 8 frames, between which most events hide."""
EXPERT = VideoZoomerOracle(seed=1, method=METHOD)
STOP = "</video_zoom>"
END = "<|im_end|>"


def parsed(script: Script) -> list[ParsedTurn]:
    turns = [parse_turn(text) for text in script.turns]
    assert all(turn.well_formed for turn in turns)
    assert [turn.answer is None for turn in turns] == [True] * (len(turns) - 1) + [False]
    return turns


def requests(script: Script) -> list[tuple[float, float, float]]:
    calls = [call.arguments for turn in parsed(script) for call in turn.calls]
    return [(*call["segment"], call["fps"]) for call in calls]


def test_questions_name_times_and_options_stay() -> None:
    for spec in map(random_spec, range(5)):
        for question in make_questions(spec, count=6, seed=1):
            timed = frames_in_seconds(spec, question)
            assert "frame" not in timed.text
            assert timed.text.split("\n")[1:] == question.text.split("\n")[1:]
            assert (timed.answer, timed.evidence, timed.clock) == (question.answer, question.evidence, question.clock)
            if question.kind in ("at_time", "between_frames", "order", "count"):
                start, end = re.findall(r"(\d+\.\d\d) s", timed.text)
                assert (round(float(start) * spec.fps), round(float(end) * spec.fps)) == question.evidence[0]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", [METHOD, VideoZoomer()])
def test_perfect_expert_answers_right(kind: str, method: VideoZoomer) -> None:
    expert = VideoZoomerOracle(seed=1, method=method)
    for spec, question in WORLD:
        if question.kind == kind:
            assert parsed(expert.script(spec, question))[-1].answer == question.answer


def test_templates_of_each_kind() -> None:
    templates = Counter((question.kind, EXPERT.script(spec, question).template) for spec, question in WORLD)
    needs_zoom = {"at_time", "between_frames", "order", "count"}
    assert set(templates) == {
        ("direct", "direct"),
        *((kind, "hit") for kind in needs_zoom),
        *((kind, "reflect") for kind in needs_zoom),
        ("between_frames", "progressive"),
        ("order", "split"),
        ("count", "split"),
    }


def test_shape_of_each_template() -> None:
    for spec, question in WORLD:
        script = EXPERT.script(spec, question)
        zooms = requests(script)
        start, end = (frame / spec.fps for frame in question.evidence[0])
        for zoom_start, zoom_end, fps in zooms:
            assert 0 <= zoom_start < zoom_end <= spec.num_frames / spec.fps
            assert 1 <= fps * (zoom_end - zoom_start) <= 16 + 1e-6
            assert fps <= spec.fps
        segments = [pytest.approx((zoom_start, zoom_end)) for zoom_start, zoom_end, _ in zooms]
        match script.template:
            case "direct":
                assert zooms == []
            case "hit":
                assert [(start, end)] == segments
            case "progressive":
                assert (start, end) == segments[1]
                assert zooms[0][0] <= start < end <= zooms[0][1] and (start, end) != segments[0]
            case "split":
                assert (zooms[0][0], zooms[1][1]) == pytest.approx((start, end))
                assert zooms[0][1] == zooms[1][0]
            case "reflect":
                assert (start, end) == segments[1]
                assert zooms[0][1] < start or zooms[0][0] > end


@pytest.mark.slow
@pytest.mark.parametrize("imperfection", [0.0, 0.6])
async def test_final_thoughts_tell_the_truth_about_frames_that_were_shown(
    rows: list[dict[str, Any]], imperfection: float
) -> None:
    """Executed: every time that a thought names stands in a label that the model read, and shows what it says."""
    told = 0
    for row in rows:
        spec, question = question_from_row(row)
        script = VideoZoomerOracle(seed=2, imperfection=imperfection, method=METHOD).script(spec, question)
        trajectory = await execute(METHOD, Sample.from_row(row), script.turns)
        frames = trajectory.initial_frames + [frame for call in trajectory.calls() for frame in call.frames]
        labels = {f"{frame.timestamp_seconds:.2f}": frame.index for frame in frames}
        for time, label in re.findall(r"(\d+\.\d\d) s (\w+ \w+)", trajectory.turns[-1].thought or ""):
            told += 1
            assert label_at(spec, labels[time]) == label
    assert told > 5


def test_same_seed_same_script() -> None:
    for spec, question in WORLD[:40]:
        assert EXPERT.script(spec, question) == VideoZoomerOracle(seed=1, method=METHOD).script(spec, question)
    other = VideoZoomerOracle(seed=9, method=METHOD)
    assert any(EXPERT.script(spec, question) != other.script(spec, question) for spec, question in WORLD)


def test_imperfect_expert_is_wrong_now_and_then() -> None:
    hard = [(spec, question) for spec, question in WORLD if question.kind != "direct"]
    expert = VideoZoomerOracle(imperfection=1.0, method=METHOD)
    right = [parsed(expert.script(spec, question))[-1].answer == question.answer for spec, question in hard]
    assert 0.15 < sum(right) / len(right) < 0.4  # four options
    assert {expert.script(spec, question).template for spec, question in hard} == {"direct", "hit"}


@pytest.mark.parametrize("field", ["imperfection", "progressive_share", "split_share", "reflect_share"])
def test_shares_are_probabilities(field: str) -> None:
    with pytest.raises(UsageError, match=field):
        VideoZoomerOracle(**{field: 1.5})


# ---------------------------------------------------------------------------------------------------------------- rows

SETTINGS = {"initial_frames": 8}


@pytest.fixture(scope="session")
def zoomer_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The synthetic world with rows for VideoZoomer."""
    return make_demo(
        tmp_path_factory.mktemp("zoomer"),
        num_train_videos=4,
        num_test_videos=1,
        questions_per_video=4,
        seed=3,
        agent_names=["videozoomer"],
        num_processes=1,
    )


@pytest.fixture(scope="session")
def rows(zoomer_dir: Path) -> list[dict[str, Any]]:
    return load_rows(zoomer_dir / "train.parquet")


@pytest.fixture(scope="session")
def sft_parquet(zoomer_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("zoomer_sft") / "sft.parquet"
    report = export_sft(zoomer_dir / "train.parquet", path, settings=SETTINGS)
    assert (report.kept.total(), report.dropped.total()) == (16, 0)
    return str(path)


def test_wrong_answers_are_dropped_though_their_format_is_paid(zoomer_dir: Path, tmp_path: Path) -> None:
    report = export_sft(zoomer_dir / "train.parquet", tmp_path / "sft.parquet", imperfection=1.0, settings=SETTINGS)
    assert report.dropped["wrong answer"] > 5
    assert report.kept.total() + report.dropped.total() == 16


def test_fresh_questions_name_times(zoomer_dir: Path, tmp_path: Path) -> None:
    export_sft(zoomer_dir / "test.parquet", tmp_path / "sft.parquet", questions_per_video=6, settings=SETTINGS)
    written = pq.read_table(tmp_path / "sft.parquet").to_pylist()
    assert len(written) == 6
    assert all("frame" not in row["extra_info"]["question"] for row in written)


async def test_tokens_mask_and_positions_equal_those_of_a_rollout(sft_parquet: str) -> None:
    """One observation format for SFT and reinforcement learning; position ids are the model's own 3-D ones."""
    options = {"max_length": 4096, "video_tools": {"videozoomer": SETTINGS}, "mm_processor_kwargs": LARGE_PIXELS}
    dataset = TrajectorySFTDataset(sft_parquet, tokenizer(), OmegaConf.create(options), processor())
    first: dict[str, int] = {}
    for index, row in enumerate(dataset.rows):
        first.setdefault(row["template"], index)
    assert set(first) >= {"direct", "hit"}
    for index in first.values():
        row = dataset.rows[index]
        turns = [Unended(text) if text.endswith(STOP) else text for text in row["turns"]]
        rollout = await run_loop(
            turns,
            method="videozoomer",
            method_fields=SETTINGS,
            mm_processor_kwargs=LARGE_PIXELS,
            row={**row, "uid": "u", "session_id": 0},
        )
        item = await asyncio.to_thread(dataset.__getitem__, index)
        assert rollout.trajectory.answer == row["reward_model"]["ground_truth"]
        assert item["input_ids"].tolist() == rollout.ids
        assert item["loss_mask"].tolist() == [0] * len(rollout.output.prompt_ids) + rollout.output.response_mask
        inputs, positions_4L = rollout.training_tensors()
        assert torch.equal(item["position_ids"], positions_4L)
        assert torch.equal(item["multi_modal_inputs"]["pixel_values"].resolve(), inputs["pixel_values"])
        trained = tokenizer().decode(item["input_ids"][item["loss_mask"].bool()])
        assert trained == "".join(text if text.endswith(STOP) else text + END for text in row["turns"])
