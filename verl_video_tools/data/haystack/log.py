"""What one step of the pipeline made: JSON lines, one per item, the last one of a key holds."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from verl_video_tools.core.errors import EndpointError, UsageError, VideoError
from verl_video_tools.data.append import appended

Record = dict[str, Any]
"""``key`` and what was made, or ``key`` and ``error``."""
Progress = Callable[[int, int], None]


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


def left_over(path: Path, wanted: Mapping[str, object], retry_failed: bool) -> list[str]:
    """Keys of `wanted` that the file does not hold yet, and, with `retry_failed`, those that it holds as failed."""
    records = read_log(path)
    return [key for key in wanted if key not in records or (retry_failed and "error" in records[key])]


async def run_step(
    path: Path,
    wanted: Mapping[str, Callable[[], Awaitable[Record]]],
    concurrency: int,
    retry_failed: bool,
    progress: Progress = lambda num_done, num_wanted: None,
    check_reachable: Callable[[], Awaitable[None]] | None = None,
) -> dict[str, Record]:
    """Make what the file does not hold yet, and append each item as soon as it is there.

    An item that fails (endpoint, video) is recorded with its error, and the others go on.

    Args:
        check_reachable: awaited when the endpoint failed on an item; raises EndpointError if nothing answers there.

    Returns:
        The records of `wanted`, in its order.

    Raises:
        UsageError: the file cannot be read or written.
        EndpointError: the endpoint is lost: what is recorded holds, and items under way are not.
    """
    with appended(path, "key") as file:
        left = left_over(path, wanted, retry_failed)
        num_done = len(wanted) - len(left)
        progress(num_done, len(wanted))
        waiting = iter(left)

        async def work() -> None:
            nonlocal num_done
            for key in waiting:
                try:
                    record = {"key": key, **await wanted[key]()}
                except (EndpointError, VideoError) as error:
                    if isinstance(error, EndpointError) and check_reachable is not None:
                        await check_reachable()  # else all that is left would fail one by one
                    record = {"key": key, "error": f"{type(error).__name__}: {error}"}
                file.write(json.dumps(record, ensure_ascii=False).encode(errors="backslashreplace") + b"\n")
                file.flush()
                num_done += 1
                progress(num_done, len(wanted))

        workers = [asyncio.create_task(work()) for _ in range(min(concurrency, len(left)))]
        try:
            await asyncio.gather(*workers)
        except EndpointError as error:
            raise EndpointError(
                f"{error}; {path.name} holds {num_done} of {len(wanted)}, and the next run goes on there"
            ) from error
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
    records = read_log(path)
    return {key: records[key] for key in wanted}


def digest(*values: object) -> str:
    """16 hexadecimal digits that differ where any of the JSON-able values does."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]
