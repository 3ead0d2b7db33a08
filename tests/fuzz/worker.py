"""The process that hands inputs over: `python -m tests.fuzz.worker REQUEST FOLDER`, started by `rounds.run_apart`."""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

from tests.fuzz.rounds import MAX_FINDS, Find, Progress, checked, dumped
from tests.fuzz.surface import load_surface

MEMORY_BYTES = 8 << 30
"""Address space: an input that takes more is a find, not the end of the machine."""


def main(request: dict[str, Any], folder: Path) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    progress, kinds = Progress(folder / "progress"), set[str]()
    seed, inputs, numbers = request["seed"], 0, 0
    (folder / "work").mkdir()

    def note(find: Find | None) -> None:
        if find is not None and find.place not in kinds:
            kinds.add(find.place)
            with (folder / "finds").open("a") as log:
                log.write(dumped(find) + "\n")

    with load_surface(request["name"], folder / "work") as surface:
        for name, case in surface.corpus().items():
            note(checked(surface, seed, name, case)[1])
        started = written = time.monotonic()
        while len(kinds) < MAX_FINDS:
            now = time.monotonic()
            if now - written > 1.0:  # for the case that this process does not end by itself
                (folder / "seconds").write_text(str(now - started))
                written = now
            if request["count"] is not None and numbers >= request["count"]:
                break
            if request["seconds"] is not None and now - started >= request["seconds"]:
                break
            number = request["first"] + numbers
            numbers += 1
            progress.set(numbers, inputs)
            handled, find = checked(surface, seed, number, surface.input(seed, number))
            inputs += handled
            note(find)
        progress.set(numbers, inputs)
        (folder / "seconds").write_text(str(time.monotonic() - started))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), Path(sys.argv[2]))
