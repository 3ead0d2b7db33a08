"""A recorded rollout as a row of a Hugging Face dataset: texts and numbers to filter by, and the frames as pictures."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from verl_video_tools.core.types import CallRecord, FrameRecord, Trajectory, Turn
from verl_video_tools.records.metrics import not_scored
from verl_video_tools.records.thumbnails import Thumbnails
from verl_video_tools.records.view_data import video_path

_CALL = pa.struct(
    {
        "name": pa.string(),
        "arguments": pa.string(),
        "ok": pa.bool_(),
        "error": pa.string(),
        "result": pa.string(),
        "text": pa.string(),
        "frames": pa.list_(pa.int64()),
        "seconds": pa.list_(pa.float64()),
    }
)
_TURN = pa.struct(
    {
        "text": pa.string(),
        "reasoning": pa.string(),
        "answer": pa.string(),
        "observation": pa.string(),
        "calls": pa.list_(_CALL),
    }
)
_IMAGE_FRAME = pa.struct(
    {
        "turn": pa.int64(),
        "call": pa.string(),
        "frame": pa.int64(),
        "seconds": pa.float64(),
        "region": pa.list_(pa.int64()),
    }
)
COLUMNS: Mapping[str, tuple[pa.DataType, str]] = {
    "step": (pa.int64(), "training step"),
    "group": (pa.string(), "id of the group of rollouts of one row in one step"),
    "rollout": (pa.int64(), "number in its group"),
    "method": (pa.string(), "method"),
    "data_source": (pa.string(), "data source of the row"),
    "question": (pa.string(), "question with its options"),
    "ground_truth": (pa.string(), "right answer"),
    "answer": (pa.string(), "answer of the rollout; null without one"),
    "accuracy": (pa.float64(), "`acc` of the reward"),
    "score": (pa.float64(), "whole reward"),
    "advantage": (pa.float64(), "advantage within the group; null where it was not trained on"),
    "reward": (pa.list_(pa.struct({"name": pa.string(), "value": pa.float64()})), "reward by term; null: not scored"),
    "stop_reason": (pa.string(), "why the rollout ended"),
    "flags": (pa.list_(pa.string()), "reasons why it was kept out of training"),
    "num_turns": (pa.int64(), "turns of the policy"),
    "num_calls": (pa.int64(), "calls that were executed"),
    "num_frames": (pa.int64(), "frames that were shown, first look and calls together"),
    "video": (pa.string(), "path of the video where the run took place"),
    "video_seconds": (pa.float64(), "length of the video"),
    "initial_frames": (pa.list_(pa.int64()), "numbers of the frames of the first look"),
    "turns": (
        pa.list_(_TURN),
        "text, native reasoning, answer and observation of each turn, and its calls; arguments and results are JSON",
    ),
    "images": (pa.list_(pa.struct({"bytes": pa.binary(), "path": pa.string()})), "frames that were shown, reduced"),
    "image_frames": (
        pa.list_(_IMAGE_FRAME),
        "of each image: turn (0: first look) and call that showed it, number and time of the frame, and region "
        "(left, top, right, bottom in pixels of the video) where a part of it was shown",
    ),
    "record": (pa.string(), "the recorded line as JSON, without tokens"),
}
"""Type and meaning of each column."""


def schema() -> pa.Schema:
    """The columns, with the features that `datasets` reads from a parquet file's metadata."""
    features = {name: [{"_type": "Image"}] if name == "images" else _feature(of[0]) for name, of in COLUMNS.items()}
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    return pa.schema([(name, kind) for name, (kind, _) in COLUMNS.items()], metadata=metadata)


