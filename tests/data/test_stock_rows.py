"""Rows for verl's own tool loop: the initial frames inside are our loop's, and verl's own dataset reads them."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer
from omegaconf import OmegaConf
from PIL import Image
from verl.utils.dataset.rl_dataset import RLHFDataset

from examples.tiny_models.tiny_model import make_processor, make_tokenizer
from tests.videos.files import read_number, write_video
from verl_video_tools.cli.rows import Convert
from verl_video_tools.core.errors import RowError, UsageError
from verl_video_tools.core.types import Sample, content_images, content_text
from verl_video_tools.data.stock_rows import convert_parquet, stock_prompt, to_tool_agent_row
from verl_video_tools.methods import get_method
from verl_video_tools.rollout.episode import Episode

INITIAL_FRAMES = [0, 14, 28, 42, 56, 70, 84, 99]
"""Eight frames of 100."""


@pytest.fixture(scope="module")
def video(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_video(tmp_path_factory.mktemp("videos") / "clip.mp4", num_frames=100, fps=10)


def make_row(video: Path, index: int = 0, question: str = "What is shown at 0:05?\nA. this\nB. that") -> dict[str, Any]:
    return {
        "data_source": "test",
        "agent_name": "framethinker",
        "prompt": [{"role": "user", "content": question}],
        "ability": "video",
        "reward_model": {"style": "rule", "ground_truth": "A"},
        "extra_info": {
            "question": question,
            "question_type": "mc",
            "options": ["this", "that"],
            "video_path": str(video),
            "index": index,
            "split": "train",
        },
    }


def write_rows(path: Path, rows: list[dict[str, Any]]) -> Path:
    """As `datasets` writes them: with a description of the columns in the file's metadata."""
    datasets.Dataset.from_list(rows).to_parquet(path)
    return path


def picture_numbers(row: dict[str, Any]) -> list[int]:
    return [read_number(np.asarray(Image.open(BytesIO(image["bytes"])))) for image in row["images"]]


async def test_the_initial_frames_are_those_of_our_own_loop(video: Path) -> None:
    row = await to_tool_agent_row(make_row(video))
    messages = await Episode(get_method("framethinker"), Sample.from_row(make_row(video))).start()
    assert messages is not None
    user = messages[-1]
    assert row["prompt"] == [
        {"role": "system", "content": stock_prompt("framethinker")},
        {"role": "user", "content": content_text(user.content)},
    ]
    assert "?\nA. this\nB. that\n\nframe 0: <image>\nframe 14: <image>\n" in row["prompt"][1]["content"]
    assert picture_numbers(row) == INITIAL_FRAMES
    for image, shown in zip(row["images"], content_images(user.content), strict=True):
        np.testing.assert_array_equal(np.asarray(Image.open(BytesIO(image["bytes"]))), shown.pixels_HWC)


async def test_the_row_selects_loop_and_tools_and_binds_its_video(video: Path) -> None:
    original = make_row(video, index=3)
    row = await to_tool_agent_row(original)
    binding = {"create_kwargs": {"video_path": str(video)}}
    assert row["agent_name"] == "tool_agent"
    assert row["extra_info"] == {
        **original["extra_info"],
        "need_tools_kwargs": True,
        "tools_kwargs": {"choose_frames": binding, "get_frame_number": binding},
        "tool_selection": ["choose_frames", "get_frame_number"],
    }
    for kept in ("data_source", "ability", "reward_model"):
        assert row[kept] == original[kept]
    assert original == make_row(video, index=3), "the given row is left alone"


async def test_a_row_takes_a_method(video: Path) -> None:
    method = get_method("framethinker", initial_frames=3, call_frames=3)
    row = await to_tool_agent_row(make_row(video, 0), method)
    assert picture_numbers(row) == [0, 49, 99]


@pytest.mark.parametrize("mark", ["<image>", "<video>", "<audio>"])
async def test_a_question_with_a_media_mark_is_refused(video: Path, mark: str) -> None:
    with pytest.raises(RowError, match=f"row index=5: the question holds '{mark}'"):
        await to_tool_agent_row(make_row(video, 5, question=f"{mark}What is this?"))


