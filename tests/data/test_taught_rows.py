"""`vvt data convert --turns`: published reasoning as rows that fine-tuning learns, about videos and about pictures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from tests.data.format_cases import SAMPLES
from tests.data.row_files import read_rows
from tests.verl_plugin.harness import processor, tokenizer
from tests.videos.files import write_video
from verl_video_tools.cli.main import run
from verl_video_tools.core.errors import UsageError
from verl_video_tools.data.convert import convert_annotations
from verl_video_tools.data.formats import BenchmarkFiles
from verl_video_tools.data.rows import SFT_SCHEMA
from verl_video_tools.data.subsets import split_by_video
from verl_video_tools.data.validate import validate_file
from verl_video_tools.records.records import read_records
from verl_video_tools.verl_plugin.sft_dataset import TrajectorySFTDataset


@pytest.fixture(scope="module")
def media(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The videos and the picture that the samples name."""
    folder = tmp_path_factory.mktemp("media")
    for name in ("LLaVA-Video-178K/youtube/ytb_stage.mp4", "forge/forge.mp4", "longvila_videos/race.mp4"):
        (folder / name).parent.mkdir(parents=True)
        write_video(folder / name, num_frames=80, fps=10)
    for name in ("Chart/bars.png", "charts/bars.png"):
        (folder / name).parent.mkdir(parents=True)
        Image.new("RGB", (90, 60), "white").save(folder / name)
    return folder


def taught(source: str, annotations: Path, media: Path, target: Path, method: str = "longvt") -> tuple[str, ...]:
    files = BenchmarkFiles(annotations=annotations, videos=media)
    return convert_annotations(source, files, target, method_name=method, with_responses=True).skipped


def learnt(path: Path) -> list[str]:
    """What the loss of each row is on."""
    options = {"max_length": 8192, "video_tools": {"longvt": {"initial_frames": 4, "call_frames": 4}}}
    dataset = TrajectorySFTDataset(str(path), tokenizer(), options, processor())
    items = [dataset[index] for index in range(len(dataset))]
    return [tokenizer().decode(item["input_ids"][item["loss_mask"].bool()]) for item in items]


def test_video_r1s_reasoning_about_videos_and_pictures(media: Path, tmp_path: Path) -> None:
    target = tmp_path / "rows.parquet"
    skipped = taught("video-r1", SAMPLES / "video_r1" / "Video-R1-COT-165k.json", media, target)
    assert ["the field 'process' is empty" in skipped[0], "no image 'gone.png'" in skipped[1]] == [True, True]
    video, pictures = read_rows(target)
    assert video["turns"] == ["<think>Something thin swings there, so it is a rope.</think>\n<answer>B</answer>"]
    assert (video["template"], video["extra_info"]["image_paths"]) == ("reasoning", None)
    assert video["extra_info"]["question"] == "What hangs over the stage?\nA. A lamp\nB. A rope"
    assert pictures["turns"] == ["<think>40 less 25.</think>\n<answer>15</answer>"]
    assert (pictures["template"], pictures["extra_info"]["video_path"]) == ("pictures", None)
    assert pictures["extra_info"]["image_paths"] == [str(media / "Chart" / "bars.png")]
    assert pictures["extra_info"]["question"] == "How far do the two bars differ?"
    assert pictures["reward_model"]["ground_truth"] == "15"
    assert not [report for report in validate_file(target) if report.problems]
    assert learnt(target) == [f"{row['turns'][0]}<|im_end|>" for row in (video, pictures)]


def test_reasoning_is_replayed_too(media: Path, tmp_path: Path) -> None:
    """About videos and about pictures."""
    command = ["data", "convert", str(SAMPLES / "video_r1" / "Video-R1-COT-165k.json"), str(tmp_path / "rows.parquet")]
    options = ["--from", "video-r1", "--turns", "--method", "longvt", "--videos", str(media)]
    records = tmp_path / "records.jsonl"
    assert run([*command, *options, "--replay", str(records)]) == 0
    rows, lines = read_rows(tmp_path / "rows.parquet"), list(read_records(records))
    assert [[turn.text for turn in line["trajectory"].turns] for line in lines] == [row["turns"] for row in rows]
    assert len(lines) == 2


def longvt_file(folder: Path) -> Path:
    entries = json.loads((SAMPLES / "longvt_parquet" / "longvt_sft.json").read_text())
    pq.write_table(pa.Table.from_pylist(entries), folder / "longvt_sft.parquet")
    return folder / "longvt_sft.parquet"


