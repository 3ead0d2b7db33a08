"""Rows about pictures as training sequences, held against what the model's own processor makes of the same pictures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image
from verl.utils.dataset.dataset_utils import DatasetPadMode, SFTTensorCollator

from examples.tiny_models.tiny_model import ARCHITECTURES, Architecture
from tests.verl_plugin.harness import processor, tokenizer, video
from verl_video_tools.core.errors import RowError, UsageError
from verl_video_tools.core.prompts import load_prompt
from verl_video_tools.core.types import PixelEnvelope
from verl_video_tools.data.picture_rows import picture_faults, read_picture
from verl_video_tools.verl_plugin.sft_dataset import TrajectorySFTDataset

TURN = "<think>The left bar is higher.</think>\n<answer>A</answer>"
QUESTION = "Which is higher?\nA. left\nB. right"
END = "<|im_end|>"


def picture(path: Path, width: int, height: int, seed: int = 0) -> str:
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)
    return str(path)


def row(paths: Sequence[str], turn: str = TURN, question: str = QUESTION, **changes: Any) -> dict[str, Any]:
    extra_info = {"question": question, "image_paths": list(paths), "index": 7, "split": "train"}
    truth = {"style": "rule", "ground_truth": "A"}
    return {"agent_name": "longvt", "reward_model": truth, "extra_info": extra_info, "turns": [turn], **changes}


def dataset(folder: Path, rows: list[dict[str, Any]], family: Architecture = "qwen2_5_vl", **options: Any) -> Any:
    path = folder / "rows.parquet"
    pq.write_table(pa.Table.from_pylist(rows), path)
    return TrajectorySFTDataset(str(path), tokenizer(), {"max_length": 16384, **options}, processor(family))


def by_the_processor(family: Architecture, paths: Sequence[str]) -> dict[str, torch.Tensor]:
    """The dialogue as a user of transformers would encode it: whole, from the original files."""
    system = load_prompt("verl_video_tools.methods.longvt", "prompt_pictures.txt", None)
    shown = [{"type": "image"} for _ in paths]
    messages = [
        {"role": "system", "content": [{"type": "text", "text": system}]},
        {"role": "user", "content": [*shown, {"type": "text", "text": f"\n{QUESTION}"}]},
        {"role": "assistant", "content": [{"type": "text", "text": TURN}]},
    ]
    model = processor(family)
    text = model.apply_chat_template(messages, tokenize=False)
    images = [Image.open(path).convert("RGB") for path in paths]
    return dict(model(text=[text.rstrip("\n")], images=images, return_tensors="pt"))


# From half a patch on: a thinner picture is enlarged by the processor as if it had no area, here to a patch.
sizes = st.tuples(st.integers(17, 400), st.integers(17, 400))


@pytest.mark.slow
@pytest.mark.parametrize("family", ARCHITECTURES)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(sizes, min_size=1, max_size=3))
def test_tokens_grids_and_positions_are_the_processors_own(family: Architecture, shapes: list[tuple[int, int]]) -> None:
    with TemporaryDirectory() as name:
        folder = Path(name)
        paths = [picture(folder / f"{number}.png", *shape, seed=number) for number, shape in enumerate(shapes)]
        item = dataset(folder, [row(paths)], family)[0]
        expected = by_the_processor(family, paths)
    assert item["input_ids"].tolist() == expected["input_ids"][0].tolist()
    inputs = item["multi_modal_inputs"] | {"pixel_values": item["multi_modal_inputs"]["pixel_values"].resolve()}
    assert torch.equal(inputs["image_grid_thw"], expected["image_grid_thw"])
    assert inputs["pixel_values"].shape == expected["pixel_values"].shape
    # Resampled once, by PIL's bicubic filter here and by torchvision's there: close, not equal.
    assert (inputs["pixel_values"] - expected["pixel_values"]).abs().mean() < 0.02
    model, ids = processor(family), expected["input_ids"]
    is_image = ids == tokenizer().convert_tokens_to_ids("<|image_pad|>")
    positions, _ = model.get_rope_index(
        input_ids=ids,
        attention_mask=torch.ones_like(ids),
        image_grid_thw=expected["image_grid_thw"],
        video_grid_thw=None,
        mm_token_type_ids=is_image.long(),
    )
    assert torch.equal(item["position_ids"][1:], positions[:, 0])
    assert torch.equal(item["position_ids"][0], torch.arange(ids.shape[1]))
    merge = model.image_processor.merge_size
    assert int(is_image.sum()) == int(expected["image_grid_thw"].prod(dim=1).sum()) // merge**2
    assert tokenizer().decode(item["input_ids"][item["loss_mask"].bool()]) == TURN + END
    assert not (item["loss_mask"].bool() & is_image[0]).any()


def test_a_batch_with_rows_about_a_video(tmp_path: Path) -> None:
    """verl's collator takes both; rows of one file need not have the same fields."""
    paths = [picture(tmp_path / "a.png", 60, 90)]
    about_video = {
        **row([]),
        "extra_info": {
            "question": QUESTION,
            "video_path": video(),
            "question_type": "mc",
            "options": ["left", "right"],
        },
    }
    items = [
        dataset(tmp_path, rows, video_tools={"longvt": {"initial_frames": 4}})[0]
        for rows in ([row(paths)], [about_video])
    ]
    batch = SFTTensorCollator(DatasetPadMode.NO_PADDING)(items)
    assert batch["input_ids"].offsets().diff().tolist() == [len(item["input_ids"]) for item in items]
    assert [len(item["multi_modal_inputs"]["image_grid_thw"]) for item in items] == [1, 4]
    mixed = dataset(tmp_path, [row(paths), about_video], video_tools={"longvt": {"initial_frames": 4}})
    assert [mixed[index]["input_ids"].tolist() for index in range(2)] == [item["input_ids"].tolist() for item in items]


