"""Lines of a run's log: read as they come, cleaned, and the end of a log of a run that failed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

MARK = "[verl_video_tools]"
"""Begins every line that this package prints for the user."""
NOISE = {
    r"target_num_threads \d+ should not exceed": "TransferQueue takes as many threads as there are cores",
    r"R?otaryEmbedding: Failed to load weights": "vLLM reloads weights by layer; position embeddings have none",
    r"UserWarning: The given NumPy array is not writ": "torch about a read-only view, which is only read",
    r"\[Performance\]|Per-operation statistics|Time range: last": "TransferQueue's counters, every few minutes",
    r"FutureWarning|DeprecationWarning|is deprecated!": "for the authors of verl and vLLM, not for who trains",
    r"\w+ engine is not available: |warnings\.warn\(": "verl about engines that are not installed",
    r"Error executing job with overrides: |Set the environment variable HYDRA_FULL_ERROR": "Hydra about every error",
    r"No CUDA runtime is found|Disabling Triton": "torch and vLLM on a machine without a GPU",
    r"Enforce eager set|Inductor compilation was disabled|LoRA dynamic loading": "vLLM about options that verl sets",
    r"model_hosting_container_standards": "a hosting service's handlers, which vLLM's server looks for",
    r"is_fx_tracing will return true": "torch about its own functions",
    r"Using blocking ray\.get inside async actor": "Ray about verl's trainer, which waits on purpose",
    r"(^|\s)[~^]+\s*$": "marks below a line of a traceback",
    r"^step:\d+ - |Training Progress: |Writing model shards: |Loading weights: ": "progress, which lines of steps show",
}
"""Lines of frameworks that tell a user nothing, as patterns, and why. They stay in the log."""

LINES_OF_FAILURE = 30
ERRORS_OF_FAILURE = 5
_LONGEST_LINE = 400
_CHUNK_BYTES = 1 << 20

_COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_PROCESS = re.compile(r"^(?:\((?:\w+ )?pid=\d+(?:, ip=[\da-f.:]+)?\) ?)+")
_PLACE = re.compile(r"^(?:ERROR|WARNING|INFO) [\d-]+ [\d:]+ \[[^\]]+:\d+\] ?")
"""vLLM's beginning of every line of a traceback."""
_RANK = re.compile(r"^\[rank\d+\]: ?")
_REPEATED = re.compile(r" ?\[repeated \d+x across cluster\].*$")
_NOISE = re.compile("|".join(NOISE))
_RAISED = re.compile(r"[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit)(?:\(\w+\))?(?:: .*)?")
"""The last line of a traceback."""
_RAY_S_OWN = re.compile(r"ray\.exceptions\.(?:RayTaskError|ActorDiedError|ActorUnavailableError|RayActorError)\b")
"""Raised in the driver for whatever was raised elsewhere."""


class Tail:
    """Reads what is appended to a file, in whole lines."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.place = path.stat().st_size if path.exists() else 0
        """Bytes that have been read, or were there before."""

    def new_lines(self, *, with_unfinished: bool = False) -> Iterator[str]:
        """Those that have come since the last call.

        Args:
            with_unfinished: also a last line whose end is missing, of a process that is gone.
        """
        try:
            size = self._path.stat().st_size
            if size < self.place:  # it was emptied
                self.place = 0
            if size == self.place:
                return
            with self._path.open("rb") as file:
                file.seek(self.place)
                for line in file:
                    if not (line.endswith(b"\n") or with_unfinished):
                        return
                    self.place += len(line)
                    yield line.decode(errors="replace").rstrip("\n")
        except OSError:  # not there yet, or not any more
            return


def clean(line: str) -> str:
    """A line without colours, without what a progress bar has overwritten, and without the process that it is from."""
    line = line.rstrip().rpartition("\r")[2]
    return _REPEATED.sub("", _RANK.sub("", _PROCESS.sub("", _COLOUR.sub("", line)))).rstrip()


def end_of_log(log: Path, start: int) -> tuple[list[str], list[str]]:
    """What a user needs to see of a run that failed.

    Args:
        start: bytes of the log that are of earlier runs.

    Returns:
        Errors that were raised before the last lines, where a launcher's own report hides them, and the last lines:
        without noise, repetitions, and the lines for the user, which have been shown.
    """
    with log.open("rb") as file:
        file.seek(max(start, log.stat().st_size - _CHUNK_BYTES))
        text = file.read().decode(errors="replace")
    kept: list[str] = []
    for line in map(clean, text.splitlines()):
        if line and not line.startswith(MARK) and not _NOISE.search(line) and line not in kept[-3:]:
            kept.append(line[:_LONGEST_LINE])
    last = kept[-LINES_OF_FAILURE:]
    earlier = [_PLACE.sub("", line) for line in kept[:-LINES_OF_FAILURE]]
    raised = [line for line in earlier if _RAISED.fullmatch(line) and not _RAY_S_OWN.match(line)]
    errors = [line for line in dict.fromkeys(reversed(raised)) if line not in last][:ERRORS_OF_FAILURE]
    return errors[::-1], last
