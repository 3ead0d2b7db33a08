"""Benchmarks that are a map of fields, and little else. Each class says where its format was read from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar

from verl_video_tools.data.formats.entries import (
    ANNOTATION_FILE,
    Entry,
    ReadEntry,
    questions_of_video,
    read_entries,
    read_folder,
    required,
)
from verl_video_tools.data.formats.mapped import MappedBenchmark

MLVU_FILES = ("1_plotQA", "2_needle", "3_ego", "4_count", "5_order", "6_anomaly_reco", "7_topic_reasoning")


class CGBench(MappedBenchmark):
    """CG-Bench (arXiv 2412.12075): 12,129 multiple-choice questions on long videos, with the segments that decide them.

    Format: `cgbench.json` (or `cgbench_mini.json`), a list of `qid`, `video_uid`, `question`, `answer`, `choices`,
    `right_answer` (letter), `clue_intervals` (segments in seconds), `domain`, `sub_category`, `duration`; videos
    `<video_uid>.mp4`, subtitles `<video_uid>.srt`. Read from github.com/CG-Bench/CG-Bench and lmms_eval/tasks/cgbench
    of github.com/EvolvingLMMs-Lab/lmms-eval.

    A question with several clue intervals gets no `video_segment`, which is a single one. Measured is the accuracy on
    whole videos (long-acc.); the benchmark's other measures are not.
    """

    name = "cg-bench"
    groupings = ("domain", "sub_category")
    has_subtitles = True
    index = "{qid}"
    options = "choices"
    answer = "right_answer"
    videos = ("{video_uid}",)
    segment_fields = ("start", "end")

    def derived(self, entry: Entry) -> Mapping[str, Any]:
        """`start` and `end` of a single clue interval."""
        clues = entry.get("clue_intervals") or []
        start, end = clues[0] if len(clues) == 1 and len(clues[0]) == 2 else (None, None)
        return {"start": start, "end": end}


class LSDBench(MappedBenchmark):
    """LSDBench (arXiv 2503.12496): 1300 multiple-choice questions about short actions in long first-person videos
    (Ego4D).

    Format: `mc_qa_annotations_1300.json`, a list of `question`, `options` (by letter), `correct_answer` (letter),
    `time_range` (`start` and `end`, "HH:MM:SS"), `video_id`, ...; videos `<video_id>.mp4`. A question is known by its
    place in the list. Read from lsdbench/ and evaluation/dataset.py of github.com/dvlab-research/LSDBench.
    """

    name = "lsdbench"
    place_field = "id"
    answer = "correct_answer"
    videos = ("{video_id}",)
    segment_fields = ("start", "end")

    def derived(self, entry: Entry) -> Mapping[str, Any]:
        """`start` and `end` of the time range."""
        time_range = entry.get("time_range") or {}
        return {"start": time_range.get("start"), "end": time_range.get("end")}


class LVBench(MappedBenchmark):
    """LVBench (arXiv 2406.08035): 1549 multiple-choice questions on 103 videos of half an hour to two hours.

    Format: `video_info.meta.jsonl`, a line per video with `key` (YouTube id), `type` and `qa`, a list of `uid`,
    `question` with its option lines ``(A) text``, `answer` (letter), `question_type` (a list), `time_reference`
    ("00:15-00:19"). lmms-eval's data set has a record per question with these fields and `video_path`. Videos
    `<key>.mp4`. Read from the README of github.com/THUDM/LVBench, lmms_eval/tasks/lvbench of
    github.com/EvolvingLMMs-Lab/lmms-eval and converters of the file in other public repositories.
    """

    name = "lvbench"
    groupings = ("question_type", "video_type")
    group_fields: ClassVar[Mapping[str, str]] = {"video_type": "type"}
    index = "{uid}"
    has_option_lines = True
    videos = ("{video_path|key}",)
    segment_fields = ("start", "end")

    def entries(self, annotations: Path) -> Iterable[ReadEntry]:
        """One entry per question, with its video's `key` and `type`."""
        for entry in read_entries(annotations):
            if isinstance(entry, dict) and isinstance(entry.get("qa"), list):
                video = {"key": entry.get("key"), "type": entry.get("type")}
                yield from questions_of_video(video, entry["qa"])
            else:
                yield entry

    def derived(self, entry: Entry) -> Mapping[str, Any]:
        """`start` and `end` of a single segment, and the types, always as a list."""
        types = required(entry, "question_type")
        start, _, end = str(entry.get("time_reference") or "").replace("~", "-").partition("-")
        return {
            "question_type": [types] if isinstance(types, str) else [str(name) for name in types],
            "start": start,
            "end": end,
        }


