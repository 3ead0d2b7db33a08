"""Folders of Hugging Face data sets, as downloaded or as saved by `datasets`: which files hold the rows of a split.

Known are a folder of `save_to_disk` (`data-*.arrow`, one folder per split for several), a repository's files
(`data/train-00000-of-00002.parquet`, `train.jsonl`, `train/part.csv`), and `metadata.jsonl`, `.csv` or `.parquet`
beside the videos (`videofolder`). Read from the documentation of `datasets`, huggingface.co/docs/datasets.
"""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

from verl_video_tools.core.errors import UsageError

_SUFFIXES = (".parquet", ".jsonl", ".json", ".csv", ".tsv", ".arrow")
_ABOUT = re.compile(r"dataset_info|dataset_infos|dataset_dict|state|README|\..*", re.IGNORECASE)
"""Files that tell about the data set and hold no rows, and hidden ones."""
_SHARD = re.compile(r"[-_]\d{5}(?:-of-\d{5})?(?:-[0-9a-f]{16})?$")
_SPLIT = re.compile(r"(?:^|[-_.])(train|training|validation|valid|val|dev|test|testing|eval)(?:$|[-_.])", re.IGNORECASE)
_SAME = {"training": "train", "valid": "validation", "val": "validation", "dev": "validation", "testing": "test"}


def data_files(folder: Path, split: str | None) -> tuple[tuple[Path, ...], str]:
    """The files of a split, in order, and its name.

    Args:
        split: None: the only one that there is.

    Raises:
        UsageError: there are no such files, several splits and none is chosen, or one's files are several tables.
    """
    paths = sorted(path for path in folder.rglob("*") if _holds_rows(path.relative_to(folder)) and path.is_file())
    metadata = [path for path in paths if path.stem == "metadata"]
    groups: dict[str, list[Path]] = defaultdict(list)
    for path in metadata or paths:
        groups[_split_of(path.relative_to(folder))].append(path)
    if not groups:
        raise UsageError(f"{folder} holds no table: no file of {', '.join(_SUFFIXES)}")
    names = sorted(groups)
    wanted = names[0] if split is None and len(names) == 1 else _same(split or "")
    if wanted not in groups:
        chosen = "choose one" if split is None else f"there is no {split!r}"
        raise UsageError(f"{folder} has the splits {', '.join(names)}: {chosen}; name it with --split")
    files = groups[wanted]
    tables = {(path.parent, path.suffix, _SHARD.sub("", path.stem)) for path in files}
    if len(tables) > 1:
        told = ", ".join(str(path.relative_to(folder)) for path in files[:4])
        raise UsageError(f"{folder} holds several tables ({told}{', ...' if len(files) > 4 else ''}); name one of them")
    return tuple(files), split or wanted


def _holds_rows(path: Path) -> bool:
    hidden = any(part.startswith(".") for part in path.parts)
    return not hidden and path.suffix.lower() in _SUFFIXES and not _ABOUT.fullmatch(path.stem)


def _split_of(path: Path) -> str:
    """By the file's name, else by that of the nearest folder; `train` where nothing says so."""
    for name in (_SHARD.sub("", path.stem), *(part for part in reversed(path.parts[:-1]))):
        if found := _SPLIT.search(name):
            return _same(found[1].lower())
    return "train"


def _same(name: str) -> str:
    return _SAME.get(name, name)
