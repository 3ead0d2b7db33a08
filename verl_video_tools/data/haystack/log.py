"""What one step of the pipeline made: JSON lines, one per item, the last one of a key holds."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from verl_video_tools.core.errors import EndpointError, UsageError, VideoError
from verl_video_tools.data.append import Progress, append_record, appended, no_progress, work_through

Record = dict[str, Any]
"""``key`` and what was made, or ``key`` and ``error``."""


def read_log(path: Path) -> dict[str, Record]:
    """Records by key; none where there is no file.

    Raises:
        UsageError: a line cannot be read.
    """
    if not path.exists():
        return {}
    records: dict[str, Record] = {}
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.endswith(b"\n"):  # cut while it was written
                break
            try:
                record = json.loads(line)
                records[record["key"]] = record
            except (ValueError, TypeError, KeyError) as error:
                raise UsageError(f"{path}, line {number}: cannot be read ({error!r:.100})") from error
    return records


async def run_step(
    path: Path,
    wanted: Mapping[str, Callable[[], Awaitable[Record]]],
    concurrency: int,
    retry_failed: bool,
    progress: Progress = no_progress,
    check_reachable: Callable[[], Awaitable[None]] | None = None,
    first: Callable[[], Awaitable[None]] | None = None,
) -> dict[str, Record]:
    """Make what the file does not hold yet, and append each item as soon as it is there.

    An item that fails (endpoint, video) is recorded with its error, and the others go on.

    Args:
        retry_failed: make again what the file holds as failed.
        check_reachable: awaited when the endpoint failed on an item; raises EndpointError if nothing answers there.
        first: awaited before the first item; not where none is left to make.

    Returns:
        The records of `wanted`, in its order.

    Raises:
        UsageError: the file cannot be read or written.
        EndpointError: the endpoint is lost: what is recorded holds, and items under way are not.
    """
    with appended(path, "key") as file:
        records = read_log(path)
        left = [key for key in wanted if key not in records or (retry_failed and "error" in records[key])]
        progress(len(wanted) - len(left), len(wanted))
        if left and first is not None:
            await first()

        async def make(key: str) -> None:
            try:
                made = await wanted[key]()
            except (EndpointError, VideoError) as error:
                if isinstance(error, EndpointError) and check_reachable is not None:
                    await check_reachable()  # else all that is left would fail one by one
                made = {"error": f"{type(error).__name__}: {error}"}
            records[key] = {"key": key, **made}
            append_record(file, records[key])

        stopped = f"; {path.name} holds {{}} of {{}}, and the next run goes on there"
        await work_through(left, make, concurrency, progress, num_done=len(wanted) - len(left), stopped=stopped)
    return {key: records[key] for key in wanted}


def digest(*values: object) -> str:
    """16 hexadecimal digits that differ where any of the JSON-able values does."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]
