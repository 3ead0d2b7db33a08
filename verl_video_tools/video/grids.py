"""Several frames in one picture, row by row."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from verl_video_tools.core.types import FrameBatch, FrameRecord, FrameRequest, Tile


def cells_of(request: FrameRequest) -> FrameRequest:
    """The request for the frames of a grid, one by one at the size of a cell; any other request as it is.

    Each cell is decoded, and kept by the caches, like a frame that is shown alone.
    """
    if request.grid is None:
        return request
    columns, rows = request.grid
    return replace(request, grid=None, width=request.width // columns, height=request.height // rows)


def tiled(batch: FrameBatch, request: FrameRequest) -> FrameBatch:
    """The picture that a request asks for, of its cells; the batch itself where it asks for no grid."""
    if request.grid is None:
        return batch
    columns, rows = request.grid
    num_frames, height, width = batch.frames_THWC.shape[:3]
    cells_THWC = np.zeros((rows * columns, height, width, 3), dtype=np.uint8)
    cells_THWC[:num_frames] = batch.frames_THWC
    picture_HWC = cells_THWC.reshape(rows, columns, height, width, 3).swapaxes(1, 2).reshape(rows * height, -1, 3)
    return FrameBatch(
        frames_THWC=picture_HWC[None],
        timestamps_seconds=batch.timestamps_seconds[:1],
        corrupt=np.array([batch.corrupt.any()]),
        indices=batch.indices[:1],
        num_cached=int(batch.num_cached == num_frames),
        region=batch.region,
        tiles=(tuple(Tile(record.index, record.timestamp_seconds) for record in batch.records()),),
    )


def tiled_records(records: list[FrameRecord], request: FrameRequest) -> list[FrameRecord]:
    """What the picture will be, of what its cells will be; see `tiled`."""
    if request.grid is None:
        return records
    tiles = tuple(Tile(record.index, record.timestamp_seconds) for record in records)
    return [replace(records[0], width=request.width, height=request.height, tiles=tiles)]
