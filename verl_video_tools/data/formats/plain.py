"""Benchmarks that are a map of fields, and little else. Each class says where its format was read from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar

from verl_video_tools.core.errors import RowError, UsageError
from verl_video_tools.data.formats.entries import (
    ANNOTATION_FILE,
    Entry,
    ReadEntry,
    load_json,
    questions_of_video,
    read_folder,
    required,
)
from verl_video_tools.data.formats.fields import segment
from verl_video_tools.data.formats.mapped import MappedBenchmark

MLVU_FILES = ("1_plotQA", "2_needle", "3_ego", "4_count", "5_order", "6_anomaly_reco", "7_topic_reasoning")


class CGBench(MappedBenchmark):
    """CG-Bench (arXiv 2412.12075): 12,129 multiple-choice questions on long videos, with the segments that decide them.

    Format: `cgbench.json` (or `cgbench_mini.json`), a list of `qid`, `video_uid`, `question`, `answer`, `choices`,
    `right_answer` (letter), `clue_intervals` (segments in seconds), `domain`, `sub_category`, `duration`; videos
    `<video_uid>.mp4`, subtitles `<video_uid>.srt`, which its code shows with
    their times (`sub_time`). Read from
    github.com/CG-Bench/CG-Bench and lmms_eval/tasks/cgbench of github.com/EvolvingLMMs-Lab/lmms-eval.

    A question with several clue intervals gets no `video_segment`, which is a single one. Measured is the accuracy on
    whole videos (long-acc.); the benchmark's other measures are not.
    """

    name = "cg-bench"
    published_extractor = "lmms-eval/cgbench"
    groupings = ("domain", "sub_category")
    subtitle_form = "timed"
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
    published_extractor = "lmms-eval/lsdbench"
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
    published_extractor = "lmms-eval/lvbench"
    groupings = ("question_type", "video_type")
    group_fields: ClassVar[Mapping[str, str]] = {"video_type": "type"}
    questions_field = "qa"
    video_fields = ("key", "type")
    index = "{uid}"
    has_option_lines = True
    videos = ("{video_path|key}",)
    segment_fields = ("start", "end")

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
    published_extractor = "lmms-eval/mlvu"
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
    """MLVU's test split, of the data set MLVU/MLVU_Test; see `mlvu-dev`."""

    name = "mlvu-test"
    split = "test"


class PerceptionTest(MappedBenchmark):
    """Perception Test (arXiv 2305.13786): questions with three options about staged videos.

    Format: `mc_question_train.json`, `mc_question_valid.json`, or the files of all tasks: an object with an entry per
    video, by its id: `metadata` and `mc_question`, a list of `id`, `question`, `options`, `answer_id` (from 0), `area`,
    `reasoning`, `tag`; videos `<id>.mp4`. Read from the README of github.com/google-deepmind/perception_test.

    Some videos of cup games have to be cut before the answer is shown (`cut_frame_mapping_*.json` of the data set):
    that is left to the user. Grounded questions, tracks and sounds are not read.
    """

    name = "perception-test"
    published_extractor = "lmms-eval/perceptiontest"
    groupings = ("area", "reasoning")
    index = "{video_id}_{id}"
    split = "train"
    has_split_in_file_name = True
    answer = "answer_id"
    answer_form = "number"
    videos = ("{video_id}",)

    def entries(self, annotations: Path) -> Iterable[ReadEntry]:
        """One entry per question, with the id of its video as `video_id`."""
        videos = load_json(annotations)
        if not isinstance(videos, Mapping):
            raise UsageError(f"cannot read annotations from {annotations}: expected an object with an entry per video")
        for video_id, video in videos.items():
            if not isinstance(video, Mapping):
                yield RowError(f"the video {video_id!r} is an object with named fields, got {video!r:.80}")
            elif isinstance(questions := video.get("mc_question") or [], list):
                yield from questions_of_video({"video_id": video_id}, questions)
            else:
                yield RowError(f"the field 'mc_question' of {video_id!r} must be a list, got {questions!r:.80}")


