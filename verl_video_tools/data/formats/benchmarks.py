"""Benchmarks, most of them a map of fields. Each class says where its format was read from."""

from __future__ import annotations

import re
import string
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar

from verl_video_tools.core.errors import RowError, UsageError
from verl_video_tools.core.types import Sample
from verl_video_tools.data.formats import Benchmark, BenchmarkFiles
from verl_video_tools.data.formats.entries import (
    ANNOTATION_FILE,
    Entry,
    ReadEntry,
    Row,
    benchmark_row,
    numbered,
    read_entries,
    read_folder,
    required,
)
from verl_video_tools.data.formats.fields import (
    find_first_video,
    question_of_text,
    reasoning_turn,
    segment,
    split_name,
)
from verl_video_tools.data.formats.mapped import MappedBenchmark
from verl_video_tools.grading.segments import overlap

MLVU_FILES = ("1_plotQA", "2_needle", "3_ego", "4_count", "5_order", "6_anomaly_reco", "7_topic_reasoning")


class LVBench(MappedBenchmark):
    """LVBench (arXiv 2406.08035): 1549 multiple-choice questions on 103 videos of half an hour to two hours.

    Format: `video_info.meta.jsonl`, a line per video with `key` (YouTube id), `type` and `qa`, a list of `uid`,
    `question` with its option lines ``(A) text``, `answer` (letter), `question_type` (a list), `time_reference`
    ("00:15-00:19"). lmms-eval's data set has a record per question with these fields and `video_path`. Videos
    `<key>.mp4`. Read from the README and the scripts of github.com/THUDM/LVBench,
    lmms_eval/tasks/lvbench of github.com/EvolvingLMMs-Lab/lmms-eval and converters of the file in other public
    repositories.
    """

    name = "lvbench"
    published_extractor = "lmms-eval-2025/lvbench"
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
        types = [types] if isinstance(types, str) else [str(name) for name in types]
        return {"question_type": types, "start": start, "end": end}


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
    later, when the question is already asked, so that all subtitles are shown here.
    """

    name = "video-mme"
    published_extractor = "lmms-eval-2025/videomme"
    groupings = ("duration", "domain", "sub_category", "task_type")
    takes_subtitles = True
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


class CharadesSTA(MappedBenchmark):
    """Charades-STA (arXiv 1705.02101): when does what a sentence says happen in a video of half a minute?

    Format: `charades_sta_test.txt` (`charades_sta_train.txt` to train on), lines ``<video> <start> <end>##<sentence>``
    with times in seconds; or the data set lmms-eval/charades_sta, records of `video`, `caption`, `timestamp` [start,
    end]. Videos `<video>.mp4` of Charades. Read from lmms_eval/tasks/charades_sta of
    github.com/EvolvingLMMs-Lab/lmms-eval and readers of the text files in other public repositories.

    The answer is a segment; it is right if its overlap with the annotated one is at least a half.
    """

    name = "charades-sta"
    has_split_in_file_name = True
    question = (
        'When in the video does this happen: "{sentence}"?\n'
        "Answer with the start and the end in seconds, as in [2.5, 7.0]."
    )
    type_without_options = "segment"
    segment_fields = ("start", "end")

    def entries(self, annotations: Path) -> Iterable[ReadEntry]:
        """The sentences with their place in the file as `id`."""
        return numbered(_read_lines(annotations) if annotations.suffix == ".txt" else read_entries(annotations), "id")

    def derived(self, entry: Entry) -> Mapping[str, Any]:
        """The `sentence` to ask about, `start` and `end` in seconds, and both as the `answer`."""
        if "line" in entry:
            raise RowError(f"not of the form <video> <start> <end>##<sentence>: {entry['line']!r:.80}")
        timestamp = required(entry, "timestamp")
        try:
            start, end = timestamp
        except (TypeError, ValueError) as error:
            raise RowError(f"the field 'timestamp' must be [start, end], got {timestamp!r:.80}") from error
        seconds = segment(start, end)
        if seconds is None:
            raise RowError(f"the field 'timestamp' must be [start, end] with start < end, got [{start}, {end}]")
        sentence = str(required(entry, "caption")).strip().removesuffix(".")
        answer = f"[{seconds[0]:g}, {seconds[1]:g}]"
        return {"sentence": sentence, "start": seconds[0], "end": seconds[1], "answer": answer}

    def metrics(self, sample: Sample, answer: str | None) -> dict[str, float]:
        """`R@0.3`, `R@0.5`, `R@0.7`: whether the answer overlaps with the truth at least so much; `mIoU`: how much."""
        value = overlap(answer, sample.ground_truth)
        return {**{f"R@{least:g}": float(value >= least) for least in (0.3, 0.5, 0.7)}, "mIoU": value}


def _read_lines(path: Path) -> Iterable[ReadEntry]:
    """Records of a text file; a line of another form is one with the field `line` only."""
    try:
        lines = path.read_text(encoding="utf-8-sig", errors="surrogateescape").split("\n")
    except OSError as error:
        raise UsageError(f"cannot read annotations from {path}: {error}") from error
    for line in lines:
        head, mark, sentence = line.partition("##")
        parts = head.split()
        if mark and len(parts) == 3:
            yield {"video": parts[0], "timestamp": parts[1:], "caption": sentence}
        elif line.strip():
            yield {"line": line}


VOCABULARIES = (
    ("yes", "no"),
    ("blue", "brown", "cyan", "gray", "green", "purple", "red", "yellow"),
    ("cube", "cylinder", "sphere"),
    ("metal", "rubber"),
)

_VIDEOS_PER_FOLDER = 1000


class CLEVRER(MappedBenchmark):
    """CLEVRER (arXiv 1910.01442): questions about rendered videos of colliding objects.

    Format: `train.json`, `validation.json` (`test.json` has no answers), a list of videos with `scene_index`,
    `video_filename` and `questions`: each `question_id`, `question`, `question_type` and, if that is descriptive,
    `answer` (a word), else `choices`, each `choice_id`, `choice` and `answer` ("correct" or "wrong"). Videos
    `video_10000-11000/video_10001.mp4`, or all in one folder. The format is that of the project page and of
    executor/run_mc.py in github.com/chuangg/CLEVRER; the folders were read from loaders in public repositories.

    Descriptive answers come from small vocabularies (yes and no, colours, shapes, materials), which become the options;
    counts become numeric questions. A question with exactly one correct choice becomes a multiple-choice question. A
    question with several correct choices is skipped.
    """

    name = "clevrer"
    groupings = ("question_type",)
    questions_field = "questions"
    video_fields = ("video_filename",)
    index = "{stem}_{question_id}"
    split = "train"
    has_split_in_file_name = True
    type_without_options = "numeric"
    videos = ("{folder}/{video_filename}", "{video_filename}")

    def derived(self, entry: Entry) -> Mapping[str, Any]:
        """`options` and the letter of the right one, or a count, as the `answer`; and names of the video."""
        video = str(required(entry, "video_filename"))
        options, answer = _choices(entry) if entry.get("choices") else _vocabulary(str(required(entry, "answer")))
        return {"stem": Path(video).stem, "folder": _folder(video), "options": options, "answer": answer}


def _choices(entry: Entry) -> tuple[list[str], str]:
    choices = entry["choices"]
    correct = [number for number, choice in enumerate(choices) if required(choice, "answer") == "correct"]
    if len(correct) != 1:
        raise RowError(f"{len(correct)} of its {len(choices)} choices are correct, so it has no single answer")
    return [str(required(choice, "choice")) for choice in choices], string.ascii_uppercase[correct[0]]


def _vocabulary(answer: str) -> tuple[list[str], str]:
    if answer.isdigit():
        return [], answer
    for words in VOCABULARIES:
        if answer in words:
            return list(words), string.ascii_uppercase[words.index(answer)]
    raise RowError(f"the field 'answer' is none of CLEVRER's words: {answer!r:.80}")


def _folder(video: str) -> str:
    number = re.search(r"\d+", video)
    first = int(number[0]) // _VIDEOS_PER_FOLDER * _VIDEOS_PER_FOLDER if number else 0
    return f"video_{first:05d}-{first + _VIDEOS_PER_FOLDER:05d}"


_SUBSETS = tuple(f"longvideo_eval_subset{number}" for number in range(10))


class LongVideoReason(Benchmark):
    """LongVideo-Reason (arXiv 2507.07966): 52,000 questions with reasoning to train on, and 1000 to measure by.

    Format: the data set LongVideo-Reason/longvideo-reason, records of `problem` (question with its option lines),
    `answer` (a letter, or a text, between answer tags or not), `videos` (one path, `longvila_videos/<id>.mp4`, .webm or
    .mkv) and `reasoning`; those to measure by also `problem_id` and `problem_type` (temporal, goal, plot or spatial).
    The videos' folder is the one that holds `longvila_videos`, or the folders `longvideo_eval_subset0` to `9` that the
    archives of LongVideo-Reason/longvideo_eval_videos unpack to. Five of the 1000 questions have lost their options, or
    some of them. Read second-hand: from the README of longvideo-reason in github.com/NVlabs/Long-RL,
    areal/dataset/longvideo_reason.py of github.com/inclusionAI/AReaL and lmms_eval/tasks/longvideo_reason of
    github.com/EvolvingLMMs-Lab/lmms-eval, which says what the files hold, as opposed to what is said of them."""

    name = "longvideo-reason"
    groupings = ("problem_type",)
    has_turns = True

    def row(self, entry: Entry, files: BenchmarkFiles) -> Row:
        videos = required(entry, "videos")
        video = PurePosixPath(videos if isinstance(videos, str) else videos[0])
        question_fields = question_of_text(str(required(entry, "problem")), str(required(entry, "answer")))
        if question_fields["question_type"] == "mc" and not question_fields["options"]:
            raise RowError(
                f"the field 'answer' is the letter {question_fields['truth']!r}, but 'problem' does not end with "
                "option lines"
            )
        problem_type = entry.get("problem_type")
        places = [str(video), *(f"{folder}/{video.name}" for folder in _SUBSETS), video.name]
        return benchmark_row(
            self.name,
            index=str(entry.get("problem_id", video.stem)),
            split=split_name(files.annotations, "train"),
            video_path=find_first_video(files.videos, places),
            groups={"problem_type": str(problem_type)} if problem_type else None,
            **question_fields,
        )

    def sft_row(self, entry: Entry, files: BenchmarkFiles) -> Row:
        """With the published reasoning as its only turn."""
        turn = reasoning_turn(str(required(entry, "reasoning")), str(required(entry, "answer")))
        return {**self.row(entry, files), "turns": [turn], "template": "reasoning"}


_MAX_OPTIONS = 5


class LongVideoBench(MappedBenchmark):
    """LongVideoBench (arXiv 2407.15754): multiple-choice questions that refer to moments of videos of up to an hour.

    Format: `lvb_val.json`, a list of `id`, `video_path`, `question`, `candidates`, `correct_choice`
    (from 0), `question_category`, `topic_category`, `duration_group`, `duration` in seconds,
    ...; videos `videos/<video_path>`. The data set's parquet files have `option0` to `option4` instead of `candidates`,
    "N/A" where there are fewer. The test split is published without answers. Subtitles are not read: no table of the
    five papers has them. Read from github.com/longvideobench/LongVideoBench (longvideobench_dataset.py) and
    lmms_eval/tasks/longvideobench of github.com/EvolvingLMMs-Lab/lmms-eval."""

    name = "longvideobench"
    groupings = ("duration_group", "question_category", "topic_category")
    split = "val"
    has_split_in_file_name = True
    options = "candidates"
    answer = "correct_choice"
    answer_form = "number"
    videos = ("{video_path}",)

    def derived(self, entry: Entry) -> Mapping[str, Any]:
        """The options, where each has a column."""
        columns = [entry.get(f"option{number}") for number in range(_MAX_OPTIONS)]
        if self.options in entry or not any(columns):
            return {}
        return {"options": [str(option) for option in columns if option not in (None, "", "N/A")]}


VIDEO_FOLDERS = {
    "action_sequence": "star/Charades_segment",
    "action_prediction": "star/Charades_segment",
    "action_antonym": "ssv2_video_mp4",
    "fine_grained_action": "Moments_in_Time_Raw/videos",
    "unexpected_action": "FunQA_test/test",
    "object_existence": "clevrer/video_validation",
    "object_interaction": "star/Charades_segment",
    "object_shuffle": "perception/videos",
    "moving_direction": "clevrer/video_validation",
    "action_localization": "sta/sta_video_segment",
    "scene_transition": "scene_qa/video",
    "action_count": "perception/videos",
    "moving_count": "clevrer/video_validation",
    "moving_attribute": "clevrer/video_validation",
    "state_change": "perception/videos",
    "fine_grained_pose": "nturgbd_convert",
    "character_order": "perception/videos",
    "egocentric_navigation": "vlnqa",
    "episodic_reasoning": "tvqa/video_fps3_hq_segment",
    "counterfactual_inference": "clevrer/video_validation",
}
"""Where the videos of each task lie."""


class MVBench(MappedBenchmark):
    """MVBench (arXiv 2311.17005): 4000 multiple-choice questions of 20 tasks on short videos.

    Format: the folder `json` with a file per task, such as `action_sequence.json`, lists of `video`, `question`,
    `candidates`, `answer` (the text of one) and, where the question is about a part of the video, `start` and `end`.
    Videos lie in a folder per source, such as `clevrer/video_validation`. Questions about a part need the cut videos
    (revision `video` of the data set OpenGVLab/MVBench): here they lie in `star/Charades_segment`,
    `sta/sta_video_segment` and `tvqa/video_fps3_hq_segment`. MVBench ranks by the mean of the tasks' accuracies.
    Read from lmms_eval/tasks/mvbench of github.com/EvolvingLMMs-Lab/lmms-eval and loaders of the files in other public
    repositories.
    """

    name = "mvbench"
    groupings = ("task",)
    group_mean = ("task_mean", "task")
    index = "{place}"
    options = "candidates"
    answer_form = "text"
    videos = ("data0613/{folder}/{video}", "{folder}/{video}")

    def entries(self, annotations: Path) -> Iterable[ReadEntry]:
        """The questions of all tasks that the folder has a file of."""
        return read_folder(annotations, tuple(VIDEO_FOLDERS))

    def derived(self, entry: Entry) -> Mapping[str, Any]:
        """The `task`, the `folder` of its videos, and the question's `place` in its file."""
        task, number = entry[ANNOTATION_FILE]
        return {"task": task, "folder": VIDEO_FOLDERS[task], "place": f"{task}_{number}"}


