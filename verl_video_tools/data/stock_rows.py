"""Rows for verl's own tool loop (`agent_name: tool_agent`), made from our rows.

Our loop samples the initial frames itself. verl's does not, so the converter does, with the same `Episode`: the
images go into the column `images` as PNG, and the user message holds an `<image>` mark for each, labelled as the
method labels them.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow as pa
from PIL import Image

from verl_video_tools.core.errors import RowError, UsageError, VideoError
from verl_video_tools.core.prompts import load_prompt
from verl_video_tools.core.types import ImagePart, Method, Sample, content_images, content_text
from verl_video_tools.data.convert import Conversion
from verl_video_tools.data.parquet import read_schema, row_batches, row_writer
from verl_video_tools.methods import get_method
from verl_video_tools.rollout.episode import Episode

AGENT_NAME = "tool_agent"

_ROWS_PER_GROUP = 16
"""Rows held in memory at once; a row carries its images, up to a few megabytes."""

# verl cuts every message at these marks and wants one image, video or sound for each.
_MEDIA_MARK = re.compile("<image>|<video>|<audio>")

_BINDING = pa.struct([("create_kwargs", pa.struct([("video_path", pa.string())]))])
_COLUMNS = {
    "agent_name": pa.string(),
    "prompt": pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())])),
    "images": pa.list_(pa.struct([("bytes", pa.binary())])),
}


TOOLS: Mapping[str, tuple[str, ...]] = {
    "framethinker": ("choose_frames", "get_frame_number"),
    "longvt": ("crop_video",),
    "videobrain": ("uniform_sample", "clip_sample"),
}
"""Tools that verl's own loop is given, by the method whose `tool_descriptions` they are in."""
_SYSTEM_PROMPTS = {"framethinker": ("verl_video_tools.methods.framethinker", "prompt_tool_agent.txt")}
"""Package and file of the prompt of a method whose own does not ask for calls in verl's format: it tells frames, tools,
how to call and how to answer, for chat templates that do not render the tools' schemas."""


async def to_tool_agent_row(row: Mapping[str, Any], method: Method | None = None) -> dict[str, Any]:
    """The row as verl's tool loop takes it; other columns and other entries of `extra_info` are kept.

    Args:
        row: one of ours, whatever its `agent_name`; `extra_info.video_path` is opened.
        method: one of `TOOLS`, by default FrameThinker with the paper's fields; gives initial frames,
            labels and tools. Frames have the method's own sizes: the model's processor resizes them to its multiples.
            Its system prompt describes calls and answers: not every chat template renders the tools' schemas.

    Raises:
        UsageError: verl's loop has no tools for the method.
        RowError: a field is missing, or the question holds a mark that verl would take for an image.
        VideoError: the video cannot be read.
    """
    sample = Sample.from_row(row)
    where = f"row index={sample.extra_info.get('index', '?')}"
    if len(sample.videos) != 1:
        raise RowError(f"{where}: verl's tool loop takes rows with one video, got {len(sample.videos)}")
    method = method or get_method("framethinker")
    tool_names = _tool_names(method)
    episode = Episode(method, sample)
    messages = await episode.start()
    if messages is None:
        raise VideoError(f"{where}: {episode.trajectory.error}")
    user_message = messages[-1]
    system_prompt = stock_prompt(method.name) or content_text(messages[0].content)
    for name, text in (("question", sample.question), ("system prompt", system_prompt)):
        if mark := _MEDIA_MARK.search(text):
            raise RowError(f"{where}: the {name} holds {mark[0]!r}, which verl takes for a place of media; remove it")
    return {
        **row,
        "agent_name": AGENT_NAME,
        "prompt": [
            {"role": "system", "content": system_prompt},
            {"role": user_message.role, "content": content_text(user_message.content)},
        ],
        "images": [{"bytes": _png(image)} for image in content_images(user_message.content)],
        "extra_info": {
            **sample.extra_info,
            "need_tools_kwargs": True,
            "tools_kwargs": {name: {"create_kwargs": {"video_path": sample.video_path}} for name in tool_names},
            "tool_selection": list(tool_names),
        },
    }


def convert_parquet(
    source: Path, target: Path, *, method_name: str = "framethinker", settings: Mapping[str, Any] | None = None
) -> Conversion:
    """Convert a whole file. Rows whose video cannot be read are skipped.

    `target` appears only once all of it is written. Not for use inside a running event loop.

    Args:
        method_name: one of `TOOLS`; the rows' own `agent_name` is replaced.
        settings: fields of the method, the same as in the tool YAML.

    Returns:
        Rows written, and for each left out why: its video cannot be read, say.

    Raises:
        UsageError: `source` is not a parquet file of our rows, a setting does not fit, or no row is left.
    """
    method = get_method(method_name, **(settings or {}))
    tool_names = _tool_names(method)
    schema = _converted_schema(read_schema(source), source, tool_names)
    num_written = 0
    skipped: list[str] = []
    with asyncio.Runner() as runner, row_writer(target, schema) as writer:
        for batch in row_batches(source, rows_per_batch=_ROWS_PER_GROUP):
            converted = []
            for row in batch.to_pylist():
                try:
                    converted.append(runner.run(to_tool_agent_row(row, method)))
                except (RowError, VideoError) as error:
                    skipped.append(str(error))
            writer.write_table(pa.Table.from_pylist(converted, schema=schema))
            num_written += len(converted)
        if not num_written:
            raise UsageError(f"{source} gives no row" + (f"; the first was left out: {skipped[0]}" if skipped else ""))
    return Conversion(num_written, tuple(skipped))


def _tool_names(method: Method) -> tuple[str, ...]:
    if method.name not in TOOLS:
        raise UsageError(f"verl's own loop has no tools of {method.name!r}; choose one of: {', '.join(TOOLS)}")
    return TOOLS[method.name]


def stock_prompt(method_name: str) -> str | None:
    """The system prompt for verl's own loop; None where the method's own asks for calls in verl's format."""
    return load_prompt(*_SYSTEM_PROMPTS[method_name], None) if method_name in _SYSTEM_PROMPTS else None


def _converted_schema(schema: pa.Schema, source: Path, tool_names: tuple[str, ...]) -> pa.Schema:
    """The source's columns with ours added or replaced. Its metadata describe the old columns, so they go."""
    if "extra_info" not in schema.names or not pa.types.is_struct(schema.field("extra_info").type):
        raise UsageError(f"{source}: no column extra_info with named entries, so these are not rows of ours")
    extra_info = {field.name: field.type for field in schema.field("extra_info").type} | {
        "need_tools_kwargs": pa.bool_(),
        "tools_kwargs": pa.struct([(name, _BINDING) for name in tool_names]),
        "tool_selection": pa.list_(pa.string()),
    }
    types = {field.name: field.type for field in schema} | _COLUMNS
    types["extra_info"] = pa.struct(list(extra_info.items()))
    return pa.schema(list(types.items()))


def _png(image: ImagePart) -> bytes:
    """Lossless, so that the model sees the decoded pixels."""
    assert image.pixels_HWC is not None, "Episode.start decodes every image of the prompt"
    buffer = BytesIO()
    Image.fromarray(image.pixels_HWC).save(buffer, format="PNG")
    return buffer.getvalue()
