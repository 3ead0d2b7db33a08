"""The demonstration's data set: videos on disk and question rows in parquet, ready for verl."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from verl_video_tools.core.errors import UsageError
from verl_video_tools.data.append import Progress, no_progress
from verl_video_tools.methods import method_class, method_names
from verl_video_tools.synthetic.needle import needle_questions, needle_spec
from verl_video_tools.synthetic.questions import Kind, Question, make_questions
from verl_video_tools.synthetic.seconds import evidence_seconds, open_question
from verl_video_tools.synthetic.spatial import render_cards, spatial_questions, spatial_spec
from verl_video_tools.synthetic.world import VideoSpec, random_spec, render

DATA_SOURCE = "video_tools_demo"
VIDEO_MME = "video_mme.parquet"
"""The test split in the format of Video-MME, to try an evaluation on."""
_MOST_BENCHMARK_QUESTIONS = 96
_TASK_TYPES: Mapping[Kind, str] = {
    "direct": "Object Recognition",
    "at_time": "Temporal Perception",
    "between_frames": "Object Recognition",
    "between_things": "Temporal Reasoning",
    "order": "Temporal Reasoning",
    "count": "Counting Problem",
    "on_card": "Spatial Perception",
}
"""Of the twelve types of Video-MME, the one that each kind of question comes nearest."""

_SHORT_SECONDS = 120.0
"""Videos up to this long are `short` in Video-MME; ours last ten minutes at most, which is `medium`."""
_FORMAT = 6  # raise it when the files' content changes, so that old folders are made anew
_SPLITS = ("train", "test")
_MANIFEST = "manifest.json"


def make_demo(
    out_dir: str | Path,
    num_train_videos: int = 96,
    num_test_videos: int = 24,
    questions_per_video: int = 4,
    seed: int = 0,
    agent_names: Sequence[str] = ("framethinker",),
    num_processes: int = 2,
    open_ended: bool = False,
    needle: bool = False,
    spatial: bool = False,
    progress: Progress = no_progress,
) -> Path:
    """Makes `videos/*.mp4`, `{train,test}.parquet`, `VIDEO_MME` and, last, `manifest.json` in `out_dir`.

    A folder whose manifest names the same parameters and which still has all its files is left as it is; anything else
    of ours in it is made anew. The splits share no video. Rows follow the package's row schema; `extra_info.demo` holds
    spec and question as JSON, which `question_from_row` reads back. The file of Video-MME asks with options, in the
    words of the first method.

    Args:
        agent_names: methods that the rows select, in turn.
        open_ended: ask without options and in seconds, see `synthetic.seconds`; the truth is a thing's name or a
            number.
        needle: long videos whose questions are decided by an event that the initial frames miss, see
            `synthetic.needle`.
        spatial: videos whose questions also take a part of a frame, see `synthetic.spatial`.
        progress: called with the numbers of videos rendered and wanted.

    Returns:
        The folder, absolute (rows name their videos by absolute path).

    Raises:
        ValueError: no method is named, a count is below 1, more different questions are wanted than a video allows, or
            `needle` and `spatial` are asked for together.
        UsageError: the folder has videos or rows that no demo has made.
    """
    if isinstance(agent_names, str) or not agent_names:
        raise ValueError(f"agent_names must list at least one method, got {agent_names!r}")
    if needle and spatial:
        raise ValueError("needle and spatial are two worlds; ask for one of them")
    counts = {"train videos": num_train_videos, "test videos": num_test_videos, "questions": questions_per_video}
    for name, count in counts.items():
        if count < 1:
            raise ValueError(f"number of {name} is {count}; it must be at least 1")
    folder = Path(out_dir).resolve()
    parameters = {
        "format": _FORMAT,
        "folder": str(folder),  # a moved folder has wrong paths in its rows
        "num_train_videos": num_train_videos,
        "num_test_videos": num_test_videos,
        "questions_per_video": questions_per_video,
        "seed": seed,
        "agent_names": list(agent_names),
        "open_ended": open_ended,
        "needle": needle,
        "spatial": spatial,
    }
    if _is_complete(folder, parameters):
        return folder
    manifest, videos = folder / _MANIFEST, folder / "videos"
    check_free(folder)
    folder.mkdir(parents=True, exist_ok=True)
    manifest.write_text("{}\n", encoding="utf-8")  # the folder is a demo's, an unfinished one
    shutil.rmtree(videos, ignore_errors=True)
    videos.mkdir()

    make_spec = spatial_spec if spatial else needle_spec if needle else random_spec
    counts = dict(zip(_SPLITS, (num_train_videos, num_test_videos), strict=True))
    jobs: list[tuple[VideoSpec, Path]] = []
    video_mme: list[dict[str, Any]] = []
    for split, count in counts.items():
        rows: list[dict[str, Any]] = []
        for number in range(count):
            spec = make_spec(video_seed(seed, split, number))
            path = videos / f"{split}_{number:04d}.mp4"
            jobs.append((spec, path))
            for place, question in enumerate(questions_about(spec, questions_per_video, seed)):
                agent_name = agent_names[len(rows) % len(agent_names)]
                rows.append(make_row(spec, question, path, len(rows), split, agent_name, open_ended))
                if split == "test":
                    words = _in_words_of_method(agent_names[0], spec, question)
                    video_mme.append(_video_mme_entry(spec, words, path, number + 1, place + 1))
        pq.write_table(pa.Table.from_pylist(rows), folder / f"{split}.parquet")
    pq.write_table(pa.Table.from_pylist(video_mme[:_MOST_BENCHMARK_QUESTIONS]), folder / VIDEO_MME)
    _render_all(jobs, num_processes, progress)
    videos_made = sorted(str(path.relative_to(folder)) for _, path in jobs)
    files = [*videos_made, *(f"{split}.parquet" for split in _SPLITS), VIDEO_MME]
    made = {"parameters": parameters, "files": files}
    manifest.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
    return folder


def video_seed(seed: int, split: str, number: int) -> int:
    """Seed of a data set's video. Those of both splits and of all videos differ, so no two videos are alike.

    It is odd: a video that must be in no data set takes an even one.
    """
    return (seed * 1_000_003 + _SPLITS.index(split) * 500_000 + number) * 2 + 1


def questions_about(spec: VideoSpec, count: int, seed: int) -> list[Question]:
    """`count` different questions that fit the video's world; a function of the arguments only.

    Raises:
        ValueError: the video does not allow so many different questions.
    """
    make = {"short": make_questions, "needle": needle_questions, "spatial": spatial_questions}[spec.world]
    return make(spec, count, seed)


def make_row(
    spec: VideoSpec,
    question: Question,
    video_path: Path,
    index: int,
    split: str,
    agent_name: str,
    open_ended: bool = False,
) -> dict[str, Any]:
    """One row as verl reads it. `options` is a list of texts in order of the letters; open-ended rows have none.

    `classification` is VideoBrain's: direct where the world's own number of initial frames shows the answer,
    else active. Nothing here can be guessed from what was seen, so that no question is adaptive.
    """
    fields: dict[str, Any]
    if open_ended:
        opened = open_question(spec, question)
        truth, fields = opened.truth, {"question": opened.text, "question_type": opened.question_type}
    else:
        variant = _in_words_of_method(agent_name, spec, question)
        options = list(variant.options.values())
        truth, fields = variant.answer, {"question": variant.text, "question_type": "mc", "options": options}
    return {
        "data_source": DATA_SOURCE,
        "agent_name": agent_name,
        "prompt": [{"role": "user", "content": fields["question"]}],
        "ability": "video_qa",
        "reward_model": {"style": "rule", "ground_truth": truth},
        "extra_info": {
            **fields,
            "video_path": str(video_path),
            "video_segment": list(evidence_seconds(spec, question)),
            "classification": "direct" if question.kind == "direct" else "active",
            "index": index,
            "split": split,
            "demo": json.dumps({"spec": asdict(spec), "question": asdict(question)}),
        },
    }


def _in_words_of_method(agent_name: str, spec: VideoSpec, question: Question) -> Question:
    """In the words in which a method's rows ask."""
    path = method_class(agent_name).synthetic_question if agent_name in method_names() else None
    return question if path is None else resolve_name(path)(spec, question)


