"""Benchmarks that are a map of fields, and little else. Each class says where its format was read from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar

from verl_video_tools.core.errors import RowError
from verl_video_tools.data.formats import BenchmarkFiles
from verl_video_tools.data.formats.entries import (
    ANNOTATION_FILE,
    Entry,
    ReadEntry,
    load_json,
    questions_of_video,
    read_entries,
    read_folder,
    required,
)
from verl_video_tools.data.formats.mapped import Fields, MappedBenchmark

MLVU_FILES = ("1_plotQA", "2_needle", "3_ego", "4_count", "5_order", "6_anomaly_reco", "7_topic_reasoning")


class LVBench(MappedBenchmark):
    """LVBench (arXiv 2406.08035): 1549 multiple-choice questions on 103 videos of half an hour to two hours.

    Format: `video_info.meta.jsonl`, a line per video with `key` (YouTube id), `type` and `qa`, a list of `uid`,
    `question` with its option lines ``(A) text``, `answer` (letter), `question_type` (a list), `time_reference`
    ("00:15-00:19"). lmms-eval's data set has a record per question with these fields and `video_path`. Videos
    `<key>.mp4`, or as the authors' script leaves them (video2dataset): `00000/00000007.mp4` is that of the eighth line,
    with a `.json` beside it that holds its `url`. Read from the README and the scripts of github.com/THUDM/LVBench,
    lmms_eval/tasks/lvbench of github.com/EvolvingLMMs-Lab/lmms-eval and converters of the file in other public
    repositories.
    """

    name = "lvbench"
    published_extractor = "lmms-eval-2025/lvbench"
    groupings = ("question_type", "video_type")
    group_fields: ClassVar[Mapping[str, str]] = {"video_type": "type"}
    questions_field = "qa"
    video_fields = ("key", "type", "number")
    index = "{uid}"
    has_option_lines = True
    videos = ("{video_path|key}", "{downloaded}")
    segment_fields = ("start", "end")

    def entries(self, annotations: Path) -> Iterable[ReadEntry]:
        """One entry per question, with the `number` of the line of its video, from 0, where each has a line."""
        for number, video in enumerate(read_entries(annotations)):
            if isinstance(video, Mapping) and isinstance(questions := video.get(self.questions_field), list):
                fields = {**video, "number": number}
                yield from questions_of_video({name: fields.get(name) for name in self.video_fields}, questions)
            else:
                yield video

    def derived(self, entry: Entry) -> Mapping[str, Any]:
        """`start` and `end` of a single segment, the types, always as a list, and where its video was `downloaded`."""
        types = required(entry, "question_type")
        start, _, end = str(entry.get("time_reference") or "").replace("~", "-").partition("-")
        return {
            "question_type": [types] if isinstance(types, str) else [str(name) for name in types],
            "start": start,
            "end": end,
            "downloaded": f"00000/{entry['number']:08d}" if "number" in entry else required(entry, "video_path", "key"),
        }

    def _find_video(self, fields: Fields, files: BenchmarkFiles) -> Path:
        """The first place that has the video.

        Raises:
            RowError: none has, or the downloaded one is told to be of another address.
        """
        found = super()._find_video(fields, files)
        told = found.with_suffix(".json")
        if files.videos is not None and found.stem == Path(fields["downloaded"]).name and told.is_file():
            address = str(load_json(told).get("url"))
            if str(fields["key"]) not in address:
                raise RowError(f"{found} is {address}, not the video {fields['key']!r}: was another list downloaded?")
        return found


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

    The two tasks of free text (8_sub_scene, 9_summary) are not read. MLVU ranks by the mean of the tasks' accuracies.
    Five questions (dev) list the right text twice: its authors' code takes the last.
    """

    name = "mlvu-dev"
    groupings = ("task",)
    group_fields: ClassVar[Mapping[str, str]] = {"task": "question_type|task_type"}
    group_mean = ("m_avg", "task")
    index = "{question_id|place}"
    split = "dev"
    options = "candidates"
    has_option_lines = True
    answer_form = "last text"
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
    published_extractor = "lmms-eval-2025/videomme"
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