class MLVUDev(MappedBenchmark):
    """MLVU (arXiv 2406.04264): multiple-choice questions of seven tasks (dev) or nine (test) on long videos.

    Format, dev: the folder `json` with a file per task, `1_plotQA.json` to `7_topic_reasoning.json`, lists of `video`,
    `duration`, `question`, `candidates`, `answer` (the text of one), `question_type`; videos `<task>/<video>`, such as
    `1_plotQA/movie.mp4`. Test: `test-ground-truth/test_mcq_gt.json`, a list of the same fields with a `question_id` and
    six candidates (the other files of the data set MLVU/MLVU_Test have no answers); videos in one folder. Both also as
    the data sets of lmms-eval: `video_name`, `question` with its option lines, `answer` as a letter, `task_type`.
    Read from data/ and Evaluation_Test/ of github.com/JUNJIE99/MLVU and lmms_eval/tasks/mlvu of
    github.com/EvolvingLMMs-Lab/lmms-eval; name and fields of the file with the answers second-hand, from loaders in
    public repositories.

    The two tasks of free text (8_sub_scene, 9_summary) are left out: their score is a rubric of its own. MLVU ranks by
    the mean of the tasks' accuracies.
    """

    name = "mlvu-dev"
    groupings = ("task",)
    group_fields: ClassVar[Mapping[str, str]] = {"task": "question_type|task_type"}
    group_mean = ("m_avg", "task")
    index = "{question_id|place}"
    split = "dev"
    options = "candidates"
    has_option_lines = True
    answer_form = "text"
    videos = ("{file}/{video|video_name}", "{video|video_name}")

    def entries(self, annotations: Path) -> Iterable[ReadEntry]:
        """The questions of a folder of task files, or of one file."""
        return read_folder(annotations, MLVU_FILES if annotations.is_dir() else (annotations.stem,))

    def derived(self, entry: Entry) -> Mapping[str, Any]:
        """The name of the task's `file`, and the question's `place` in it."""
        file, number = entry[ANNOTATION_FILE]
        return {"file": file, "place": f"{file}_{number}"}


class MLVUTest(MLVUDev):
    """The test split of `MLVUDev`, of the data set MLVU/MLVU_Test."""

    name = "mlvu-test"
    split = "test"


class VideoHolmes(MappedBenchmark):
    """Video-Holmes (arXiv 2505.21374): 1837 questions with six options on 270 suspense short films, and 1551 to train
    on.

    Format: `test_Video-Holmes.json` and `train_Video-Holmes.json`, lists of `video ID`, `Question ID`, `Question Type`
    (SR, IMC, TCI, TA, MHR, PAR, CTI), `Question`, `Options` (by letter), `Answer` (letter), `Explanation`; videos
    `<video ID>.mp4`. Read from evaluate.py and Pipeline/example_questions of github.com/TencentARC/Video-Holmes.
    """

    name = "video-holmes"
    groupings = ("question_type",)
    group_fields: ClassVar[Mapping[str, str]] = {"question_type": "Question Type"}
    index = "{video ID}_{Question ID}"
    has_split_in_file_name = True
    question = "{Question}"
    options = "Options"
    answer = "Answer"
    videos = ("{video ID}",)


class VideoMME(MappedBenchmark):
    """Video-MME (arXiv 2405.21075): 2700 multiple-choice questions on 900 videos of 11 seconds to an hour.

    Format: the data set lmms-lab/Video-MME on Hugging Face, file `videomme/test-00000-of-00001.parquet`, one question
    per record with `videoID`, `duration`, `domain`, `sub_category`, `question_id`, `task_type`, `question`, `options`
    (each with its letter), `answer`; videos `data/<videoID>.mp4`, subtitles `subtitle/<videoID>.srt`, which some videos
    lack. Read from lmms_eval/tasks/videomme of github.com/EvolvingLMMs-Lab/lmms-eval and the README of
    github.com/BradyFU/Video-MME.

    With subtitles the paper's authors show those that belong to the sampled frames. A method that looks again samples
    frames later, when the question is already asked, so that here it is all subtitles, or those at evenly spaced
    moments.
    """

    name = "video-mme"
    groupings = ("duration", "domain", "sub_category", "task_type")
    has_subtitles = True
    index = "{question_id}"
    videos = ("{videoID}",)


class VideoSIAHEval(MappedBenchmark):
    """VideoSIAH-Eval (LongVT, arXiv 2511.20785): open questions about short segments of long videos.

    Format: the parquet file of the data set longvideotool/VideoSIAH-Eval, records of `video_path`, `question`,
    `answer`. No segments are published. The questions need a judge. Read from lmms_eval/tasks/longvt of
    github.com/EvolvingLMMs-Lab/lmms-eval.
    """

    name = "videosiah-eval"
    place_field = "id"
    type_without_options = "open"
    videos = ("{video_path}",)
    has_moved_videos = True