def row_of(line: Mapping[str, Any], thumbnails: Thumbnails) -> dict[str, Any]:
    """A row of a recorded line, as `records.read_records` gives it."""
    trajectory: Trajectory = line["trajectory"]
    counts = trajectory.counts()
    reward, unknown = line.get("reward") or {}, not_scored(line)
    path = video_path(line)
    images = [] if path is None else list(_images(trajectory, thumbnails, path))
    told = {name: value for name, value in line.items() if name not in ("sequences", "trajectory")}
    row = {
        "step": _whole(line.get("step")),
        "group": _text(line.get("uid")),
        "rollout": _whole(line.get("session_id")),
        "method": trajectory.method,
        "data_source": _text(line.get("data_source")),
        "question": trajectory.question,
        "ground_truth": _text(line.get("ground_truth")),
        "answer": trajectory.answer,
        "accuracy": _number(reward.get("acc")),
        "score": _number(reward.get("score")),
        "advantage": _number(line.get("advantage")),
        "reward": [
            {"name": str(name), "value": None if name in unknown else _number(value)} for name, value in reward.items()
        ],
        "stop_reason": None if trajectory.stop_reason is None else str(trajectory.stop_reason),
        "flags": [str(flag) for flag in trajectory.flags],
        "num_turns": counts["assistant_turns"],
        "num_calls": counts["executed_calls"],
        "num_frames": counts["initial_frames"] + counts["tool_frames"],
        "video": path,
        "video_seconds": None if trajectory.video is None else trajectory.video.duration_seconds,
        "initial_frames": trajectory.initial_frame_indices(),
        "turns": [_turn(turn) for turn in trajectory.turns],
        "images": [{"bytes": image.jpeg, "path": None} for image in images],
        "image_frames": [image.of for image in images],
        "record": json.dumps({**told, "trajectory": trajectory.to_dict()}, ensure_ascii=False, default=str),
    }
    return {name: encodable(value) for name, value in row.items()}


def encodable(value: Any) -> Any:
    """Half a surrogate pair, which a policy may write and a file of records may hold, becomes a question mark."""
    if isinstance(value, str):
        return value.encode("utf-8", errors="replace").decode()
    if isinstance(value, list):
        return [encodable(member) for member in value]
    if isinstance(value, dict):
        return {name: encodable(member) for name, member in value.items()}
    return value


@dataclass(frozen=True)
class _Image:
    jpeg: bytes
    of: dict[str, Any]


def _images(trajectory: Trajectory, thumbnails: Thumbnails, path: str) -> Iterator[_Image]:
    looks: list[tuple[int, str | None, list[FrameRecord]]] = [(0, None, trajectory.initial_frames)]
    for number, turn in enumerate(trajectory.turns, start=1):
        looks += [(number, call.name, call.frames) for call in turn.calls if call.ok]
    for number, name, frames in looks:
        for place, jpeg in thumbnails.shown(path, frames):
            region = getattr(place, "region", None)
            of = {"turn": number, "call": name, "frame": place.index, "seconds": place.timestamp_seconds}
            yield _Image(jpeg, of | {"region": None if region is None else list(region)})


def _turn(turn: Turn) -> dict[str, Any]:
    return {
        "text": turn.text,
        "reasoning": turn.reasoning,
        "answer": turn.answer,
        "observation": turn.observation,
        "calls": [_call(call) for call in turn.calls],
    }


def _call(call: CallRecord) -> dict[str, Any]:
    return {
        "name": call.name,
        "arguments": json.dumps(call.arguments, ensure_ascii=False, default=str),
        "ok": call.ok,
        "error": None if call.error is None else str(call.error),
        "result": json.dumps(call.result, ensure_ascii=False, default=str),
        "text": call.text,
        "frames": [frame.index for frame in call.frames],
        "seconds": [frame.timestamp_seconds for frame in call.frames],
    }


def _text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _whole(value: Any) -> int | None:
    number = _number(value)
    return int(number) if number is not None and math.isfinite(number) else None


def _feature(kind: pa.DataType) -> Any:
    if pa.types.is_list(kind):
        return [_feature(kind.value_type)]
    if pa.types.is_struct(kind):
        return {field.name: _feature(field.type) for field in kind}
    return {"dtype": {"double": "float64"}.get(str(kind), str(kind)), "_type": "Value"}
