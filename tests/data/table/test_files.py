"""Tables in every form that is read, and what is said of what is none."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.data.table.tables import touch, write_csv, write_jsonl, write_parquet
from verl_video_tools.core.errors import RowError, UsageError
from verl_video_tools.data.table import Table

RECORDS = [
    {"question": "Who?", "answer": "a boy", "video": "a.mp4"},
    {"question": "What, then?", "answer": "rain", "video": "b.mp4"},
]
MAP = ("question=q,answer=q,video=v",)


def entries_of(path: Path, **options: Any) -> list[Any]:
    """Records without their place, and faults."""
    entries = list(Table(path, **options).entries(path))
    return [
        entry if isinstance(entry, RowError) else {name: value for name, value in entry.items() if "\0" not in name}
        for entry in entries
    ]


def test_every_kind_of_file(tmp_path: Path) -> None:
    paths = [write_csv(tmp_path / f"{ord(sign)}.csv", RECORDS, sign) for sign in ",;\t|"]
    paths.append(write_csv(tmp_path / "t.TSV", RECORDS, "\t"))
    paths.append(write_jsonl(tmp_path / "t.jsonl", RECORDS))
    paths.append(write_parquet(tmp_path / "t.parquet", RECORDS))
    (tmp_path / "t.json").write_text(json.dumps(RECORDS, indent=1))
    for path in [*paths, tmp_path / "t.json"]:
        table = Table(path)
        assert entries_of(path) == RECORDS
        assert (table.column_names, table.folders, table.split) == (
            ("question", "answer", "video"),
            (tmp_path,),
            "train",
        )
    assert Table(write_csv(tmp_path / "my_test.csv", RECORDS)).split == "test"


def test_lines_of_text_that_are_bad(tmp_path: Path) -> None:
    """Each is one row's fault. A quoted value may hold line breaks."""
    path = tmp_path / "t.csv"
    path.write_bytes(b'\xef\xbb\xbfq,v\n"one\ntwo",a.mp4\nshort\nlong,b,c\n\nlast,e.mp4\n')
    first, short, long, last = entries_of(path, assignments=MAP)
    assert (first, last) == ({"q": "one\ntwo", "v": "a.mp4"}, {"q": "last", "v": "e.mp4"})
    for fault, told in zip((short, long), ("line 4 has 1", "line 5 has 3"), strict=True):
        assert isinstance(fault, RowError) and told in str(fault)


