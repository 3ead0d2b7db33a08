"""Benchmarks: annotation files in their published format become rows, and bad entries are told one by one."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from verl_video_tools.cli.main import run
from verl_video_tools.core.errors import RowError, UsageError
from verl_video_tools.core.types import Sample
from verl_video_tools.data.formats import BENCHMARK_NAMES, Benchmark, BenchmarkFiles, get_benchmark, read_rows
from verl_video_tools.data.formats.entries import (
    Entry,
    Row,
    benchmark_row,
    find_video,
    read_entries,
    without_letters,
)
from verl_video_tools.evaluation.questions import question_digest

SAMPLES = Path(__file__).parent / "samples"


def rows_of(name: str, files: BenchmarkFiles) -> list[Row]:
    """All rows, of which none may be faulty."""
    rows = []
    for _, row in read_rows(get_benchmark(name), files):
        assert not isinstance(row, RowError), row
        rows.append(row)
    return rows


def without_subtitles(files: BenchmarkFiles) -> BenchmarkFiles:
    return BenchmarkFiles(annotations=files.annotations, videos=files.videos)


# ------------------------------------------------------------------------------------------------------------ Video-MME


def test_video_mme(video_mme: BenchmarkFiles) -> None:
    rows = rows_of("video-mme", without_subtitles(video_mme))
    samples = [Sample.from_row(row) for row in rows]
    assert [sample.ground_truth for sample in samples] == ["C", "B", "A"]
    assert samples[0].question == (
        "How many bowls does the potter glaze?\nA. Two.\nB. Three.\nC. Four.\nD. None of them."
    )
    assert samples[0].options == ("Two.", "Three.", "Four.", "None of them.")
    assert {sample.question_type for sample in samples} == {"mc"}
    assert [Path(sample.video_path).name for sample in samples] == ["kitchen_one.mp4"] * 2 + ["-Tide02.MP4"]
    assert [sample.extra_info["index"] for sample in samples] == ["001-1", "001-2", "601-1"]
    assert samples[2].extra_info["groups"] == {
        "duration": "long",
        "domain": "Knowledge",
        "sub_category": "Geography",
        "task_type": "Temporal Reasoning",
    }


def test_video_mme_with_subtitles(video_mme: BenchmarkFiles) -> None:
    first, _, without = (Sample.from_row(row).question for row in rows_of("video-mme", video_mme))
    assert first.startswith(
        "Subtitles of the video:\nFirst the clay,\nthen 2 bowls & a lid.\nLong after.\n\nHow many bowls"
    )
    assert without.startswith("What happens")


def test_a_question_is_the_same_with_and_without_subtitles(video_mme: BenchmarkFiles) -> None:
    """Runs are paired by digests, and a limit draws by them."""
    files = (video_mme, without_subtitles(video_mme))
    digests = [[question_digest(row["extra_info"]) for row in rows_of("video-mme", each)] for each in files]
    assert digests[0] == digests[1] and len(set(digests[0])) == 3


def test_only_benchmarks_whose_protocol_has_subtitles_show_any(video_mme: BenchmarkFiles) -> None:
    names = {name for name in BENCHMARK_NAMES if get_benchmark(name).takes_subtitles}
    assert names == {"video-mme"}
    for name in {*BENCHMARK_NAMES} - names:
        with pytest.raises(UsageError, match=f"{name} has no subtitles"):
            next(read_rows(get_benchmark(name), video_mme))


# ------------------------------------------------------------------------------------------------------- what all share


def test_a_bad_entry_is_told_and_the_rest_goes_on(video_mme: BenchmarkFiles, tmp_path: Path) -> None:
    entries = json.loads((SAMPLES / "video_mme.json").read_text())
    del entries[0]["answer"]
    entries[1]["videoID"] = "gone"
    bad_truth, outside = dict(entries[2], answer="E"), dict(entries[2], videoID="../subtitle/kitchen_one.srt")
    path = tmp_path / "bad.json"
    path.write_text(json.dumps([*entries, "text", bad_truth, outside]))
    files = BenchmarkFiles(annotations=path, videos=video_mme.videos)
    read = list(read_rows(get_benchmark("video-mme"), files))
    assert [number for number, _ in read] == list(range(6))
    faults = {number: str(row) for number, row in read if isinstance(row, RowError)}
    assert sorted(faults) == [0, 1, 3, 4, 5]
    assert faults[0].startswith("the field 'answer' is missing; there are: video_id, duration")
    assert faults[1] == f"no video 'gone' in {video_mme.videos}"
    assert "named fields, got 'text'" in faults[3]
    assert faults[4] == "the truth must be one of the letters ABCD, got 'E'"
    assert "lies outside" in faults[5]


def test_half_a_surrogate_pair_is_told_and_the_rest_goes_on(video_mme: BenchmarkFiles, tmp_path: Path) -> None:
    entries = json.loads((SAMPLES / "video_mme.json").read_text())
    entries[0]["question"] = "How many \ud83d bowls?"
    entries[1]["domain"] = "\udc00"
    path = tmp_path / "halves.json"
    path.write_text(json.dumps(entries))
    files = BenchmarkFiles(annotations=path, videos=video_mme.videos)
    first, second, last = (row for _, row in read_rows(get_benchmark("video-mme"), files))
    assert isinstance(first, RowError) and "its text is not UTF-8" in str(first) and "\\ud83d bowls" in str(first)
    assert isinstance(second, RowError) and not isinstance(last, RowError)


def test_files_that_are_not_there(video_mme: BenchmarkFiles, tmp_path: Path) -> None:
    benchmark = get_benchmark("video-mme")
    with pytest.raises(UsageError, match="nowhere: no such folder"):
        list(read_rows(benchmark, BenchmarkFiles(annotations=video_mme.annotations, videos=tmp_path / "nowhere")))
    for name, content in (("a.parquet", "x"), ("a.json", "{]"), ("b.json", '"text"'), ("a.txt", ""), ("a.csv", None)):
        path = tmp_path / name
        if content is not None:
            path.write_text(content)
        with pytest.raises(UsageError, match="cannot read annotations from"):
            list(read_rows(benchmark, BenchmarkFiles(annotations=path, videos=video_mme.videos)))
    with pytest.raises(UsageError, match=r"choose one of: .*video-mme"):
        get_benchmark("video_mme")


@pytest.mark.parametrize("name", BENCHMARK_NAMES)
def test_every_name_leads_to_a_benchmark_of_that_name(name: str) -> None:
    assert get_benchmark(name).name == name


def test_a_benchmark_of_ones_own_is_named_by_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A map of fields, as docs/evaluation.md has it."""
    monkeypatch.syspath_prepend(tmp_path)
    page = (Path(__file__).parents[2] / "docs" / "evaluation.md").read_text()
    (tmp_path / "my_benchmarks.py").write_text(page.split("```python\n# my_benchmarks.py\n")[1].split("```")[0])
    (tmp_path / "pantry").mkdir()
    (tmp_path / "pantry" / "jars.mp4").touch()
    entry = {"video": "jars", "number": 3, "room": "pantry", "question": "What falls?", "choices": ["A jar", "A cup"]}
    (tmp_path / "a.json").write_text(json.dumps([{**entry, "correct": 1}, {**entry, "correct": 2}, entry]))
    files = BenchmarkFiles(annotations=tmp_path / "a.json", videos=tmp_path)
    benchmark = get_benchmark("my_benchmarks:Kitchen")
    (_, row), (_, wrong_number), (_, without_answer) = read_rows(benchmark, files)
    assert not isinstance(row, RowError) and row["data_source"] == "kitchen" and benchmark.groupings == ("room",)
    assert row["reward_model"]["ground_truth"] == "B"
    assert row["extra_info"] == {
        "question": "What falls?\nA. A jar\nB. A cup",
        "video_path": str(tmp_path / "pantry" / "jars.mp4"),
        "question_type": "mc",
        "index": "jars_3",
        "split": "test",
        "options": ["A jar", "A cup"],
        "groups": {"room": "pantry"},
    }
    assert "the field 'correct' is 2" in str(wrong_number) and "the field 'correct' is missing" in str(without_answer)
    command = ["data", "convert", str(files.annotations), str(tmp_path / "rows.parquet"), f"--videos={tmp_path}"]
    assert run([*command, "--from", "my_benchmarks:Kitchen"]) == 0
    assert "1 rows, 2 skipped" in capsys.readouterr().out
    assert run([*command, "--overwrite", "--from", "my_benchmarks:Bathroom"]) == 2
    assert "the format 'my_benchmarks:Bathroom' cannot be imported: " in capsys.readouterr().err


