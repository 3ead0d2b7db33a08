"""Columns of files of rows (docs/rows.md)."""

from __future__ import annotations

import pyarrow as pa

_MESSAGE = pa.struct([("role", pa.string()), ("content", pa.string())])
_EXTRA_INFO = pa.struct(
    [
        ("question", pa.string()),
        ("video_path", pa.string()),
        ("question_type", pa.string()),
        ("options", pa.list_(pa.string())),
        ("video_segment", pa.list_(pa.float64())),
        ("classification", pa.string()),
        ("question_id", pa.string()),
        ("index", pa.int64()),
        ("split", pa.string()),
    ]
)
ROW_SCHEMA = pa.schema(
    [
        ("data_source", pa.string()),
        ("prompt", pa.list_(_MESSAGE)),
        ("ability", pa.string()),
        ("reward_model", pa.struct([("style", pa.string()), ("ground_truth", pa.string())])),
        ("extra_info", _EXTRA_INFO),
    ]
)
"""The columns of converted files, the same for all formats, so that one run can read several files."""
TAUGHT_SCHEMA = pa.schema(
    [
        *(field for field in ROW_SCHEMA if field.name != "extra_info"),
        ("extra_info", pa.struct([*_EXTRA_INFO, ("image_paths", pa.list_(pa.string()))])),
        ("turns", pa.list_(pa.string())),
        ("template", pa.string()),
    ]
)
"""Those of rows for fine-tuning."""
