"""Results of evaluations that were never run: questions about made videos, and rollouts whose answers are given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from verl_video_tools.core.files import write_json, write_lines
from verl_video_tools.core.types import AnswerLabel, CallRecord, FrameRecord, Trajectory, Turn
from verl_video_tools.data.formats import Benchmark
from verl_video_tools.data.formats.entries import benchmark_row
from verl_video_tools.data.generate import Record, RolloutTask
from verl_video_tools.evaluation.items import ITEMS, items_of
from verl_video_tools.evaluation.questions import Questions
from verl_video_tools.evaluation.results import summarise
from verl_video_tools.evaluation.run import RESULTS

SIDE, FACTOR = 56, 28


def questions(num_videos: int, per_video: int, benchmark: Benchmark | None = None, repeats: int = 1) -> Questions:
    tasks = []
    for number in range(num_videos * per_video):
        video = number // per_video
        row = benchmark_row(
            "made",
            index=number,
            split="test",
            video_path=Path(f"videos/{video}.mp4"),
            question=f"Question {number}?",
            options=["yes", "no"],
            truth="A",
            groups={"kind": "even" if video % 2 == 0 else "odd"},
        )
        tasks += [RolloutTask(str(number), repeat, row) for repeat in range(repeats)]
    return Questions("made", tasks, {}, benchmark, repeats=repeats)


def record(task: RolloutTask, is_right: bool, *, frames: int = 2, **fields: Any) -> Record:
    def shown(number: int) -> list[FrameRecord]:
        return [FrameRecord(index, float(index), SIDE, SIDE) for index in range(number)]

    look = CallRecord("look", {}, ok=True, frames=shown(frames - 1))
    trajectory = Trajectory(
        "made", "?", initial_frames=shown(1), turns=[Turn("look", calls=[look]), Turn("A")], answer="AB"[not is_right]
    )
    return {
        **{"uid": task.uid, "session_id": task.session_id, "data_source": "made", "ground_truth": "A"},
        "extra_info": task.row["extra_info"],
        "answer_label": AnswerLabel.CORRECT if is_right else AnswerLabel.INCORRECT,
        "usage": {"requests": 2, "prompt_tokens": 300, "completion_tokens": 20},
        "seconds": 1.5,
        "trajectory": trajectory,
        **fields,
    }


def protocol(**fields: Any) -> dict[str, Any]:
    sizes = {"factor": FACTOR}
    return {"questions": "made", "model": "m", "method": "direct", "pictures": {"sizes": sizes}, **fields}


def summarised(asked: Questions, records: Sequence[Record], told: dict[str, Any]) -> dict[str, Any]:
    """The content of `results.json`."""
    return summarise(asked, items_of(asked, records, told), told)


def write_result(folder: Path, asked: Questions, records: Sequence[Record], **facts: Any) -> dict[str, Any]:
    """The folder as `vvt eval` leaves it, without rollouts and tables."""
    folder.mkdir(parents=True)
    told = protocol(**facts)
    items = items_of(asked, records, told)
    result = summarise(asked, items, told)
    write_json(folder / RESULTS, result)
    write_lines(folder / ITEMS, map(asdict, items))
    return result
