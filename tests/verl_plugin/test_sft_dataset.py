"""The SFT data set: same tokens as a rollout, same tensors as verl's worker computes, clear errors."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import subprocess
import sys
from functools import cache
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf
from tensordict import TensorDict
from verl.utils.dataset.dataset_utils import DatasetPadMode, SFTTensorCollator
from verl.utils.model import extract_multi_modal_inputs
from verl.utils.tensordict_utils import assign_non_tensor
from verl.workers.utils.losses import sft_loss

from examples.tiny_models.tiny_model import Architecture
from tests import context_method
from tests.verl_plugin.harness import LARGE_PIXELS, MODELS, model_dir, processor, run_loop, tokenizer
from verl_video_tools.core.errors import RowError, UsageError
from verl_video_tools.core.prompts import UNKNOWN_PROMPT, prompt_digest
from verl_video_tools.data.sft import export_sft
from verl_video_tools.data.validate import validate_file
from verl_video_tools.verl_plugin.sft_dataset import TrajectorySFTDataset

pytestmark = pytest.mark.usefixtures("context_method")

END = "<|im_end|>"
OPTIONS = {"pad_mode": "no_padding", "max_length": 4096}


@pytest.fixture(scope="module")
def sft_parquet(demo_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("sft") / "sft.parquet"
    export_sft(demo_dir / "train.parquet", path)
    return str(path)


def make_dataset(
    paths: str | list[str], max_samples: int = -1, family: Architecture = "qwen2_5_vl", **options: Any
) -> TrajectorySFTDataset:
    config = OmegaConf.create({**OPTIONS, **options})
    return TrajectorySFTDataset(paths, tokenizer(family), config, processor(family), max_samples=max_samples)


@cache
def whole_dataset(path: str, folder: str) -> TrajectorySFTDataset:
    assert folder == model_dir()
    return make_dataset(path)


@pytest.fixture
def dataset(sft_parquet: str) -> TrajectorySFTDataset:
    """With the vocabulary that the test is run with."""
    return whole_dataset(sft_parquet, model_dir())


def one_of_each_template(dataset: TrajectorySFTDataset) -> list[int]:
    first: dict[str, int] = {}
    for index, row in enumerate(dataset.rows):
        first.setdefault(row["template"], index)
    assert set(first) >= {"A", "B", "C"}
    return list(first.values())


@pytest.mark.slow
@pytest.mark.usefixtures("vocabulary")
@pytest.mark.parametrize(("vocabulary", "family"), MODELS, indirect=["vocabulary"])
async def test_tokens_mask_and_tensors_equal_those_of_a_rollout(sft_parquet: str, family: Architecture) -> None:
    dataset = make_dataset(sft_parquet, family=family, mm_processor_kwargs=LARGE_PIXELS)
    options: dict[str, Any] = {"family": family, "mm_processor_kwargs": LARGE_PIXELS}
    for index in one_of_each_template(dataset):
        row = dataset.rows[index]
        rollout = await run_loop(row["turns"], row={**row, "uid": "u", "session_id": 0}, **options)
        item = await asyncio.to_thread(dataset.__getitem__, index)  # it runs an event loop of its own
        assert rollout.trajectory.answer == row["reward_model"]["ground_truth"]
        assert item["input_ids"].tolist() == rollout.ids
        assert item["loss_mask"].tolist() == [0] * len(rollout.output.prompt_ids) + rollout.output.response_mask
        inputs, positions_4L = rollout.training_tensors()
        assert torch.equal(item["position_ids"], positions_4L)
        assert set(item["multi_modal_inputs"]) == {"pixel_values", "image_grid_thw"}
        for name, tensor in extract_multi_modal_inputs([item["multi_modal_inputs"]]).items():
            assert torch.equal(tensor, inputs[name]), name


def test_a_row_crosses_processes_as_one_tensor_of_bytes(dataset: TrajectorySFTDataset) -> None:
    """What a loader's worker shares: 8-bit pixels in one file, an eighth of the processor's float32 and a half of that
    for its doubling in time."""
    index = one_of_each_template(dataset)[-1]
    values = dataset[index]["multi_modal_inputs"]["pixel_values"]
    shared: list[torch.Tensor] = []

    class Pickler(ForkingPickler):
        def reducer_override(self, value: Any) -> Any:
            if isinstance(value, torch.Tensor):
                shared.append(value)
            return NotImplemented

    Pickler(io.BytesIO()).dump(values)
    assert [tensor.dtype for tensor in shared] == [torch.uint8, torch.int32]
    assert values.resolve().nbytes == 8 * shared[0].nbytes
    assert values.shape == (len(shared[1]),)


@pytest.mark.usefixtures("vocabulary")
def test_loss_is_on_what_the_assistant_writes(dataset: TrajectorySFTDataset) -> None:
    for index in one_of_each_template(dataset):
        item = dataset[index]
        trained = tokenizer().decode(item["input_ids"][item["loss_mask"].bool()])
        assert trained == "".join(text + END for text in dataset.rows[index]["turns"])
        assert item["loss_mask"][-1] == 1
        assert item["loss_mask"][0] == 0  # verl's loss shifts the mask of packed sequences by one, around the corner


@given(st.data())
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_loss_has_each_turns_weight_on_its_tokens(dataset: TrajectorySFTDataset, data: st.DataObject) -> None:
    index = data.draw(st.sampled_from(one_of_each_template(dataset)))
    row = dataset.rows[index]
    weights = data.draw(st.lists(st.sampled_from([0.0, 0.25, 1.0, 3.0]), min_size=len(row["turns"])).filter(any))
    weights = weights[: len(row["turns"])]
    assume(any(weights))
    plain = dataset[index]
    row["turn_weights"] = weights
    try:
        item = dataset[index]
    finally:
        del row["turn_weights"]
    assert torch.equal(item["input_ids"], plain["input_ids"])
    lengths = [len(tokenizer().encode(text + END, add_special_tokens=False)) for text in row["turns"]]
    expected = [weight for weight, length in zip(weights, lengths, strict=True) for _ in range(length)]
    assert item["loss_mask"][plain["loss_mask"].bool()].tolist() == expected
    assert not item["loss_mask"][~plain["loss_mask"].bool()].any()

    batch = SFTTensorCollator(DatasetPadMode.NO_PADDING)([item, plain])
    log_probs = torch.linspace(-2.0, -0.1, 2 * len(plain["input_ids"]))
    weighted = TensorDict({"loss_mask": batch["loss_mask"]}, batch_size=[2])
    assign_non_tensor(weighted, batch_num_tokens=batch["loss_mask"].sum().item(), dp_size=1)
    output = {"log_probs": torch.nested.nested_tensor_from_jagged(log_probs, batch["loss_mask"].offsets())}
    loss, _ = sft_loss(None, output, weighted)
    by_token = torch.cat([item["loss_mask"], plain["loss_mask"]]).roll(-1)
    torch.testing.assert_close(loss, -(log_probs * by_token).sum() / by_token.sum())


@pytest.mark.parametrize(
    "weights", [[1.0], [1.0, 1.0, 1.0], [0.0, 0.0], [1.0, -1.0], [1.0, float("nan")], [1.0, float("inf")], [1.0, None]]
)
def test_weights_that_fit_no_turns_are_named(sft_parquet: str, tmp_path: Path, weights: list[float]) -> None:
    row = next(row for row in pq.read_table(sft_parquet).to_pylist() if len(row["turns"]) == 2)
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.Table.from_pylist([{**row, "turn_weights": weights}]), path)
    with pytest.raises(RowError, match=r"row .*: turn_weights must hold a number from 0 for each of its 2 turns.* got"):
        make_dataset(str(path))
    (report,) = validate_file(path)
    assert any("turn_weights must hold a number from 0 for each of its 2 turns" in text for text in report.problems)


def test_a_file_with_the_former_column_is_refused(sft_parquet: str, tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.Table.from_pylist([{**pq.read_table(sft_parquet).to_pylist()[0], "first_trained_turn": 0}]), path)
    with pytest.raises(RowError, match="has the column first_trained_turn, which turn_weights replaces"):
        make_dataset(str(path))


def test_batch_is_what_verls_engine_reads(dataset: TrajectorySFTDataset) -> None:
    items = [dataset[index] for index in one_of_each_template(dataset)]
    lengths = [len(item["input_ids"]) for item in items]
    assert len(set(lengths)) > 1
    batch = SFTTensorCollator(DatasetPadMode.NO_PADDING)(items)
    assert batch["input_ids"].offsets().diff().tolist() == lengths
    assert batch["loss_mask"].offsets().diff().tolist() == lengths
    padded = torch.nested.to_padded_tensor(batch["position_ids"], padding=0, output_size=(len(items), 4, max(lengths)))
    assert torch.equal(padded[0, :, : lengths[0]], items[0]["position_ids"])
    merged = extract_multi_modal_inputs(batch["multi_modal_inputs"])
    assert len(merged["image_grid_thw"]) == sum(len(item["multi_modal_inputs"]["image_grid_thw"]) for item in items)


_IN_A_FRESH_PROCESS = """
import sys
from omegaconf import OmegaConf
from torch.utils.data import DataLoader
from verl.utils import hf_processor, hf_tokenizer
from verl.utils.dataset.dataset_utils import DatasetPadMode, SFTTensorCollator
from verl_video_tools.verl_plugin.sft_dataset import TrajectorySFTDataset