def _video_mme_entry(spec: VideoSpec, question: Question, video_path: Path, video: int, number: int) -> dict[str, Any]:
    """A question, the `number`-th about the `video`-th video, in the format of Video-MME.

    There is no `url`, as the videos are on this machine only.
    """
    return {
        "video_id": f"{video:03d}",
        "duration": "short" if spec.duration_seconds <= _SHORT_SECONDS else "medium",
        "domain": "Synthetic",
        "sub_category": "Shapes" if spec.world == "short" else "NeedleClips",
        "url": "",
        "videoID": video_path.stem,
        "question_id": f"{video:03d}-{number}",
        "task_type": _TASK_TYPES[question.kind],
        "question": question.text.splitlines()[0],
        "options": [f"{letter}. {option}" for letter, option in question.options.items()],
        "answer": question.answer,
    }


def load_rows(parquet: str | Path) -> list[dict[str, Any]]:
    """All rows of a parquet file, as plain dictionaries."""
    return pq.read_table(parquet).to_pylist()


def question_from_row(row: Mapping[str, Any]) -> tuple[VideoSpec, Question]:
    """The truth behind a row: the video's spec and the question.

    Raises:
        KeyError: the row was not made by `make_demo`.
    """
    truth = json.loads(row["extra_info"]["demo"])
    return VideoSpec.from_dict(truth["spec"]), Question.from_dict(truth["question"])


def check_free(folder: Path) -> None:
    """Raises UsageError for a folder whose files `make_demo` would replace: it holds some, and no demo made them."""
    if (folder / _MANIFEST).exists():
        return
    for name in ("videos", *(f"{split}.parquet" for split in _SPLITS)):
        if (folder / name).exists():
            raise UsageError(f"{folder / name} exists, and was made by no demo; name another folder")


def _is_complete(folder: Path, parameters: Mapping[str, object]) -> bool:
    try:
        manifest = json.loads((folder / _MANIFEST).read_text(encoding="utf-8"))
        return manifest["parameters"] == parameters and all((folder / name).is_file() for name in manifest["files"])
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _render_one(job: tuple[VideoSpec, Path]) -> None:
    """Writes beside the goal and renames, so that a video that exists is whole."""
    spec, path = job
    unfinished = path.with_name(f"{path.stem}.unfinished.mp4")
    (render_cards if spec.world == "spatial" else render)(spec, unfinished)
    os.replace(unfinished, path)


def _render_all(jobs: list[tuple[VideoSpec, Path]], num_processes: int, progress: Progress) -> None:
    if num_processes <= 1:
        for num_done, job in enumerate(jobs, start=1):
            _render_one(job)
            progress(num_done, len(jobs))
        return
    # "spawn": forking a process that already runs threads (torch, FFmpeg) can dead-lock.
    with ProcessPoolExecutor(num_processes, mp_context=get_context("spawn")) as pool:
        for num_done, _ in enumerate(pool.map(_render_one, jobs, chunksize=4), start=1):
            progress(num_done, len(jobs))
