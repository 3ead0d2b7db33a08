"""The results in the repository: a file for each finished run, of which none is overwritten or left out."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import Any

from verl_video_tools.core.files import whole_file

FOLDER = Path(__file__).resolve().parent / "results"
CLAIMS_FOLDER = FOLDER / "claims"

Result = Mapping[str, Any]
"""Content of a `results.json`, as `report.results_of` makes it, or of a `claim_result.json`."""


def add(path: Path, name: str, folder: Path = FOLDER) -> Path:
    """Copy a run's `results.json` into the folder, unless the run's is there, perhaps as an earlier version told it.

    Args:
        name: of the file, without its ending. Where it holds another run, the next free number is added.

    Returns:
        The run's file.
    """
    text = path.read_text()
    folder.mkdir(parents=True, exist_ok=True)
    targets = (folder / f"{each}.json" for each in numbered(name))
    target = next(path for path in targets if not path.exists() or _is_same_run(path.read_text(), text))
    if not target.exists():
        with whole_file(target) as partial:
            partial.write_text(text)
    return target


def _is_same_run(one: str, other: str) -> bool:
    """No two runs measure the same of every policy, kind by kind."""
    accuracy = [json.loads(text).get("accuracy") for text in (one, other)]
    return one == other or (accuracy[0] is not None and accuracy[0] == accuracy[1])


def numbered(name: str) -> Iterator[str]:
    """The name, and then with the numbers 2, 3 and so on, for what has a namesake."""
    yield name
    for number in count(2):
        yield f"{name}_{number}"


def load(folder: Path = FOLDER) -> dict[str, Result]:
    """All results, by the name of their file; in order of methods, seeds and names."""
    found = {path.stem: json.loads(path.read_text()) for path in folder.glob("*.json")}
    return dict(sorted(found.items(), key=lambda item: (item[1]["method"], item[1]["seed"], len(item[0]), item[0])))