def test_verls_dataset_reads_a_converted_file(video: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    source = write_rows(tmp_path / "rows.parquet", [make_row(video, index) for index in range(3)])
    conversion = convert_parquet(source, tmp_path / "new" / "tool_agent.parquet")
    assert (conversion.num_written, conversion.skipped) == (3, ())

    processor = make_processor(make_tokenizer())
    config = OmegaConf.create({"max_prompt_length": 1024, "filter_overlong_prompts": False})
    dataset = RLHFDataset(str(tmp_path / "new" / "tool_agent.parquet"), processor.tokenizer, config, processor)
    assert len(dataset) == 3
    row = dataset[2]
    assert (row["index"], row["agent_name"]) == (2, "tool_agent")
    assert row["tools_kwargs"]["choose_frames"] == {"create_kwargs": {"video_path": str(video)}}
    assert list(row["extra_info"]["tool_selection"]) == ["choose_frames", "get_frame_number"]
    system, user = row["raw_prompt"]
    assert system["content"][0]["text"] == stock_prompt("framethinker")
    images, _, _ = RLHFDataset._process_multi_modal_info([user], image_patch_size=14, config=config)
    assert [read_number(np.asarray(image)) for image in images] == INITIAL_FRAMES
    labels = [item["text"].strip() for item in user["content"] if item["type"] == "text"]
    assert labels[0].endswith("frame 0:")
    assert labels[1:] == [f"frame {index}:" for index in INITIAL_FRAMES[1:]]


def test_a_file_may_be_converted_again(video: Path, tmp_path: Path) -> None:
    source = write_rows(tmp_path / "rows.parquet", [make_row(video)])
    convert_parquet(source, tmp_path / "once.parquet")
    convert_parquet(tmp_path / "once.parquet", tmp_path / "twice.parquet")
    assert pq.read_table(tmp_path / "twice.parquet").equals(pq.read_table(tmp_path / "once.parquet"))


def test_a_row_that_cannot_be_converted_is_left_out_by_name(video: Path, tmp_path: Path) -> None:
    rows = [make_row(video, 0), make_row(tmp_path / "gone.mp4", 1), make_row(video, 2, question="<image>What?")]
    conversion = convert_parquet(write_rows(tmp_path / "rows.parquet", rows), tmp_path / "tool_agent.parquet")
    assert conversion.num_written == 1
    assert [reason.partition(":")[0] for reason in conversion.skipped] == ["row index=1", "row index=2"]
    assert [row["extra_info"]["index"] for row in pq.read_table(tmp_path / "tool_agent.parquet").to_pylist()] == [0]
    with pytest.raises(UsageError, match="gives no row; the first was left out: row index=1: "):
        convert_parquet(write_rows(tmp_path / "bad.parquet", rows[1:]), tmp_path / "none.parquet")
    assert not (tmp_path / "none.parquet").exists()


def test_a_file_that_holds_no_rows_of_ours_is_bad_usage(tmp_path: Path) -> None:
    text = tmp_path / "text.parquet"
    text.write_text("no parquet")
    with pytest.raises(UsageError, match="cannot read rows"):
        convert_parquet(text, tmp_path / "out.parquet")
    pq.write_table(pa.table({"question": ["?"]}), text)
    with pytest.raises(UsageError, match="no column extra_info"):
        convert_parquet(text, tmp_path / "out.parquet")


def test_the_command_converts(video: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    app = typer.Typer()
    app.command("convert")(Convert)
    source = write_rows(tmp_path / "rows.parquet", [make_row(video), make_row(tmp_path / "gone.mp4", 1)])
    target = tmp_path / "out.parquet"
    capsys.readouterr()  # drop the progress bars of `datasets`
    options = ["--set", "initial_frames=3", "--set", "call_frames=3"]
    app([str(source), str(target), "--for", "tool_agent", *options], standalone_mode=False).run()
    (row,) = pq.read_table(target).to_pylist()
    assert picture_numbers(row) == [0, 49, 99]
    printed = capsys.readouterr()
    assert printed.out == f"{target}: 1 rows, 1 skipped\n"
    assert printed.err.startswith("skipped row index=1: ")


def test_the_command_knows_one_loop(video: Path, tmp_path: Path) -> None:
    app = typer.Typer()
    app.command("convert")(Convert)
    with pytest.raises(typer.BadParameter, match="tool_agent"):
        app(["in", "out", "--for", "single_turn_agent"], standalone_mode=False)


def test_rows_for_longvt(video: Path, tmp_path: Path) -> None:
    source = write_rows(tmp_path / "rows.parquet", [make_row(video)])
    convert_parquet(source, tmp_path / "out.parquet", method_name="longvt", settings={"initial_frames": 4})
    (row,) = pq.read_table(tmp_path / "out.parquet").to_pylist()
    system, user = row["prompt"]
    assert "crop_video" in system["content"] and "<tools>" in system["content"]
    assert user["content"].endswith("0.0s <image>\n3.3s <image>\n6.6s <image>\n9.9s <image>")
    assert row["extra_info"]["tools_kwargs"] == {"crop_video": {"create_kwargs": {"video_path": str(video)}}}
    assert row["extra_info"]["tool_selection"] == ["crop_video"]


def test_rows_for_videobrain(video: Path, tmp_path: Path) -> None:
    source = write_rows(tmp_path / "rows.parquet", [make_row(video)])
    convert_parquet(source, tmp_path / "out.parquet", method_name="videobrain", settings={"initial_frames": 2})
    (row,) = pq.read_table(tmp_path / "out.parquet").to_pylist()
    system, user = row["prompt"]
    assert '{"name": "clip_sample"' in system["content"]
    assert user["content"].endswith("100 frames at 10 frames per second.\n\nframe 0: <image>\nframe 99: <image>")
    assert row["extra_info"]["tool_selection"] == ["uniform_sample", "clip_sample"]


def test_methods_without_tools_for_verls_loop_are_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no tools of 'framemind'; choose one of: framethinker, longvt, videobrain"):
        convert_parquet(tmp_path / "rows.parquet", tmp_path / "out.parquet", method_name="framemind")