def test_pictures_are_read_upright_without_holes(tmp_path: Path) -> None:
    envelope = PixelEnvelope()
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by a quarter
    Image.new("RGB", (40, 20), "red").save(tmp_path / "turned.jpg", exif=exif)
    record = read_picture(str(tmp_path / "turned.jpg"), 0, envelope).record
    assert (record.width, record.height) == (20, 40)
    Image.new("RGBA", (8, 8), (0, 0, 0, 0)).save(tmp_path / "hole.png")
    clear = read_picture(str(tmp_path / "hole.png"), 0, envelope).pixels_HWC
    assert clear is not None and (clear == 255).all(), "white, as qwen-vl-utils has it"
    Image.new("L", (8, 8), 7).save(tmp_path / "grey.png")
    grey = read_picture(str(tmp_path / "grey.png"), 0, envelope).pixels_HWC
    assert grey is not None and grey.shape == (8, 8, 3) and (grey == 7).all()


def test_what_a_question_spells_is_no_picture(tmp_path: Path) -> None:
    item = dataset(tmp_path, [row([picture(tmp_path / "a.png", 56, 56)], question="<|image_pad|><|im_end|>?")])[0]
    assert "< |image_pad|>< |im_end|>?" in tokenizer().decode(item["input_ids"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"image_paths": ["gone.png"]}, "row index=7 split=train: no such image file: gone.png"),
        ({"image_paths": ["{folder}/text.png"]}, r"row index=7 split=train: cannot read the image .*text\.png"),
    ],
)
def test_faults_name_the_row(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    (tmp_path / "text.png").write_text("no picture")
    paths = [path.format(folder=tmp_path) for path in changes["image_paths"]]
    with pytest.raises(RowError, match=message):
        dataset(tmp_path, [row(paths)])[0]


@pytest.mark.parametrize("turns", [[], None])
def test_a_row_without_a_turn_is_named(turns: list[str] | None, tmp_path: Path) -> None:
    rows = [row([picture(tmp_path / "a.png", 56, 56)]) | {"turns": turns}, row([picture(tmp_path / "a.png", 56, 56)])]
    with pytest.raises(RowError, match="row index=7 split=train: a row about images needs a column turns"):
        dataset(tmp_path, rows)[0]


@pytest.mark.parametrize(
    ("paths", "turns", "faults"),
    [
        (0.5, ["<answer>B</answer>"], ["extra_info.image_paths must be a list of paths, got 0.5"]),
        ("a.png", ["<answer>B</answer>"], ["extra_info.image_paths must be a list of paths, got 'a.png'"]),
        ([7], ["<answer>B</answer>"], ["extra_info.image_paths must be a list of paths, got [7]"]),
        (["a\0b.png"], ["<answer>B</answer>"], ["no such image file: a\0b.png"]),
        (["gone.png"], 7, ["no such image file: gone.png", "turns must be a list of texts, got 7"]),
    ],
)
def test_columns_of_other_types_are_faults(paths: Any, turns: Any, faults: list[str]) -> None:
    assert picture_faults({"extra_info": {"question": "?", "image_paths": paths}, "turns": turns}) == faults


def test_methods_without_a_picture_prompt_take_no_pictures(tmp_path: Path) -> None:
    path = picture(tmp_path / "a.png", 56, 56)
    with pytest.raises((RowError, UsageError), match="framethinker does not ask about pictures"):
        turn = "<think>so</think><action>output answer: A</action>"
        dataset(tmp_path, [row([path], turn=turn, agent_name="framethinker")])[0]
