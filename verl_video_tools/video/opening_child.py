"""The program that opens files for `opening_check`, so that what FFmpeg takes for it can be measured and ended.

Run as a script, it imports nothing of this package. Requests are JSON lines ``{"path": str, "options": {str: str},
"memory_bytes": int, "cpu_seconds": float, "limit_seconds": float}`` on standard input; the answer is ``{"memory_bytes":
int}``, what this process has had at most beyond what it started with. A request that takes longer than its limits ends
the process, even if nobody is left to kill it.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import sys

import av

LARGEST_BLOCK_BYTES = 1 << 31
"""FFmpeg asks for no more at one time."""


def main() -> None:
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # nothing that a library prints may get between the answers
    first_bytes = address_space_bytes()
    for line in sys.stdin:
        request = json.loads(line)
        # FFmpeg goes on without memory that it does not get, and nobody would notice. So it gets a block more than it
        # may use: one that is refused has been preceded by others that are too much already.
        limit_address_space(first_bytes + request["memory_bytes"] + LARGEST_BLOCK_BYTES)
        # The signals of both clocks end the process by default.
        signal.setitimer(signal.ITIMER_PROF, request["cpu_seconds"])
        signal.setitimer(signal.ITIMER_REAL, request["limit_seconds"])
        with contextlib.suppress(av.FFmpegError, OSError, ValueError):  # whoever opens it next finds out the same
            container = av.open(request["path"], "r", metadata_errors="replace", options=request["options"])
            if address_space_bytes() - first_bytes <= request["memory_bytes"]:
                search(container)
            container.close()
        for clock in (signal.ITIMER_PROF, signal.ITIMER_REAL):
            signal.setitimer(clock, 0)
        answers.write(json.dumps({"memory_bytes": address_space_bytes() - first_bytes}).encode() + b"\n")
        answers.flush()


def search(container: av.container.InputContainer) -> None:
    """Look up frames in the index, which may take longer than all else where it hides many."""
    for stream in container.streams.video:
        entries = stream.index_entries
        for place in {0, len(entries) // 2, len(entries) - 1} if len(entries) else ():
            for backward in (True, False):
                entries.search_timestamp(entries[place].timestamp, backward=backward)


def address_space_bytes() -> int:
    """The largest address space that this process has had; the present one where the kernel keeps no record."""
    with open("/proc/self/status", encoding="ascii", errors="replace") as status:
        fields = dict(line.split(":", 1) for line in status if ":" in line)
    return int(fields.get("VmPeak", fields["VmSize"]).split()[0]) * 1024


def limit_address_space(num_bytes: int) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(
        resource.RLIMIT_AS, (num_bytes if hard == resource.RLIM_INFINITY else min(num_bytes, hard), hard)
    )


if __name__ == "__main__":
    main()