def test_longvts_dialogues(media: Path, tmp_path: Path) -> None:
    """With and without a tool; paths in calls are another machine's."""
    target = tmp_path / "rows.parquet"
    skipped = taught("longvt-parquet", longvt_file(tmp_path), media, target)
    assert "row 3: turn 0 must answer in the strict grammar of longvt, got 'He rests.'" in skipped[0]
    assert "row 4: no video: the dialogue names none" in skipped[1]
    choice, pictures, trace = read_rows(target)
    assert choice["reward_model"]["ground_truth"] == "A"
    assert choice["extra_info"]["question"] == "What does the smith quench?\nA. A blade\nB. A nail"
    assert len(pictures["extra_info"]["image_paths"]) == 2 and pictures["template"] == "pictures"
    assert (trace["extra_info"]["question"], trace["template"]) == ("Who enters last?", "trace")
    calls = [{"start_time": 1.0, "end_time": 3.5}, {"start_time": 4, "end_time": 6}]
    written = [json.dumps({"name": "crop_video", "arguments": call}) for call in calls]
    assert trace["turns"] == [
        f"<think>Near the end.</think>\n<tool_call>\n{written[0]}\n</tool_call>",
        f"<think>Not yet.</think>\n<tool_call>\n{written[1]}\n</tool_call>",
        "<think>A boy.</think>\n<answer>A boy</answer>",
    ]
    assert learnt(target)[2] == "".join(f"{turn}<|im_end|>" for turn in trace["turns"]), "its calls are carried out"
    assert "--turns reads those" in convert_without_turns(tmp_path, media)


def convert_without_turns(folder: Path, media: Path) -> str:
    files = BenchmarkFiles(annotations=folder / "longvt_sft.parquet", videos=media)
    with pytest.raises(UsageError) as error:
        convert_annotations("longvt-parquet", files, folder / "x.parquet")
    return str(error.value)


def test_longvideo_reasons_reasoning(media: Path, tmp_path: Path) -> None:
    target = tmp_path / "rows.parquet"
    taught("longvideo-reason", SAMPLES / "longvideo_reason" / "test.jsonl", media, target)
    assert [row["turns"] for row in read_rows(target)] == [
        ["<think>They stop.</think>\n<answer>C</answer>"],
        ["<think>He turns.</think>\n<answer>Wait for me</answer>"],
    ]
    assert pq.read_schema(target).names == ["data_source", "agent_name", *SFT_SCHEMA.names[1:]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--from", "mvbench", "--method", "longvt"],
            "mvbench has no turns to learn from; the formats with turns are: framethinker-sft, longvideo-reason, ",
        ),
        (["--from", "video-r1"], "turns are written in a method's grammar; name it, such as longvt"),
        (
            ["--from", "video-r1", "--method", "framethinker"],
            "turn 0 must answer in the strict grammar of framethinker",
        ),
    ],
)
def test_impossible_wishes(
    options: list[str], message: str, media: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    source = SAMPLES / "video_r1" / "Video-R1-COT-165k.json"
    command = ["data", "convert", str(source), str(tmp_path / "x.parquet"), "--turns", "--videos", str(media), *options]
    assert run(command) == 2
    assert message in capfd.readouterr().err


def test_files_with_rows_about_pictures_are_split(media: Path, tmp_path: Path) -> None:
    source = tmp_path / "rows.parquet"
    taught("video-r1", SAMPLES / "video_r1" / "Video-R1-COT-165k.json", media, source)
    split_by_video(source, tmp_path / "a.parquet", tmp_path / "b.parquet", second_share=0.5)
    assert len(read_rows(tmp_path / "a.parquet")) == len(read_rows(tmp_path / "b.parquet")) == 1


def test_pictures_are_no_rows_to_reinforce(media: Path, tmp_path: Path) -> None:
    files = BenchmarkFiles(annotations=SAMPLES / "video_r1" / "Video-R1-COT-165k.json", videos=media)
    conversion = convert_annotations("video-r1", files, tmp_path / "rows.parquet", method_name="longvt")
    assert conversion.num_written == 1 and "it is about an image, not about a video" in conversion.skipped[0]


def test_faults_of_rows_about_pictures(media: Path, tmp_path: Path) -> None:
    target = tmp_path / "rows.parquet"
    taught("video-r1", SAMPLES / "video_r1" / "Video-R1-COT-165k.json", media, target)
    row = read_rows(target)[1]

    def problems(**changes: Any) -> str:
        changed = {**row, **changes, "extra_info": {**row["extra_info"], **changes.get("extra_info", {})}}
        pq.write_table(pa.Table.from_pylist([changed]), tmp_path / "changed.parquet")
        (report,) = validate_file(tmp_path / "changed.parquet")
        return "; ".join(report.problems)

    assert problems() == ""
    assert problems(turns=None) == "", "a row for rollouts"
    for changes, told in (
        ({"extra_info": {"image_paths": ["gone.png"]}}, "no such image file: gone.png"),
        ({"extra_info": {"video_path": "v.mp4"}}, "names both images (image_paths) and a video (video_path)"),
        ({"extra_info": {"question": ""}}, "extra_info.question is missing or empty"),
        ({"turns": ["<answer>A</answer>"] * 2}, "about images has one turn, which answers, got 2"),
        ({"turns": ["A bird"]}, "turn 0 must answer in the strict grammar of longvt, got 'A bird'"),
        ({"turns": ["so</think><answer>A</answer>"]}, "turn 0 must answer in the strict grammar of longvt, got 'so<"),
        ({"agent_name": "videozoomer"}, "videozoomer does not ask about pictures"),
    ):
        assert told in problems(**changes)
