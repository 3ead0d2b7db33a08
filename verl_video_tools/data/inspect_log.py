"""Recorded rollouts as a log of Inspect (https://inspect.aisi.org.uk/eval-logs.html), its JSON format of version 2.

A rollout is a sample. A question is its id, and the rollouts of a group are the epochs of it. Terms of the reward are
scores.
"""

from __future__ import annotations

import base64
import hashlib
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from verl_video_tools.core.types import CallRecord, FrameRecord, Trajectory, Turn
from verl_video_tools.data.hf_rollouts import encodable
from verl_video_tools.records.metrics import components_of, not_scored
from verl_video_tools.records.thumbnails import Thumbnails
from verl_video_tools.records.view_data import video_path

Json = dict[str, Any]


class InspectLog:
    """Makes a log sample by sample, so that samples need not be in memory together.

    Args:
        task: name of the task.
        model: name of the model.
        created: when the records were written, ISO 8601 with a time zone.
    """

    def __init__(self, task: str, model: str, created: str) -> None:
        self._task, self._model, self._created = task, model, created
        self._id = hashlib.sha256(f"{task}\n{model}\n{created}".encode()).hexdigest()[:22]
        self._epochs: Counter[str] = Counter()
        self._values: dict[str, list[float]] = defaultdict(list)

    def file_name(self) -> str:
        """Inspect lists logs whose names are made of time, task and id."""
        task = re.sub(r"[^A-Za-z0-9.-]", "-", self._task)
        return f"{self._created.replace(':', '-')}_{task}_{self._id}.json"

    def sample(self, line: Mapping[str, Any], thumbnails: Thumbnails) -> Json:
        """A sample of a recorded line, as `records.read_records` gives it."""
        trajectory: Trajectory = line["trajectory"]
        uid = line.get("uid")
        id = f"rollout {sum(self._epochs.values())}" if uid is None else f"step {line.get('step')}, {uid}"
        self._epochs[id] += 1
        pictures = _Pictures(thumbnails, video_path(line))
        question = {"role": "user", "content": [_text(trajectory.question), *pictures.of(trajectory.initial_frames)]}
        messages = [question]
        for number, turn in enumerate(trajectory.turns, start=1):
            messages += _turn_messages(turn, number, pictures)
        said = [message for message in messages if message["role"] == "assistant"]
        sample = {
            "id": id,
            "epoch": self._epochs[id],
            "input": [question],
            "target": _target(line.get("ground_truth")),
            "messages": messages,
            "output": {"model": self._model, "choices": [_choice(said[-1], trajectory)] if said else []},
            "scores": self._scores(line),
            "metadata": {
                name: line.get(name) for name in ("step", "uid", "session_id", "advantage", "data_source", "extra_info")
            }
            | {
                "method": trajectory.method,
                "stop_reason": None if trajectory.stop_reason is None else str(trajectory.stop_reason),
                "error": trajectory.error,
                "flags": trajectory.flags,
                "own": {**trajectory.settings, **trajectory.sampling},
            },
        }
        told: Json = encodable(sample)
        return told

    def head(self) -> Json:
        """What the log says of all samples, once these have been made."""
        num_samples = sum(self._epochs.values())
        scores = [
            {"name": name, "scorer": name, "metrics": {"mean": {"name": "mean", "value": math.fsum(own) / len(own)}}}
            for name, own in self._values.items()
        ]
        head = {
            "version": 2,
            "status": "success",
            "eval": {
                **dict.fromkeys(("eval_id", "run_id", "task_id"), self._id),
                "created": self._created,
                "task": self._task,
                "model": self._model,
                "dataset": {"name": self._task, "samples": len(self._epochs), "sample_ids": list(self._epochs)},
                "config": {"epochs": max(self._epochs.values(), default=1)},
            },
            "plan": {"name": "plan", "steps": [], "config": {}},
            "results": {"total_samples": num_samples, "completed_samples": num_samples, "scores": scores},
            "stats": {"started_at": self._created, "completed_at": self._created, "model_usage": {}},
        }
        told: Json = encodable(head)
        return told

    def _scores(self, line: Mapping[str, Any]) -> Json:
        trajectory: Trajectory = line["trajectory"]
        reward = line.get("reward") or {}
        told = reward.keys() - set(not_scored(line))  # a mean over zeros that nobody has worked out says nothing
        scores: Json = {}
        for name in dict.fromkeys(("acc", "score", *components_of(trajectory))):
            if name not in told:
                continue
            value = reward[name]
            if isinstance(value, int | float) and math.isfinite(value):
                self._values[name].append(float(value))
                scores[name] = {"value": float(value), "answer": trajectory.answer}
        return scores


class _Pictures:
    def __init__(self, thumbnails: Thumbnails, path: str | None) -> None:
        self._thumbnails, self._path = thumbnails, path

    def of(self, frames: Iterable[FrameRecord]) -> Iterator[Json]:
        """Contents of a message: each picture after what it shows."""
        if self._path is not None:
            for place, jpeg in self._thumbnails.shown(self._path, frames):
                yield _text(f"\nframe {place.index}, {place.timestamp_seconds:.2f} s:")
                yield {"type": "image", "image": f"data:image/jpeg;base64,{base64.b64encode(jpeg).decode()}"}


def _turn_messages(turn: Turn, number: int, pictures: _Pictures) -> list[Json]:
    reasoning = [{"type": "reasoning", "reasoning": turn.reasoning}] if turn.reasoning else []
    said: Json = {"role": "assistant", "content": [*reasoning, _text(turn.text)], "source": "generate"}
    ids = [f"turn-{number}-call-{position}" for position in range(1, len(turn.calls) + 1)]
    if turn.calls:
        said["tool_calls"] = [_call(call, id) for call, id in zip(turn.calls, ids, strict=True)]
    # The observation answers all calls of a turn, and stands with the first.
    texts = [turn.observation, *[None] * len(turn.calls)]
    results = [_result(call, id, text, pictures) for call, id, text in zip(turn.calls, ids, texts, strict=False)]
    if not turn.calls and turn.observation is not None:
        results = [{"role": "user", "content": turn.observation}]
    return [said, *results]


def _call(call: CallRecord, id: str) -> Json:
    return {"id": id, "function": call.name, "arguments": call.arguments, "type": "function"}


def _result(call: CallRecord, id: str, text: str | None, pictures: _Pictures) -> Json:
    told = [_text(part) for part in (text, call.text) if part]
    result: Json = {
        "role": "tool",
        "tool_call_id": id,
        "function": call.name,
        "content": [*told, *pictures.of(call.frames)],
    }
    if call.error is not None:
        result["error"] = {"type": "unknown", "message": str(call.error)}
    return result


def _choice(said: Json, trajectory: Trajectory) -> Json:
    is_cut = bool(trajectory.turns) and trajectory.turns[-1].truncated
    return {"message": said, "stop_reason": "max_tokens" if is_cut else "stop"}


def _text(text: str) -> Json:
    return {"type": "text", "text": text}


def _target(truth: Any) -> str | list[str]:
    if isinstance(truth, Sequence) and not isinstance(truth, str):
        return [str(one) for one in truth]
    return "" if truth is None else str(truth)