class STAR(MappedBenchmark):
    """STAR (arXiv 2405.09711): questions with four options about situations in videos of Charades.

    Format: `STAR_train.json`, `STAR_val.json` (`STAR_test.json` has no answers), lists of `question_id` (such as
    "Interaction_T1_13"), `question`, `video_id`, `start` and `end` in seconds, `answer` (the text of a choice),
    `choices` (each `choice_id` and `choice`), ...; videos `<video_id>.mp4` of Charades. Read from the README of
    github.com/csbobby/STAR_Benchmark and schemas of the files in other public repositories.

    A question is about the part from `start` to `end`. STAR's authors cut the video; here the question says which part.
    Results are published as the mean of the accuracies of the four types of question.
    """

    name = "star"
    groupings = ("type",)
    group_mean = ("type_mean", "type")
    index = "{question_id}"
    split = "train"
    has_split_in_file_name = True
    question = "From {from} to {to} seconds of the video: {question}"
    answer_form = "text"
    videos = ("{video_id}",)
    segment_fields = ("start", "end")

    def derived(self, entry: Entry) -> Mapping[str, Any]:
        """The `type` of the question, its `options` in the order of their ids, and the part that it asks about."""
        question_type = str(required(entry, "question_id")).partition("_")[0]
        choices = required(entry, "choices")
        if not all(isinstance(choice, Mapping) for choice in choices):
            raise RowError(f"the field 'choices' must hold objects with choice_id and choice, got {choices!r:.80}")
        ordered = sorted(choices, key=lambda choice: int(required(choice, "choice_id")))
        options = [str(required(choice, "choice")) for choice in ordered]
        start, end = required(entry, "start"), required(entry, "end")
        seconds = segment(start, end)
        if seconds is None:
            raise RowError(f"the fields 'start' and 'end' must be seconds with start < end, got {start} and {end}")
        return {"type": question_type, "options": options, "from": f"{seconds[0]:g}", "to": f"{seconds[1]:g}"}


class VideoEspresso(MappedBenchmark):
    """VideoEspresso (arXiv 2411.14794): 203,000 questions with evidence from core frames, to train on, and a benchmark.

    Format: `videoespresso_train_video.json`, a list of `video_path`, `question`, `answer` (a text), `task` and what the
    answer was derived from (core frames, `evidence`); the benchmark (`bench_hard.json`) has `options`, "(A): text", and
    `correct_answer`, "(A)", instead of `answer`. The benchmark was read from eval/README.md and eval/eval.py of
    github.com/hshjerry/VideoEspresso; the training file second-hand, from scripts/prepare_videoespresso_mc_train.py of
    github.com/Chenwei-1999/SparseVideoUnderstanding. The version of core frames without videos
    (`videoespresso_train.json`) gives no rows.
    """

    name = "video-espresso"
    place_field = "number"
    index = "{number}"
    split = "{default_split}"
    has_split_in_file_name = True
    type_without_options = "open"
    videos = ("{video_path}",)
    has_moved_videos = True

    def derived(self, entry: Entry) -> Mapping[str, Any]:
        """What differs between the benchmark, which alone has options, and the training file."""
        if entry.get("options"):
            return {"default_split": "test", "answer": required(entry, "correct_answer")}
        return {"default_split": "train", "answer": required(entry, "answer")}


class VideoHolmes(MappedBenchmark):
    """Video-Holmes (arXiv 2505.21374): 1837 questions with six options on 270 suspense short films, and 1551 to train
    on.

    Format: `test_Video-Holmes.json` and `train_Video-Holmes.json`, lists of `video ID`, `Question ID`, `Question Type`
    (SR, IMC, TCI, TA, MHR, PAR, CTI), `Question`, `Options` (by letter), `Answer` (letter), `Explanation`; videos
    `<video ID>.mp4`. Read from evaluate.py and Pipeline/example_questions of github.com/TencentARC/Video-Holmes.
    """

    name = "video-holmes"
    published_extractor = "lmms-eval/video_holmes"
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

    With subtitles the paper's authors show those that belong to the sampled frames. A method with tools samples frames
    later, when the question is already asked, so that here it is all subtitles, or those at evenly spaced moments.
    """

    name = "video-mme"
    published_extractor = "lmms-eval/videomme"
    groupings = ("duration", "domain", "sub_category", "task_type")
    subtitle_form = "texts"
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