@pytest.mark.parametrize(
    "path", ["pathlib:Path", "pathlib:PurePath.name", f"{Benchmark.__module__}:Benchmark", f"{__name__}:Nameless"]
)
def test_what_is_no_benchmark_is_refused(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, __name__, sys.modules[Nameless.__module__])
    with pytest.raises(UsageError, match="must be a subclass of Benchmark with `name` and `row`, got "):
        get_benchmark(path)


class Nameless(Benchmark):
    def row(self, entry: Entry, files: BenchmarkFiles) -> Row:
        raise NotImplementedError


def test_lines_of_json(tmp_path: Path) -> None:
    for suffix in (".json", ".jsonl"):
        path = tmp_path / f"a{suffix}"
        path.write_text('{"a": 1}\n\n{"a": 2}\n')
        assert list(read_entries(path)) == [{"a": 1}, {"a": 2}]


def test_a_bad_line_is_told_by_its_number_and_the_rest_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"a": 1}\n\n{"a": 2\n["b"]\n\xff\n{"a": 3}')
    first, cut, other, no_text, last = read_entries(path)
    assert (first, other, last) == ({"a": 1}, ["b"], {"a": 3})
    assert isinstance(cut, RowError) and str(cut).startswith("line 3 of a.jsonl is not JSON: Expecting ',' delimiter")
    assert isinstance(no_text, RowError) and str(no_text).startswith("line 5 of a.jsonl is not JSON: 'utf-8' codec")


@pytest.mark.parametrize(
    ("name", "file", "lines", "told"),
    [
        (
            "video-mmlu",
            "qa.tsv",
            [
                "index\tvideo\tquestion\tanswer\tdiscipline",
                "1\tv\twhy\tso\tMath",
                '2\tv\t"a caf\xe9,\nwhy"\tso\tMath',
                "3\tv\twhy\tso\tMath\tone too many: \xff",
                "4\tv\t\u00c3\u00a9t\u00c3\u00a9\tso\tMath",
            ],
            {1: r"its text is not UTF-8: .*a caf\\udce9,", 2: "line 5 has 6 values, the first line names 5 columns"},
        ),
        (
            "charades-sta",
            "test.txt",
            ["v 1 2##one", "v 1 2##a caf\xe9", "v\xff", "", "v 1 2##\u00c3\u00a9t\u00c3\u00a9"],
            {1: r"its text is not UTF-8: .*a caf\\udce9", 2: r"not of the form .*'v\\udcff'"},
        ),
    ],
)
def test_a_byte_that_is_no_utf8_costs_its_row_only(
    name: str, file: str, lines: list[str], told: dict[int, str], tmp_path: Path
) -> None:
    (tmp_path / "v.mp4").touch()
    (tmp_path / file).write_bytes("\n".join(lines).encode("latin-1"))
    read = dict(read_rows(get_benchmark(name), BenchmarkFiles(annotations=tmp_path / file, videos=tmp_path)))
    faults = {number: str(row) for number, row in read.items() if isinstance(row, RowError)}
    assert list(faults) == list(told) and len(read) == 4
    for number, pattern in told.items():
        assert re.search(pattern, faults[number]), faults[number]
    last = read[3]
    assert not isinstance(last, RowError) and "\u00e9t\u00e9" in last["extra_info"]["question"]


def test_only_line_feeds_end_lines_of_json(tmp_path: Path) -> None:
    text = "one\u2028two\x85three"
    for suffix in (".json", ".jsonl"):
        path = tmp_path / f"a{suffix}"
        path.write_text(json.dumps({"a": text}, ensure_ascii=False) + "\r\n", encoding="utf-8")
        assert list(read_entries(path)) == [{"a": text}]


@pytest.mark.parametrize(
    ("name", "file", "content", "numbers"),
    [
        ("lvbench", "a.jsonl", {"key": "v", "type": "t", "qa": ["text", {"uid": 1}]}, [0, 1]),
        ("clevrer", "a.json", [{"video_filename": "v.mp4", "questions": [5, {"question_id": 1}]}], [0, 1]),
        ("video-mmmu", "Perception.json", ["text", {"id": "x"}], [0, 1]),
    ],
)
def test_entries_that_are_no_objects_are_told(
    name: str, file: str, content: object, numbers: list[int], tmp_path: Path
) -> None:
    (tmp_path / file).write_text(json.dumps(content))
    read = list(read_rows(get_benchmark(name), BenchmarkFiles(annotations=tmp_path / file, videos=tmp_path)))
    assert [number for number, row in read if isinstance(row, RowError)] == numbers == [number for number, _ in read]
    assert "named fields" in str(read[0][1]) and "named fields" not in str(read[1][1])


def test_options_lose_their_letters_only_if_all_have_them() -> None:
    assert without_letters(["A. One", "(B) Two", "C: A. B."]) == ["One", "Two", "A. B."]
    assert without_letters(["A. One", "Two"]) == ["A. One", "Two"]
    assert without_letters(["A cat", "B cat"]) == ["A cat", "B cat"]


def test_rows_of_other_questions(tmp_path: Path) -> None:
    row = benchmark_row(
        "b",
        index=3,
        split="dev",
        video_path=tmp_path / "v.mp4",
        question=" When? ",
        truth="2.0 to 5.5",
        video_segment_seconds=(2.0, 5.5),
    )
    sample = Sample.from_row(row)
    assert (sample.question, sample.question_type, sample.video_segment_seconds) == ("When?", "open", (2.0, 5.5))
    assert "groups" not in row["extra_info"] and "options" not in row["extra_info"]


def test_a_video_may_be_named_with_its_suffix_and_folder(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "v.1.webm").touch()
    assert find_video(tmp_path, "a/v.1") == find_video(tmp_path, "a/v.1.webm") == tmp_path / "a" / "v.1.webm"
