"""`vvt data convert --from`: a sample of each published format becomes rows, and what cannot is told and left out."""

from __future__ import annotations

import io
import json
from codecs import BOM_UTF8
from dataclasses import replace
from pathlib import Path
from shutil import copytree

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from tests.data.format_cases import CASES, SAMPLES, Case, prepare
from tests.data.row_files import read_rows
from verl_video_tools.cli.main import run
from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.sample import read_clip
from verl_video_tools.data.convert import convert_annotations
from verl_video_tools.data.formats import SOURCE_NAMES, BenchmarkFiles, get_source
from verl_video_tools.data.rows import ROW_SCHEMA
from verl_video_tools.data.validate import validate_file


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_sample_of_each_format(case: Case, tmp_path: Path) -> None:
    files = prepare(case, tmp_path)
    target = tmp_path / "rows.parquet"
    conversion = convert_annotations(case.name, files, target, method_name="framethinker")
    rows = read_rows(target)
    assert conversion.num_written == len(rows) == len(case.rows)
    for number, (row, expected) in enumerate(zip(rows, case.rows, strict=True)):
        assert row["reward_model"] == {"style": "rule", "ground_truth": expected.truth}
        assert row["extra_info"]["question"] == expected.question
        assert row["prompt"] == [{"role": "user", "content": expected.question}]
        assert {name: row["extra_info"][name] for name in expected.extra_info} == expected.extra_info
        assert row["extra_info"]["index"] == number and row["agent_name"] == "framethinker" and row["data_source"]
        video = Path(read_clip(row["extra_info"]["video_path"]).file).relative_to(files.videos)
        assert str(video) in case.videos
    reasons = [(int(reason.split(": row ")[1].split(":")[0]), reason) for reason in conversion.skipped]
    assert [number for number, _ in reasons] == [number for number, _ in case.skipped]
    for (_, told), (_, reason) in zip(reasons, case.skipped, strict=True):
        assert told.startswith(str(files.annotations)) and reason in told
    assert not [report for report in validate_file(target) if report.problems], "the rows are good ones"


@pytest.mark.parametrize(
    "case", [case for case in CASES.values() if not case.published_as_parquet], ids=lambda case: case.name
)
def test_a_mark_before_the_text_is_not_read(case: Case, tmp_path: Path) -> None:
    """Editors of Windows write a byte-order mark before the first character."""
    plain = prepare(case, tmp_path)
    folder = Path(case.annotations).parts[0]
    for path in copytree(SAMPLES / folder, tmp_path / folder).rglob("*.*"):
        path.write_bytes(BOM_UTF8 + path.read_bytes())
    rows = []
    for files in (plain, replace(plain, annotations=tmp_path / case.annotations)):
        convert_annotations(case.name, files, tmp_path / "rows.parquet")
        rows.append(read_rows(tmp_path / "rows.parquet"))
    assert rows[0] == rows[1]


def test_the_sample_of_framethinkers_rows_has_pictures(tmp_path: Path) -> None:
    """As published: in parquet, the bytes of PNG files. They are left unread."""
    images = pq.read_table(prepare(CASES["framethinker-parquet"], tmp_path).annotations)["images"]
    assert images.type.value_type.field("bytes").type == pa.binary()
    (first,) = images.to_pylist()[0]
    assert Image.open(io.BytesIO(first["bytes"])).size == (2, 2)


def test_every_format_has_a_sample() -> None:
    assert sorted({*CASES, "video-mme"}) == list(SOURCE_NAMES)
    with pytest.raises(UsageError, match="there is no format 'mlvu'; choose one of: charades-sta, clevrer"):
        get_source("mlvu")


def test_all_files_have_the_same_columns(tmp_path: Path) -> None:
    case = CASES["mlvu-dev"]
    convert_annotations(case.name, prepare(case, tmp_path), tmp_path / "rows.parquet", split="mine")
    assert pq.read_schema(tmp_path / "rows.parquet").equals(ROW_SCHEMA)
    assert {row["extra_info"]["split"] for row in read_rows(tmp_path / "rows.parquet")} == {"mine"}


def test_rows_are_read_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The paths are absolute, through links as they are."""
    case = CASES["video-holmes"]
    files = prepare(case, tmp_path)
    assert files.videos is not None
    (tmp_path / "link").symlink_to(files.videos)
    monkeypatch.chdir(tmp_path)
    convert_annotations(case.name, replace(files, videos=Path("link")), Path("rows.parquet"))
    (row,) = read_rows(tmp_path / "rows.parquet")
    assert row["extra_info"]["video_path"].startswith(f"{tmp_path}/link/")


@pytest.mark.slow
def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case = CASES["video-holmes"]
    files = prepare(case, tmp_path)
    target = tmp_path / "rows.parquet"
    command = ["data", "convert", str(files.annotations), str(target), "--from", "video-holmes"]
    assert run([*command, "--videos", str(files.videos)]) == 0
    printed = capsys.readouterr()
    assert printed.out == f"{target}: 1 rows, 1 skipped\n"
    assert printed.err.startswith(f"skipped {files.annotations}: row 1: the field 'Options' must have")
    assert "agent_name" not in pq.read_schema(target).names
    target.unlink()
    for bad, told in [
        (command, "--videos DIR"),
        ([*command, "--videos", str(tmp_path / "none")], "no such folder"),
        ([*command, "--videos", str(files.videos), "--set", "x=1"], "--set cannot be used with --from"),
        ([*command, "--videos", str(files.videos), "--method", "magic"], "no method 'magic'"),
        ([*command, "--videos", str(files.videos), "--subtitles", str(tmp_path)], "video-holmes has no subtitles"),
        ([*command[:4], "--for", "tool_agent", "--split", "x"], "--split cannot be used with --for"),
        (command[:4], "give either --from FORMAT"),
        ([*command, "--for", "tool_agent"], "give either --from FORMAT"),
        ([*command[:3], str(tmp_path), *command[4:], f"--videos={files.videos}"], "it is a folder; name a file"),
        ([*command[:3], "x" * 300, *command[4:], f"--videos={files.videos}"], "File name too long; name a file"),
        ([*command[:3], f"{files.annotations}/x", *command[4:], f"--videos={files.videos}"], "name a file in a folder"),
    ]:
        assert run(bad) == 2
        assert told in capsys.readouterr().err
    assert not target.exists()


def test_a_file_without_a_good_row_is_bad_usage(tmp_path: Path) -> None:
    (tmp_path / "videos").mkdir()
    files = BenchmarkFiles(annotations=SAMPLES / "video_holmes" / "test_Video-Holmes.json", videos=tmp_path / "videos")
    with pytest.raises(UsageError, match=r"gives no row; the first was left out: .*no video 'Qr7sT-uVw2X'"):
        convert_annotations("video-holmes", files, tmp_path / "rows.parquet")
    assert not (tmp_path / "rows.parquet").exists()


def test_entries_of_other_types_are_told(tmp_path: Path) -> None:
    files = prepare(CASES["clevrer"], tmp_path)
    (video,) = json.loads(files.annotations.read_text())
    _, _, question, ambiguous, _ = video["questions"]
    questions = ["text", {**question, "choices": 5}, ambiguous, question]
    broken = tmp_path / "broken.json"
    broken.write_text(json.dumps([{**video, "questions": questions}]))
    conversion = convert_annotations(
        "clevrer", BenchmarkFiles(annotations=broken, videos=files.videos), tmp_path / "rows.parquet"
    )
    assert conversion.num_written == 1
    told = ("named fields", "not in the format of clevrer", "choices are correct")
    for reason, part in zip(conversion.skipped, told, strict=True):
        assert part in reason