class VideoMMLU(MappedBenchmark):
    """Video-MMLU (arXiv 2504.14693): open questions on 1065 lectures in mathematics, physics and chemistry.

    Format: the data set Enxin/Video-MMLU, `Video_MMLU_QA.tsv`, a table of `index`, `video`, `question`, `answer`,
    `discipline` (Math, Physics, Chemistry). Videos `youtube_videos/<video>`. Descriptions of the lectures, the
    benchmark's other half, are not asked for. Results are published as the mean of the disciplines' accuracies. Read
    from VLMEvalKit/vlmeval/dataset/video_mmlu.py and post_eval/ of github.com/Espere-1119-Song/Video-MMLU; the columns
    second-hand, from that code."""

    name = "video-mmlu"
    groupings = ("discipline",)
    group_mean = ("discipline_mean", "discipline")
    index = "{index}"
    question = "{question}\nAnswer in one sentence."
    type_without_options = "open"
    videos = ("youtube_videos/{video}", "{video}")
    judge_prompt = "video_mmlu_judge.txt"

    def derived(self, entry: Entry) -> Mapping[str, Any]:
        """The discipline in one spelling: files write it with a capital letter and without."""
        return {"discipline": str(required(entry, "discipline")).capitalize()}


TRACKS = ("Perception", "Comprehension", "Adaptation")