def test_a_quotation_mark_that_does_not_fit_is_a_fault_of_its_row(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text('q,v\n"one" of two,a.mp4\nb,"b.mp4"\n')
    fault, good = entries_of(path, assignments=MAP)
    assert isinstance(fault, RowError) and re.match("line 2: .* write them twice", str(fault))
    assert good == {"q": "b", "v": "b.mp4"}


def test_a_quotation_mark_that_takes_other_lines_along_refuses_the_file(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text('q,v\n"one,a.mp4\nb,"b.mp4"\nc,c.mp4\n')
    with pytest.raises(UsageError, match=r"t\.csv, lines 2 to 3: .* write them twice"):
        Table(path, assignments=MAP)


def test_a_column_without_a_name_is_read(tmp_path: Path) -> None:
    """As pandas writes its index."""
    (tmp_path / "t.csv").write_text(",q,v\n0,Who?,a.mp4\n")
    assert entries_of(tmp_path / "t.csv", assignments=MAP) == [{"column 1": "0", "q": "Who?", "v": "a.mp4"}]


def test_a_long_value_is_read(tmp_path: Path) -> None:
    """As a transcript may be; Python's reader stops at 131,072 characters."""
    transcript = "word " * 40_000
    source = write_csv(tmp_path / "t.csv", [{"q": "what", "v": "a.mp4", "transcript": transcript}])
    assert [record["transcript"] for record in entries_of(source, assignments=MAP)] == [transcript]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.xlsx", "", "expected a folder or a file of .csv"),
        ("t.csv", "", "has no rows"),
        ("t.csv", "question,video\n", "has no rows"),
        ("t.csv", "q,q\n1,2\n", "each column needs a name of its own"),
        ("t.json", "{", "cannot read"),
        ("t.jsonl", "{\n", "has no rows; the first row: line 1 of t.jsonl is not JSON"),
        ("t.parquet", "x", "not a parquet file"),
    ],
)
def test_what_is_no_table(name: str, content: str, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(UsageError, match=message):
        Table(tmp_path / name)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read"):
        Table(tmp_path / "none.csv")


# ------------------------------------------------------------------------------------------------------------- folders


def test_shards_of_a_split(tmp_path: Path) -> None:
    write_parquet(tmp_path / "data/train-00000-of-00002.parquet", RECORDS[:1])
    write_parquet(tmp_path / "data/train-00001-of-00002.parquet", RECORDS[1:])
    (tmp_path / "README.md").write_text("---\n---\n")
    (tmp_path / "dataset_infos.json").write_text("{}")
    touch(tmp_path, ".cache/huggingface/x.json")
    table = Table(tmp_path)
    assert entries_of(tmp_path) == RECORDS
    assert (table.split, table.folders) == ("train", (tmp_path, tmp_path / "data"))
    write_parquet(tmp_path / "data/test-00000-of-00001.parquet", RECORDS[:1])
    with pytest.raises(UsageError, match="has the splits test, train: choose one; name it with --split"):
        Table(tmp_path)
    with pytest.raises(UsageError, match="there is no 'val'"):
        Table(tmp_path, split="val")
    assert entries_of(tmp_path, split="test") == RECORDS[:1]


def test_splits_as_folders_and_other_names(tmp_path: Path) -> None:
    write_jsonl(touch(tmp_path / "train", "x") / "part.jsonl", RECORDS)
    write_csv(touch(tmp_path / "dev", "x") / "part.csv", RECORDS[:1])
    assert entries_of(tmp_path, split="validation") == RECORDS[:1]
    assert Table(tmp_path, split="dev").split == "dev"
    write_csv(tmp_path / "train" / "other.csv", RECORDS)
    with pytest.raises(UsageError, match=r"holds several tables \(train/other.csv, train/part.jsonl\); name one"):
        Table(tmp_path, split="train")


def test_a_folder_of_videos_with_metadata(tmp_path: Path) -> None:
    """Paths may start beside the metadata; other files are not looked at."""
    folder = touch(tmp_path / "train", "a.mp4", "captions.json")
    record = {"file_name": "a.mp4", "question": "Who?", "answer": "a boy"}
    write_jsonl(folder / "metadata.jsonl", [record])
    options = {"assignments": ("video=file_name",)}
    assert Table(tmp_path, **options).folders == (tmp_path, folder) and entries_of(tmp_path, **options) == [record]


@pytest.mark.parametrize("is_list", [False, True])
@pytest.mark.parametrize(
    "kind", [pa.binary(), pa.large_binary(), pa.struct({"bytes": pa.binary(), "path": pa.string()})]
)
def test_videos_inside_a_table_are_not_read(kind: pa.DataType, is_list: bool, tmp_path: Path) -> None:
    """They may take gigabytes; the message names the columns that are left, and those that hold bytes."""
    value = {"bytes": b"x"} if pa.types.is_struct(kind) else b"x"
    videos = pa.array([[value]], pa.list_(kind)) if is_list else pa.array([value], kind)
    pq.write_table(pa.table({"question": ["Who?"], "video": videos}), tmp_path / "t.parquet")
    for options in ({}, {"assignments": ("answer=question,video=video",)}):
        with pytest.raises(UsageError, match="video holds the bytes of files: write each value to a file") as caught:
            Table(tmp_path / "t.parquet", **options)
        assert "the columns are question;" in str(caught.value) or "there are question" in str(caught.value)


def test_a_folder_without_a_table(tmp_path: Path) -> None:
    touch(tmp_path, "a.mp4", "README.md", "dataset_info.json")
    with pytest.raises(UsageError, match="holds no table"):
        Table(tmp_path)