model, parquet = sys.argv[1:]
options = OmegaConf.create({"max_length": 4096, "truncation": "skip", "num_workers": 2})
dataset = TrajectorySFTDataset(parquet, hf_tokenizer(model), options, hf_processor(model), max_samples=4)
collate = SFTTensorCollator(DatasetPadMode.NO_PADDING)
loader = DataLoader(dataset, batch_size=2, num_workers=2, collate_fn=collate, timeout=25)
print([length for batch in loader for length in batch["input_ids"].offsets().diff().tolist()])
"""


@pytest.mark.slow
def test_worker_processes_after_long_rows_were_looked_for(dataset: TrajectorySFTDataset, sft_parquet: str) -> None:
    """Decode threads do not survive a fork: had the main process started any, the workers would wait for ever."""
    arguments = [sys.executable, "-W", "ignore", "-c", _IN_A_FRESH_PROCESS, model_dir(), sft_parquet]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=90)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == str([len(dataset[index]["input_ids"]) for index in range(4)])


# ------------------------------------------------------------------------------------------------------------- options


def test_prompt_file_reaches_the_prompt(sft_parquet: str, tmp_path: Path) -> None:
    prompt = tmp_path / "prompt.txt"
    prompt.write_text("Look closely.")
    dataset = make_dataset(sft_parquet, max_samples=1, video_tools={"framethinker": {"prompt_file": str(prompt)}})
    text = tokenizer().decode(dataset[0]["input_ids"])
    assert text.startswith(f"<|im_start|>system\nLook closely.{END}\n<|im_start|>user")


def test_unknown_method_field_is_reported_before_training(sft_parquet: str) -> None:
    with pytest.raises(UsageError, match="no_such_field"):
        make_dataset(sft_parquet, video_tools={"framethinker": {"no_such_field": 1}})


def test_several_files_and_max_samples(sft_parquet: str) -> None:
    assert len(make_dataset([sft_parquet, sft_parquet])) == 2 * len(make_dataset(sft_parquet))
    assert len(make_dataset(sft_parquet, max_samples=3)) == 3


def test_fewer_rows_than_a_batch_are_refused(sft_parquet: str) -> None:
    with pytest.raises(UsageError, match="3 rows do not fill one batch of 4"):
        make_dataset(sft_parquet, max_samples=3, train_batch_size=4)
    assert len(make_dataset(sft_parquet, max_samples=4, train_batch_size=4)) == 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pad_mode": "right"}, "pad_mode"),
        ({"truncation": "left"}, "truncation"),
        ({"truncation": "right"}, "truncation"),
    ],
)
def test_options_that_would_cut_pictures_are_refused(sft_parquet: str, options: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make_dataset(sft_parquet, **options)


def test_text_model_is_refused(sft_parquet: str) -> None:
    with pytest.raises(UsageError, match="no multimodal processor"):
        TrajectorySFTDataset(sft_parquet, tokenizer(), OmegaConf.create(OPTIONS))


# ----------------------------------------------------------------------------------------------------------- long rows


@pytest.mark.usefixtures("vocabulary")
def test_long_row_is_named(dataset: TrajectorySFTDataset, sft_parquet: str) -> None:
    length = len(dataset[2]["input_ids"])
    assert len(make_dataset(sft_parquet, max_length=length)[2]["input_ids"]) == length
    index = dataset.rows[2]["extra_info"]["index"]
    message = rf"row index={index} split=train: {length} tokens, but data.max_length={length - 1}"
    with pytest.raises(RowError, match=message):
        make_dataset(sft_parquet, max_length=length - 1)[2]


def test_long_rows_are_left_out_and_counted(
    dataset: TrajectorySFTDataset, sft_parquet: str, caplog: pytest.LogCaptureFixture
) -> None:
    items = [dataset[index] for index in range(8)]
    lengths = [len(item["input_ids"]) for item in items]
    limit = sorted(lengths)[4]
    with caplog.at_level(logging.WARNING):
        short = make_dataset(sft_parquet, max_samples=8, max_length=limit, truncation="skip")
    kept = [index for index in range(8) if lengths[index] <= limit]
    assert [short[position]["input_ids"].tolist() for position in range(len(short))] == [
        items[index]["input_ids"].tolist() for index in kept
    ]
    assert f"{8 - len(kept)} of 8 rows are longer than data.max_length={limit}" in caplog.text


def test_only_long_rows_is_an_error(sft_parquet: str) -> None:
    with pytest.raises(RowError, match="all 4 rows are longer"):
        make_dataset(sft_parquet, max_samples=4, max_length=10, truncation="skip")


# --------------------------------------------------------------------------------------------------------- broken rows


def write(rows: list[dict[str, Any]], path: Path) -> str:
    pq.write_table(pa.Table.from_pylist(rows), path)
    return str(path)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda turns: turns[:-1], "turns used up without an answer"),
        (lambda turns: [*turns, turns[-1]], "answer"),
        (lambda turns: ["nothing", *turns], "no_action"),
    ],
)
def test_turns_that_do_not_replay_are_named(
    dataset: TrajectorySFTDataset, tmp_path: Path, change: Any, reason: str
) -> None:
    row = dataset.rows[one_of_each_template(dataset)[1]]
    broken = make_dataset(write([{**row, "turns": change(row["turns"])}], tmp_path / "broken.parquet"))
    with pytest.raises(RowError, match=rf"row index={row['extra_info']['index']} .* do not replay .*{reason}"):
        broken[0]


def test_a_row_of_a_recorded_rollout_shows_what_that_was_shown(dataset: TrajectorySFTDataset, tmp_path: Path) -> None:
    """Those of a group may have been shown different frames by design, and the run may have had other settings."""
    row = dataset.rows[one_of_each_template(dataset)[0]]
    settings = json.dumps({"initial_frames": 3, "initial_frames_long": 3, "call_frames": 3, "call_frames_long": 3})
    own = make_dataset(write([{**row, "settings": settings}], tmp_path / "own.parquet"))
    shown = dataset.sequences(one_of_each_template(dataset)[0])[0].images
    assert len(own.sequences(0)[0].images) < len(shown)

    recorded = {**row, "settings": settings, "initial_frames": json.dumps([0, 1, 2, 3])}
    with pytest.raises(RowError, match=r"first shown 4 frames \(0, 1, 2, ...\), and is replayed with 3 frames \(0, "):
        make_dataset(write([recorded], tmp_path / "other.parquet"))[0]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"prompt_file": "/etc/hostname"},
            "may not set prompt_file of FrameThinker.*--set or video_tools.framethinker",
        ),
        (
            {"initial_frames_selector": "tests.data.imported:function"},
            "may not set initial_frames_selector of FrameThinker",
        ),
        ({"no_such_field": 1}, "no field 'no_such_field'; its fields are"),
        ({"initial_frames": "8"}, "initial_frames takes int, got '8'"),
        ([], "must hold a JSON object of fields, got '\\[\\]'"),
    ],
)
def test_a_row_names_no_code_and_no_file(
    dataset: TrajectorySFTDataset, tmp_path: Path, settings: Any, message: str
) -> None:
    """Told with the row before training, and neither imported nor read."""
    good, bad = dataset.rows[0], {**dataset.rows[1], "settings": json.dumps(settings)}
    path = write([{**good, "settings": "{}"}, bad], tmp_path / "bad.parquet")
    with pytest.raises(RowError, match=rf"row index={bad['extra_info']['index']} split=train: .*{message}"):
        make_dataset(path)
    assert "tests.data.imported" not in sys.modules


def test_settings_nested_too_deep_are_told_with_the_row(dataset: TrajectorySFTDataset, tmp_path: Path) -> None:
    path = write([{**dataset.rows[0], "settings": "[" * 100_000}], tmp_path / "deep.parquet")
    with pytest.raises(RowError, match="the column settings must hold a JSON object of fields"):
        make_dataset(path)


def test_rows_of_another_prompt_are_counted(
    dataset: TrajectorySFTDataset, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    prompt = tmp_path / "prompt.txt"
    prompt.write_text("Look closely.")
    recorded = [prompt_digest(prompt), prompt_digest(prompt), None]
    rows = [{**row, "prompt_digest": digest} for row, digest in zip(dataset.rows, recorded, strict=False)]
    path = write(rows, tmp_path / "rows.parquet")
    with caplog.at_level(logging.WARNING):
        make_dataset(path)
    packaged = f"2 of 3 rows: recorded with a prompt_file of digest {recorded[0]}, replayed with the packaged system"
    assert packaged in caplog.text
    caplog.clear()
    make_dataset(path, video_tools={"framethinker": {"prompt_file": str(prompt)}})
    assert "1 of 3 rows: recorded with the packaged system prompt, replayed with a prompt_file of" in caplog.text
    caplog.clear()
    make_dataset(write([{**row} for row in rows[2:]], tmp_path / "same.parquet"))
    unknown = [{**row, "prompt_digest": UNKNOWN_PROMPT} for row in rows]
    make_dataset(write(unknown, tmp_path / "unknown.parquet"))
    assert "recorded with" not in caplog.text


def test_missing_video_is_named(dataset: TrajectorySFTDataset, tmp_path: Path) -> None:
    row = dataset.rows[0]
    moved = {**row, "extra_info": {**row["extra_info"], "video_path": "gone.mp4"}}
    with pytest.raises(RowError, match=r"row index=0 split=train: .*gone.mp4"):
        make_dataset(write([moved], tmp_path / "moved.parquet"))[0]


def test_rows_without_turns_are_refused(demo_dir: Path) -> None:
    with pytest.raises(RowError, match=r"lacks the columns turns; write it with `vvt data export-sft`"):
        make_dataset(str(demo_dir / "train.parquet"))


# --------------------------------------------------------------------------------------------------------------- cache


def count_episodes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    import verl_video_tools.verl_plugin.sft_dataset as module

    started: list[int] = []

    class CountingEpisode(module.Episode):
        async def start(self) -> Any:
            started.append(1)
            return await super().start()

    monkeypatch.setattr(module, "Episode", CountingEpisode)
    return started


def test_rows_are_decoded_once(sft_parquet: str, monkeypatch: pytest.MonkeyPatch) -> None:
    started = count_episodes(monkeypatch)
    dataset = make_dataset(sft_parquet, max_samples=2)
    first = [dataset[0], dataset[1]]
    second = [dataset[0], dataset[1]]
    assert len(started) == 2
    assert torch.equal(first[1]["input_ids"], second[1]["input_ids"])


def test_cache_is_bounded(sft_parquet: str, monkeypatch: pytest.MonkeyPatch) -> None:
    started = count_episodes(monkeypatch)
    dataset = make_dataset(sft_parquet, max_samples=2, trajectory_cache_mib=0)
    for _ in range(2):
        dataset[0]
        dataset[1]
    assert len(started) == 4


@pytest.mark.parametrize("truncation", ["error", "skip"])
@pytest.mark.parametrize("context", ["last_evidence", "notes"])
async def test_a_row_under_a_context_policy_is_several_items(
    dataset: TrajectorySFTDataset, tmp_path: Path, context: str, truncation: str
) -> None:
    """Those of the same rollout in reinforcement learning, each turn with its weight."""
    fields = {"context": context}
    first, second = sorted(dataset.rows, key=lambda row: len(row["turns"]))[-2:]
    weights = [0.0, *[2.0] * (len(second["turns"]) - 1)]
    rows = [
        {**first, "agent_name": context_method.NAME, "turn_weights": [1.0] * len(first["turns"])},
        {**second, "agent_name": context_method.NAME, "turn_weights": weights},
    ]
    path = write(rows, tmp_path / "rows.parquet")

    def items() -> list[dict[str, Any]]:  # the data set runs an event loop of its own
        made = make_dataset(path, truncation=truncation, video_tools={context_method.NAME: fields})
        return [made[index] for index in range(len(made))]

    made = await asyncio.to_thread(items)
    rollouts = [
        await run_loop(
            row["turns"],
            row={**row, "uid": "u", "session_id": 0},
            method=context_method.NAME,
            method_fields=fields,
        )
        for row in rows
    ]
    sequences = [sequence for rollout in rollouts for sequence in rollout.sequences]
    assert len(sequences) > len(rows)
    assert [item["input_ids"].tolist() for item in made] == [sequence.ids for sequence in sequences]
    masks = [[0] * len(each.output.prompt_ids) + each.output.response_mask for each in sequences]
    num_first = len(rollouts[0].outputs)
    assert [item["loss_mask"].tolist() for item in made[:num_first]] == masks[:num_first]
    num_unweighted = len(rollouts[1].server.returned[0])
    trained = [
        weight
        for item, mask in zip(made[num_first:], masks[num_first:], strict=True)
        for weight, keep in zip(item["loss_mask"].tolist(), mask, strict=True)
        if keep
    ]
    assert trained == [0.0] * num_unweighted + [2.0] * (len(trained) - num_unweighted)