DISCIPLINES = {
    "Art": ("Art", "Art_Theory", "Design", "Music"),
    "Business": ("Accounting", "Economics", "Finance", "Manage", "Marketing"),
    "Engineering": (
        "Agriculture",
        "Architecture_and_Engineering",
        "Computer_Science",
        "Electronics",
        "Energy_and_Power",
        "Materials",
        "Mechanical_Engineering",
    ),
    "Humanities": ("History", "Literature", "Psychology", "Sociology"),
    "Medicine": (
        "Basic_Medical_Science",
        "Clinical_Medicine",
        "Diagnostics_and_Laboratory_Medicine",
        "Pharmacy",
        "Public_Health",
    ),
    "Science": ("Biology", "Chemistry", "Geography", "Math", "Physics"),
}
"""Subjects of each discipline; the subject stands in a question's id."""

_NUMBER = re.compile(r"-?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d*)?|\.\d+", re.ASCII)  # as `core.numbers` reads them
_NOTES = {"Adaptation": "The picture that the question is about is shown at the end of the video."}
_OTHER_NOTE = "A quiz may be shown at the end of the video; it is not this question."


class VideoMMMU(MappedBenchmark):
    """Video-MMMU (arXiv 2501.13826): 900 questions about lectures, on three tracks: perception, comprehension,
    adaptation.

    Format: the data set lmms-eval/VideoMMMU, folders `Perception`, `Comprehension` and `Adaptation` with parquet files
    of `id` (such as "validation_Art_Theory_3"), `question`, `options`, `answer` and, on the last track, `question_type`
    ("multiple-choice" or "open"). Videos `<discipline>/<id>.mp4`; the image that a question of adaptation is about is
    the end of the video. Video-MMMU ranks by the mean of the tracks' accuracies. Read from lmms_eval/tasks/videommmu of
    github.com/EvolvingLMMs-Lab/lmms-eval.

    Open answers are scored as there, without a judge: by the texts and numbers of their key phrases. One truth of the
    data set is a list that breaks off (``['...``): it stays the text that it is, as it does there, and is right only to
    the letter."""

    name = "video-mmmu"
    groupings = ("track", "discipline")
    group_mean = ("track_mean", "track")
    columns = ("id", "question", "options", "answer", "question_type")
    index = "{track}_{id}"
    question = "{note}\n{question}"
    videos = ("{discipline}/{id}", "{id}")

    def entries(self, annotations: Path) -> Iterable[ReadEntry]:
        """The questions with their `track`, of a folder of the three, or of files below a folder named after one."""
        files = sorted(annotations.rglob("*.*")) if annotations.is_dir() else [annotations]
        files_of_tracks = [(track, file) for track in TRACKS for file in files if _is_of(file, track)]
        if not files_of_tracks:
            raise UsageError(f"{annotations}: no annotation file lies in a folder {', '.join(TRACKS)}")
        for track, file in files_of_tracks:
            for entry in read_entries(file, self.columns):
                yield {**entry, "track": track} if isinstance(entry, Mapping) else entry

    def derived(self, entry: Entry) -> Mapping[str, Any]:
        """The `note` before the question and the `discipline`; of an open question no `options`, and its `type`."""
        question_id = str(required(entry, "id"))
        subject = "_".join(question_id.split("_")[1:-1])
        discipline = next((name for name, subjects in DISCIPLINES.items() if subject in subjects), None)
        if discipline is None:
            raise RowError(f"the field 'id' names no subject of Video-MMMU: {question_id!r}")
        fields = {"note": _NOTES.get(entry["track"], _OTHER_NOTE), "discipline": discipline}
        if entry.get("question_type") != "open" and entry.get("options"):
            return fields
        answer = str(required(entry, "answer")).strip()
        return fields | {"answer": answer, "options": (), "type": "numeric" if _NUMBER.fullmatch(answer) else "open"}


def _is_of(file: Path, track: str) -> bool:
    if file.suffix not in (".parquet", ".json", ".jsonl"):
        return False
    return any(track.lower() in name.lower() for name in (file.parent.name, file.stem))
