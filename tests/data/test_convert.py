"""`vvt data convert --from`: a sample of each published format becomes rows, and what cannot is told and left out."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.video.files import MakeVideo
from tests.data.row_files import read_rows
from verl_video_tools.cli.main import run
from verl_video_tools.data.convert import ROW_SCHEMA, convert_annotations
from verl_video_tools.data.training_sets import SOURCE_NAMES, get_source
from verl_video_tools.data.validate import validate_file
from verl_video_tools.errors import RowError, UsageError
from verl_video_tools.evaluation.benchmarks import Benchmark, BenchmarkFiles, GradedItem
from verl_video_tools.evaluation.benchmarks.fields import (
    clock_seconds,
    find_moved_video,
    letter_of,
    listed_options,
    split_options,
)
from verl_video_tools.evaluation.benchmarks.grounding import SegmentJudge, read_segment
from verl_video_tools.types import AnswerLabel, Sample

SAMPLES = Path(__file__).parent / "samples"


@dataclass(frozen=True)
class Case:
    """A sample and what becomes of it.

    Attributes:
        annotations: below the folder of samples.
        videos: files that the user has, below the folder of videos.
        rows: truth, question with its options, and what is checked of `extra_info`, for each row.
        skipped: place and reason of each entry that is left out.
    """

    name: str
    annotations: str
    videos: tuple[str, ...]
    rows: tuple[tuple[str, str, dict[str, Any]], ...]
    skipped: tuple[tuple[int, str], ...] = ()


CASES = [
    Case(
        "mlvu-dev",
        "mlvu_dev",
        ("1_plotQA/harbour.mp4", "4_count/bells.mp4"),
        (
            (
                "B",
                "What does the fisher mend?\nA. A sail\nB. A net\nC. A boot\nD. A lamp",
                {"question_id": "1_plotQA_0", "split": "dev"},
            ),
            ("D", "How often does the bell ring?\nA. 3\nB. 1\nC. 4\nD. 2", {"question_id": "4_count_0"}),
        ),
        ((1, "1_plotQA, row 1: the field 'answer' is none of the options: 'A gull'"),),
    ),
    Case(
        "mlvu-test",
        "mlvu_test/test_mcq_gt.json",
        ("match.mp4",),
        (
            (
                "F",
                "Who scores first?\nA. Red\nB. Blue\nC. Green\nD. White\nE. Black\nF. Nobody",
                {"question_id": "SQA_0", "split": "test"},
            ),
            (
                "B",
                "What colour is the ball?\nA. red\nB. white\nC. blue\nD. black\nE. green\nF. none of these",
                {"options": ["red", "white", "blue", "black", "green", "none of these"]},
            ),
        ),
        ((2, "test_mcq_gt, row 2: the field 'answer' is missing"),),
    ),
    Case(
        "longvideobench",
        "longvideobench/lvb_val.json",
        ("pottery.mp4",),
        (
            (
                "C",
                "When the subtitle names the kiln, what lies on the table?\nA. a cup\nB. a knife\nC. a towel",
                {"question_id": "pottery_0", "split": "val"},
            ),
            ("A", "What follows?\nA. rain\nB. snow", {"options": ["rain", "snow"]}),
        ),
        (
            (2, "the field 'correct_choice' is 2, but there are 2 options"),
            (3, "the field 'correct_choice' is missing; there are: id, video_path"),
        ),
    ),
    Case(
        "lvbench",
        "lvbench/video_info.meta.jsonl",
        ("Ab3dE_fGh1J.mkv",),
        (
            (
                "B",
                "Which year stands on the gate?\nA. 1701\nB. 1710\nC. 1717\nD. 1771",
                {"question_id": "0", "video_segment": [15.0, 19.0]},
            ),
            ("D", "Why does the cat leave?\nA. Hunger\nB. Rain\nC. A bell\nD. A dog", {"video_segment": None}),
        ),
        ((2, "the field 'question' has no option lines"),),
    ),
    Case(
        "longvideo-reason",
        "longvideo_reason/test.jsonl",
        ("longvila_videos/race.mp4", "longvideo_eval_subset7/storm.webm"),
        (
            (
                "C",
                "What decides the race?\nA. A fall\nB. The wind\nC. A flat tyre\nD. A wrong turn",
                {"question_type": "mc", "split": "test", "question_id": "0"},
            ),
            ("Wait for me", "What does the rider shout?", {"question_type": "open", "question_id": "race"}),
            ("B", "What breaks first?\nA. The mast\nB. The rope", {"question_id": "2"}),
        ),
        (
            (3, "no video 'gone.mp4'"),
            (4, "the field 'answer' is the letter 'C', but 'problem' does not end with option lines"),
        ),
    ),
    Case(
        "video-holmes",
        "video_holmes/test_Video-Holmes.json",
        ("Qr7sT-uVw2X.mp4",),
        (
            (
                "F",
                "Who is the man with the umbrella to the girl?\nA. Her father\nB. Her teacher\nC. A stranger\n"
                "D. Her brother\nE. A guard\nF. A ghost",
                {"question_id": "Qr7sT-uVw2X_1", "split": "test"},
            ),
        ),
        ((1, "the field 'Options' must have the letters A, B, C, ..., got A, C"),),
    ),
    Case(
        "mvbench",
        "mvbench",
        ("star/Charades_segment/AB12C_2.4_9.1.mp4", "clevrer/video_validation/video_10007.mp4"),
        (
            (
                "B",
                "What does the person do after opening the box?\nA. Closes it.\nB. Sits down.\nC. Sings.",
                {"question_id": "action_sequence_0"},
            ),
            ("C", "How many cubes move?\nA. 2\nB. 3\nC. 0", {"question_id": "moving_count_0"}),
        ),
        ((2, "moving_count, row 1: the field 'answer' is missing"),),
    ),
    Case(
        "video-mmmu",
        "video_mmmu",
        ("Art/validation_Art_Theory_3.mp4", "Business/dev_Finance_7.mp4", "Business/dev_Finance_8.mp4"),
        (
            (
                "B",
                "A quiz may be shown at the end of the video; it is not this question.\n"
                "Which term is written on the slide?\nA. Fresco\nB. Tempera",
                {"question_id": "Perception_validation_Art_Theory_3", "question_type": "mc"},
            ),
            (
                "4.5",
                "The picture that the question is about is shown at the end of the video.\n"
                "What is the yield in per cent?",
                {"question_type": "numeric", "options": None},
            ),
            (
                "A",
                "The picture that the question is about is shown at the end of the video.\n"
                "Which bond yields most?\nA. The first\nB. The second",
                {"question_id": "Adaptation_dev_Finance_8"},
            ),
        ),
        ((1, "the field 'id' names no subject of Video-MMMU: 'validation_Cooking_3'"),),
    ),
    Case(
        "videosiah-eval",
        "videosiah_eval/test.json",
        ("fair_day.mp4",),
        (("A lemon.", "What does the juggler drop?", {"question_type": "open", "question_id": "0"}),),
        ((1, "the field 'answer' is empty"),),
    ),
    Case(
        "charades-sta",
        "charades_sta/charades_sta_test.txt",
        ("AB12C.mp4",),
        (
            (
                "[2.4, 9.1]",
                'When in the video does this happen: "person opens a box"?\n'
                "Answer with the start and the end in seconds, as in [2.5, 7.0].",
                {"question_type": "open", "video_segment": [2.4, 9.1], "split": "test"},
            ),
        ),
        (
            (1, "must be [start, end] with start < end, got [20.0, 11.5]"),
            (2, "not of the form <video> <start> <end>##<sentence>: 'AB12C opens a box'"),
        ),
    ),
    Case(
        "lsdbench",
        "lsdbench/mc_qa_annotations.json",
        ("71ab-garden.mp4",),
        (
            (
                "A",
                "Which tool is used to trim the hedge?\nA. Shears\nB. A saw\nC. A knife\nD. A rake",
                {"video_segment": [30.0, 240.0], "question_id": "0"},
            ),
        ),
        ((1, "the truth must be one of the letters AB, got 'E'"),),
    ),
    Case(
        "next-qa",
        "next_qa/val.csv",
        ("0101/40100700.mp4",),
        (
            (
                "D",
                "why does the girl look up\nA. to yawn\nB. to sing\nC. to hide\nD. to see the kite\nE. to sneeze",
                {"question_id": "40100700_6", "split": "val"},
            ),
        ),
        ((1, "the field 'answer' is 5, but there are 5 options"),),
    ),
    Case(
        "star",
        "star/STAR_val.json",
        ("AB12C.mp4",),
        (
            (
                "B",
                "From 2.4 to 9.1 seconds of the video: What did the person do before closing the book?\n"
                "A. Ate the cake.\nB. Drank the tea.",
                {"video_segment": [2.4, 9.1], "split": "val"},
            ),
        ),
        ((1, "the fields 'start' and 'end' must be seconds with start < end, got 9.1 and 9.1"),),
    ),
    Case(
        "perception-test",
        "perception_test/mc_question_valid.json",
        ("video_42.mp4",),
        (
            (
                "B",
                "Where is the coin at the end?\nA. left cup\nB. middle cup\nC. right cup",
                {"question_id": "video_42_0", "split": "val"},
            ),
        ),
        ((1, "the field 'answer_id' must be the number of an option, got 'first'"),),
    ),
    Case(
        "clevrer",
        "clevrer/validation.json",
        ("video_10000-11000/video_10001.mp4",),
        (
            (
                "C",
                "What colour is the object that enters last?\n"
                "A. blue\nB. brown\nC. cyan\nD. gray\nE. green\nF. purple\nG. red\nH. yellow",
                {"question_id": "video_10001_0", "split": "val"},
            ),
            ("2", "How many collisions are there?", {"question_type": "numeric"}),
            ("B", "Which event comes next?\nA. The cube and the sphere collide\nB. The cylinder exits", {}),
        ),
        (
            (3, "2 of its 2 choices are correct, so it has no single answer"),
            (4, "the field 'answer' is none of CLEVRER's words: 'loud'"),
        ),
    ),
    Case(
        "cg-bench",
        "cg_bench/cgbench.json",
        ("Yz8aB-cDe3F.mp4",),
        (
            ("C", "What colour is the tram?\nA. Blue\nB. Grey\nC. Ochre", {"video_segment": [8.0, 11.0]}),
            ("B", "How many stops?\nA. 3\nB. 4", {"video_segment": None}),
        ),
        ((2, "the truth must be one of the letters AB, got 'D'"),),
    ),
    Case(
        "video-r1",
        "video_r1/Video-R1-260k.json",
        ("LLaVA-Video-178K/youtube/ytb_stage.mp4",),
        (
            ("B", "What hangs over the stage?\nA. A lamp\nB. A rope", {"question_type": "mc", "question_id": "2"}),
            ("5", "How many dancers bow?", {"question_type": "numeric", "options": None}),
            ("The curtain falls.", "Describe the end.", {"question_type": "open"}),
        ),
        (
            (3, "it is about an image, not about a video"),
            (4, "the field 'problem_type' must be one of multiple choice"),
        ),
    ),
    Case(
        "framethinker-parquet",
        "framethinker_parquet/train.json",
        ("circus/clown.mp4",),
        (
            (
                "A",
                "What does the clown hide?\nA. A ball\nB. A card",
                {"question_type": "mc", "options": ["A ball", "A card"], "classification": "f", "question_id": "3"},
            ),
            ("He found the card.", "Why does he laugh?", {"question_type": "open", "classification": "a"}),
        ),
        ((2, "the field 'question_type' must be mc or oe, got 'essay'"),),
    ),
    Case(
        "videozoomer-json",
        "videozoomer_json/train.json",
        ("videos/market.mp4",),
        (
            (
                "C",
                "What is sold at the third stall?\nA. Bread\nB. Cloth\nC. Fish",
                {"question_type": "mc", "question_id": "0"},
            ),
            ("12 or so", "How many stalls are there?", {"question_type": "open", "question_id": "77"}),
        ),
        ((2, "the field 'videos' must list one video"),),
    ),
    Case(
        "longvt-parquet",
        "longvt_parquet/longvt_rl.json",
        ("forge.mp4",),
        (
            (
                "A blade",
                "What does the smith quench?",
                {"question_type": "open", "video_segment": [61.5, 70.0], "question_id": "9"},
            ),
        ),
        ((1, "the field 'video_segment' must be [start, end] with start < end, got [70.0, 61.5]"),),
    ),
]

PARQUET = {"framethinker-parquet", "longvt-parquet", "videosiah-eval"}
"""Published as parquet; the samples are JSON, which can be read."""


def prepare(case: Case, folder: Path) -> BenchmarkFiles:
    """The sample in its published form, beside the videos that the user has: empty files, as nothing is opened."""
    for video in case.videos:
        path = folder / "videos" / video
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    annotations = SAMPLES / case.annotations
    if case.name in PARQUET:
        published = folder / f"{annotations.stem}.parquet"
        pq.write_table(pa.Table.from_pylist(json.loads(annotations.read_text())), published)
        annotations = published
    return BenchmarkFiles(annotations=annotations, videos=folder / "videos")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_sample_of_each_format(case: Case, tmp_path: Path) -> None:
    files = prepare(case, tmp_path)
    target = tmp_path / "rows.parquet"
    conversion = convert_annotations(case.name, files, target, method_name="framethinker")
    rows = read_rows(target)
    assert conversion.num_written == len(rows) == len(case.rows)
    for number, (row, (truth, question, extra_info)) in enumerate(zip(rows, case.rows, strict=True)):
        assert row["reward_model"] == {"style": "rule", "ground_truth": truth}
        assert row["extra_info"]["question"] == question and row["prompt"] == [{"role": "user", "content": question}]
        assert {name: row["extra_info"][name] for name in extra_info} == extra_info
        assert row["extra_info"]["index"] == number and row["agent_name"] == "framethinker" and row["data_source"]
        video = Path(row["extra_info"]["video_path"]).relative_to(files.videos)
        assert str(video) in case.videos
    reasons = [(int(reason.split(": row ")[1].split(":")[0]), reason) for reason in conversion.skipped]
    assert [number for number, _ in reasons] == [number for number, _ in case.skipped]
    for (_, told), (_, expected) in zip(reasons, case.skipped, strict=True):
        assert told.startswith(str(files.annotations)) and expected in told
    assert not [report for report in validate_file(target) if report.problems], "the rows are good ones"


def test_every_format_has_a_sample() -> None:
    assert sorted({*(case.name for case in CASES), "video-mme"}) == list(SOURCE_NAMES)
    with pytest.raises(UsageError, match="there is no format 'mlvu'; choose one of: cg-bench, charades-sta"):
        get_source("mlvu")


def test_all_files_have_the_same_columns(tmp_path: Path) -> None:
    case = CASES[0]
    convert_annotations(case.name, prepare(case, tmp_path), tmp_path / "rows.parquet", split="mine")
    assert pq.read_schema(tmp_path / "rows.parquet").equals(ROW_SCHEMA)
    assert {row["extra_info"]["split"] for row in read_rows(tmp_path / "rows.parquet")} == {"mine"}


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case = next(case for case in CASES if case.name == "next-qa")
    files = prepare(case, tmp_path)
    target = tmp_path / "rows.parquet"
    command = ["data", "convert", str(files.annotations), str(target), "--from", "next-qa"]
    assert run([*command, "--videos", str(files.videos)]) == 0
    printed = capsys.readouterr()
    assert printed.out == f"{target}: 1 rows, 1 skipped\n"
    assert printed.err.startswith(f"skipped {files.annotations}: row 1: the field 'answer' is 5")
    assert "agent_name" not in pq.read_schema(target).names
    target.unlink()
    for bad, told in [
        (command, "--videos DIR"),
        ([*command, "--videos", str(tmp_path / "none")], "no such folder"),
        ([*command, "--videos", str(files.videos), "--skip-unreadable"], "--skip-unreadable is no option of --from"),
        ([*command, "--videos", str(files.videos), "--method", "magic"], "no method 'magic'"),
        ([*command, "--videos", str(files.videos), "--subtitles", str(tmp_path)], "next-qa has no subtitles"),
        ([*command[:4], "--for", "tool_agent", "--split", "x"], "--split is no option of --for"),
        (command[:4], "give either --from FORMAT"),
        ([*command, "--for", "tool_agent"], "give either --from FORMAT"),
    ]:
        assert run(bad) == 2
        assert told in capsys.readouterr().err
    assert not target.exists()


def test_a_file_without_a_good_row_is_bad_usage(tmp_path: Path) -> None:
    (tmp_path / "videos").mkdir()
    files = BenchmarkFiles(annotations=SAMPLES / "star" / "STAR_val.json", videos=tmp_path / "videos")
    with pytest.raises(UsageError, match=r"gives no row; the first was left out: .*no video 'AB12C'"):
        convert_annotations("star", files, tmp_path / "rows.parquet")
    assert not (tmp_path / "rows.parquet").exists()


def test_entries_of_other_types_are_told(tmp_path: Path) -> None:
    case = next(case for case in CASES if case.name == "star")
    files = prepare(case, tmp_path)
    entries = json.loads(files.annotations.read_text())
    broken = tmp_path / "broken.json"
    broken.write_text(json.dumps(["text", {**entries[0], "choices": 5}, {**entries[0], "choices": [7]}, entries[0]]))
    conversion = convert_annotations(
        "star", BenchmarkFiles(annotations=broken, videos=files.videos), tmp_path / "rows.parquet"
    )
    assert conversion.num_written == 1
    for reason, told in zip(conversion.skipped, ("named fields", "not in the format of star", "choices"), strict=True):
        assert told in reason


# ----------------------------------------------------------------------------------------- subtitles, figures, judges


def test_longvideobench_with_subtitles(tmp_path: Path, make_video: MakeVideo) -> None:
    """Times of subtitles are those of the longer video that this one is a part of."""
    videos = tmp_path / "videos"
    videos.mkdir()
    (videos / "pottery.mp4").symlink_to(make_video(100))  # 3.3 s
    annotations, subtitles = SAMPLES / "longvideobench" / "lvb_val.json", SAMPLES / "longvideobench" / "subtitles"
    for frames, expected in [
        (None, ("First the clay.\nNow the kiln.", "It darkens.\nThunder.")),
        (3, ("First the clay.", "It darkens.")),
    ]:
        files = BenchmarkFiles(annotations=annotations, videos=videos, subtitles=subtitles, subtitle_frames=frames)
        convert_annotations("longvideobench", files, tmp_path / "rows.parquet")
        for row, told in zip(read_rows(tmp_path / "rows.parquet"), expected, strict=True):
            question = row["extra_info"]["question"]
            assert question.startswith(f"Subtitles of the video:\n{told}\n\nWh")


def test_cg_bench_with_subtitles(tmp_path: Path) -> None:
    case = next(case for case in CASES if case.name == "cg-bench")
    files = prepare(case, tmp_path)
    (tmp_path / "Yz8aB-cDe3F.srt").write_text("1\n00:00:08,000 --> 00:00:09,000\nHere comes number 5.\n")
    with_subtitles = BenchmarkFiles(annotations=files.annotations, videos=files.videos, subtitles=tmp_path)
    convert_annotations("cg-bench", with_subtitles, tmp_path / "rows.parquet")
    question = read_rows(tmp_path / "rows.parquet")[0]["extra_info"]["question"]
    assert question.startswith("Subtitles of the video:\nHere comes number 5.\n\nWhat colour is the tram?")


def graded(row: dict[str, Any], answer: str | None, label: AnswerLabel) -> GradedItem:
    return GradedItem(Sample.from_row(row), answer, label)


def rows_of(name: str, tmp_path: Path) -> tuple[Benchmark, list[dict[str, Any]]]:
    case = next(case for case in CASES if case.name == name)
    benchmark, files = get_source(name), prepare(case, tmp_path)
    rows = []
    for entry in benchmark.entries(files.annotations):
        try:
            rows.append(benchmark.row(entry, files))
        except RowError:
            continue
    return benchmark, rows


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_rows_belong_to_the_groups_of_their_benchmark(case: Case, tmp_path: Path) -> None:
    benchmark, rows = rows_of(case.name, tmp_path)
    assert len(rows) == len(case.rows)
    for row in rows:
        groups = row["extra_info"].get("groups", {})
        # Records of LongVideo-Reason to train on have no category.
        assert tuple(groups) == benchmark.groupings or (not groups and case.name == "longvideo-reason")
        assert all(groups.values())


@pytest.mark.parametrize(
    ("name", "figure", "groups"),
    [
        ("mlvu-dev", "m_avg", [{"task": "plotQA"}, {"task": "count"}]),
        ("mvbench", "task_mean", [{"task": "action_sequence"}, {"task": "moving_count"}]),
        (
            "video-mmmu",
            "track_mean",
            [
                {"track": "Perception", "discipline": "Art"},
                {"track": "Adaptation", "discipline": "Business"},
                {"track": "Adaptation", "discipline": "Business"},
            ],
        ),
    ],
)
def test_means_of_groups(name: str, figure: str, groups: list[dict[str, str]], tmp_path: Path) -> None:
    """Each group counts alike: three right answers of the first and one of three of the last make two thirds."""
    benchmark, rows = rows_of(name, tmp_path)
    assert [row["extra_info"]["groups"] for row in rows] == groups
    items = [graded(rows[0], "x", AnswerLabel.CORRECT)] * 3
    items += [graded(rows[-1], "x", label) for label in (AnswerLabel.CORRECT, *[AnswerLabel.INCORRECT] * 2)]
    assert benchmark.metrics(items) == {figure: pytest.approx((1 + 1 / 3) / 2)}


@pytest.mark.parametrize(
    ("answer", "segment"),
    [
        ("[2.5, 7]", (2.5, 7.0)),
        ("It happens from 2.5 to 7 seconds.", (2.5, 7.0)),
        ("2.5s - 7s", (2.5, 7.0)),
        ("between 0:02 and 1:07.5", (2.0, 67.5)),
        ("First [0, 1]; no, [2.5, 7].", (2.5, 7.0)),
        ("7 to 2.5", (7.0, 2.5)),
        ("at 7 seconds", None),
        ("", None),
        (None, None),
    ],
)
def test_segments_in_answers(answer: str | None, segment: tuple[float, float] | None) -> None:
    assert read_segment(answer) == segment


async def test_grounding(tmp_path: Path) -> None:
    """The truth is 2.4 to 9.1 s: overlaps of 1, 0.6, 0.4, and none."""
    benchmark, rows = rows_of("charades-sta", tmp_path)
    answers = ["[2.4, 9.1]", "[2.4, 6.42]", "[2.4, 5.08]", None]
    items = [graded(rows[0], answer, AnswerLabel.INCORRECT) for answer in answers]
    figures = benchmark.metrics(items)
    assert figures == pytest.approx({"R@0.3": 0.75, "R@0.5": 0.5, "R@0.7": 0.25, "mIoU": 0.5})
    judge = benchmark.judge()
    assert isinstance(judge, SegmentJudge)
    verdicts = [await judge.judge("?", "[2.4, 9.1]", answer or "") for answer in answers]
    assert [verdict is AnswerLabel.CORRECT for verdict in verdicts] == [True, True, False, False]


# ------------------------------------------------------------------------------------------------------------- fields


@pytest.mark.parametrize(
    ("text", "question", "options"),
    [
        ("Why?\nA. One\nB. Two", "Why?", ["One", "Two"]),
        ("Why?\n(A) One\n(B) Two\n", "Why?", ["One", "Two"]),
        ("Why?\nOptions:\nA: One\nB: Two", "Why?", ["One", "Two"]),
        ("Who?\nA. Smith wrote it.\nIs it so?\nA. Yes\nB. No", "Who?\nA. Smith wrote it.\nIs it so?", ["Yes", "No"]),
        ("Why?\nA. One\nC. Two", "Why?\nA. One\nC. Two", []),
        ("Why?\nA. One\nB. Two\nAnswer now.", "Why?\nA. One\nB. Two\nAnswer now.", []),
        ("Why? ", "Why?", []),
    ],
)
def test_option_lines(text: str, question: str, options: list[str]) -> None:
    assert split_options(text) == (question, options)


def test_a_moved_video_is_found_by_the_longest_end_of_its_path(tmp_path: Path) -> None:
    for place in ("clown.mp4", "circus/clown.mp4"):
        (tmp_path / place).parent.mkdir(exist_ok=True)
        (tmp_path / place).touch()
    assert find_moved_video(tmp_path, "/data/circus/clown.mp4") == tmp_path / "circus" / "clown.mp4"
    assert find_moved_video(tmp_path, "file:///data/fair/clown.mp4") == tmp_path / "clown.mp4"
    with pytest.raises(RowError, match=r"no video 'lion\.mp4'"):
        find_moved_video(tmp_path, "../circus/lion.mp4")


@pytest.mark.parametrize(("answer", "letter"), [("two", "B"), ("B", "B"), ("(B) two", "B"), ("A. one ", "A")])
def test_letters_of_answers(answer: str, letter: str) -> None:
    assert letter_of(answer, ["one", "two"], "answer") == letter


@pytest.mark.parametrize("answer", ["three", "C", "A. two", ""])
def test_answers_that_are_no_option(answer: str) -> None:
    with pytest.raises(RowError, match="the field 'answer' is none of the options"):
        letter_of(answer, ["one", "two"], "answer")


@pytest.mark.parametrize("options", ["['a', 'b']", ["a"], {"A": "a"}, 5])
def test_options_that_are_no_list(options: Any) -> None:
    with pytest.raises(RowError, match="the field 'candidates' must list the options"):
        listed_options(options, "candidates")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("75.5", 75.5), (3, 3.0), ("01:15", 75.0), ("1:01:15.5", 3675.5), ("-3", None), ("nan", None), ("soon", None)],
)
def test_clock_times(text: Any, seconds: float | None) -> None:
    assert clock_seconds(text) == seconds
