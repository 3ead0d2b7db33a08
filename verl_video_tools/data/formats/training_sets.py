"""Published training sets of questions. Each class says where its format was read from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from verl_video_tools.core.errors import RowError, UsageError
from verl_video_tools.core.truths import canonical_letter
from verl_video_tools.core.types import QuestionType
from verl_video_tools.data.formats import Benchmark, BenchmarkFiles
from verl_video_tools.data.formats.entries import (
    Entry,
    MediaKind,
    ReadEntry,
    Row,
    benchmark_row,
    read_entries,
    required,
)
from verl_video_tools.data.formats.fields import (
    find_first_video,
    find_moved_video,
    listed_options,
    question_of_text,
    reasoning_turn,
    split_options,
    tagged_answer,
    truth_and_type,
    without_media_marks,
)
from verl_video_tools.data.formats.mapped import MappedBenchmark

_QUESTION_TYPES: dict[str, QuestionType] = {"mc": "mc", "oe": "open"}


class FrameThinkerParquet(Benchmark):
    """Rows of the training code of FrameThinker (arXiv 2509.24304) and VideoBrain (arXiv 2602.04094).

    Format: parquet with `data_source` (which only chooses a reward there), `prompt` and `images` (the initial frames as
    PNG), `env_name`, `reward_model.ground_truth` and `extra_info`: `question` with its option lines, `video_path`,
    `fps`, `total_frames`, `height`, `width`, `index`, `split`; VideoBrain's also `question_type` ("mc" or "oe") and
    `classification` (a letter). Read from issue 4 of github.com/lcqysl/FrameThinker, its
    verl/utils/dataset/rl_dataset.py, and the same file of github.com/junbo-zou/VideoBrain.

    Images are not read: our loop samples the initial frames itself. Frame rate, length and size are facts of the file.
    """

    name = "framethinker-parquet"
    columns = ("reward_model", "extra_info")

    def row(self, entry: Entry, files: BenchmarkFiles) -> Row:
        extra_info = required(entry, "extra_info")
        reward_model = required(entry, "reward_model")
        question, options = split_options(str(required(extra_info, "question")))
        truth = str(required(reward_model, "ground_truth")).strip()
        type_name = extra_info.get("question_type")
        if type_name and type_name not in _QUESTION_TYPES:
            raise RowError(f"the field 'question_type' must be mc or oe, got {type_name!r}")
        letter, likely_type = truth_and_type(truth, options if canonical_letter(truth, options) else ())
        question_type = _QUESTION_TYPES[type_name] if type_name else likely_type
        row = benchmark_row(
            self.name,
            index=str(extra_info.get("index", "")),
            split=str(extra_info.get("split") or "train"),
            video_path=find_moved_video(files.videos, str(required(extra_info, "video_path"))),
            question=question if question_type == "mc" else str(extra_info["question"]),
            options=options if question_type == "mc" else (),
            truth=letter if question_type == "mc" else truth,
            question_type=question_type,
        )
        if extra_info.get("classification"):
            row["extra_info"]["classification"] = str(extra_info["classification"])
        return row


class LLaVAVideo(Benchmark):
    """LLaVA-Video-178K (arXiv 2410.02713): 1.3 million instructions on 178,000 videos, among them 960,000 open and
    196,000 multiple-choice questions.

    Format: folders `<length>_<source>` (`0_30_s_academic_v0_1`) with JSON lists of `id`, `video` (a path below the
    folder), `data_source` (its name) and `conversations`, in which `from` is "human" and "gpt" in turn. A conversation
    is about one video and may hold several questions, a row each, the first behind the mark `<image>`. Questions with
    options (`*_mc_*.json`) end with a line for each and one that asks for a letter, or for letter and text; their
    answers are "B." or "B. text.". Descriptions (`*_cap_*.json`) are no questions.

    Read second-hand: from the card of lmms-lab/LLaVA-Video-178K, which lists the files, and from converters in other
    public repositories, such as prepare_data/sft of github.com/Yangr116/VST."""

    name = "llava-video-178k"

    def entries(self, annotations: Path) -> Iterable[ReadEntry]:
        """The questions of all conversations of a file, or of all files below a folder but those of descriptions."""
        for file in _files(annotations):
            for entry in read_entries(file):
                yield from _questions(entry)

    def row(self, entry: Entry, files: BenchmarkFiles) -> Row:
        question, answer = required(entry, "human"), required(entry, "gpt")
        question_fields = question_of_text(question, str(answer))
        if question_fields["question_type"] == "mc" and not question_fields["options"]:
            truth = question_fields["truth"]
            raise RowError(f"the answer is the letter {truth!r}, but the question does not end with option lines")
        video = str(required(entry, "video"))
        return benchmark_row(
            str(entry.get("data_source") or self.name),
            index=f"{required(entry, 'id')}-{entry['number']}",
            split="train",
            video_path=find_first_video(files.videos, [f"{entry.get('data_source', '')}/{video}".lstrip("/"), video]),
            **question_fields,
        )


def _files(annotations: Path) -> list[Path]:
    """Raises UsageError where a folder holds none."""
    if not annotations.is_dir():
        return [annotations]
    files = sorted(file for file in annotations.rglob("*.json") if "_cap" not in file.stem)
    if not files:
        raise UsageError(f"{annotations}: holds no files of questions (*_mc_*.json, *_oe_*.json)")
    return files


def _questions(entry: Any) -> Iterator[ReadEntry]:
    """Each question of a conversation with its answer, as `human` and `gpt`, and its number from 0."""
    if not isinstance(entry, Mapping):
        yield entry
        return
    turns = entry.get("conversations")
    if not isinstance(turns, list) or not all(isinstance(turn, Mapping) for turn in turns) or len(turns) % 2:
        yield RowError("the field 'conversations' must list pairs of a question and its answer")
        return
    for number, (human, reply) in enumerate(zip(turns[::2], turns[1::2], strict=True)):
        if (human.get("from"), reply.get("from")) != ("human", "gpt"):
            yield RowError(f"in 'conversations' human and gpt must take turns, got {human.get('from')!r} and then "
                           f"{reply.get('from')!r}")  # fmt: skip
            continue
        yield {**entry, "number": number, "human": human.get("value"), "gpt": reply.get("value")}


QUESTION_TYPES: dict[str, QuestionType] = {
    "multiple choice": "mc",
    "numerical": "numeric",
    "regression": "regression",
    "OCR": "open",
    "free-form": "open",
}


class VideoR1(Benchmark):
    """Video-R1 (arXiv 2503.21776): 263,000 questions about videos and images from many data sets.

    Format: `Video-R1-260k.json`, a list of `problem_id`, `problem`, `data_type` ("video" or "image"), `problem_type`,
    `options` (each with its letter), `solution` (between answer tags), `path`, `data_source`; `Video-R1-COT-165k.json`
    has `process` as well, reasoning between think tags. Read from the data set's card, src/r1-v/src/open_r1/grpo.py of
    github.com/tulerfeng/Video-R1 and converters in other public repositories.

    Numerical questions are right or wrong, regression questions score one minus their relative error, as in Video-R1;
    OCR and free-form ones need a judge, where Video-R1 compares words. Questions about images are rows for fine-tuning
    only.
    """

    name = "video-r1"
    has_turns = True

    def row(self, entry: Entry, files: BenchmarkFiles) -> Row:
        if required(entry, "data_type") != "video":
            raise RowError(f"it is about an {entry['data_type']}, not about a video")
        return self._row(entry, files)

    def sft_row(self, entry: Entry, files: BenchmarkFiles) -> Row:
        """With the published reasoning (`process`) as its only turn; questions about images are rows, too."""
        turn = reasoning_turn(str(required(entry, "process")), str(required(entry, "solution")))
        template = "pictures" if required(entry, "data_type") == "image" else "reasoning"
        return {**self._row(entry, files), "turns": [turn], "template": template}

    def _row(self, entry: Entry, files: BenchmarkFiles) -> Row:
        problem_type = required(entry, "problem_type")
        if problem_type not in QUESTION_TYPES:
            raise RowError(f"the field 'problem_type' must be one of {', '.join(QUESTION_TYPES)}, got {problem_type!r}")
        question_type = QUESTION_TYPES[problem_type]
        kind: MediaKind = "image" if entry["data_type"] == "image" else "video"
        path = find_moved_video(files.videos, str(required(entry, "path")), kind)
        return benchmark_row(
            str(entry.get("data_source") or self.name),
            index=str(required(entry, "problem_id")),
            split="train",
            video_path=path if kind == "video" else None,
            image_paths=[path] if kind == "image" else (),
            question=without_media_marks(str(required(entry, "problem"))),
            options=listed_options(required(entry, "options"), "options") if question_type == "mc" else (),
            truth=tagged_answer(required(entry, "solution")),
            question_type=question_type,
        )


class VideoZoomerJSON(Benchmark):
    """Training data of VideoZoomer (arXiv 2512.22315).

    Format: a JSON list of `problem` (with `<image>` in the place of the video), `solution`, `videos` (one path),
    `data_source` and, optionally, `doc_id` and `extra_info`. Read from verl/utils/dataset/multimodal_dataset.py of
    github.com/zsgvivo/VideoZoomer, whose YAML files only list such files.
    """

    name = "videozoomer-json"
    place_field = "doc_id"

    def row(self, entry: Entry, files: BenchmarkFiles) -> Row:
        videos = required(entry, "videos")
        if isinstance(videos, str) or len(videos) != 1:
            raise RowError(f"the field 'videos' must list one video, got {videos!r:.80}")
        return benchmark_row(
            str(entry.get("data_source") or self.name),
            index=str(entry["doc_id"]),
            split="train",
            video_path=find_moved_video(files.videos, str(videos[0])),
            **question_of_text(str(required(entry, "problem")), str(required(entry, "solution"))),
        )


class VideoEspresso(MappedBenchmark):
    """VideoEspresso (arXiv 2411.14794): 203,000 questions with evidence from core frames, to train on.

    Format: `videoespresso_train_video.json`, a list of `video_path`, `question`, `answer` (a text), `task` and what the
    answer was derived from (core frames, `evidence`), of github.com/hshjerry/VideoEspresso. Read second-hand, from
    scripts/prepare_videoespresso_mc_train.py of github.com/Chenwei-1999/SparseVideoUnderstanding. The version of core
    frames without videos (`videoespresso_train.json`) gives no rows.
    """

    name = "video-espresso"
    place_field = "number"
    index = "{number}"
    split = "train"
    type_without_options = "open"
    videos = ("{video_path}",)
    has_moved_videos = True
