"""The folder where checkpoints go, and folders that all nodes of a run must share."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from verl_video_tools.core.check import Check, Status

LOCAL_FILE_SYSTEMS = frozenset({"btrfs", "ext2", "ext3", "ext4", "overlay", "ramfs", "tmpfs", "xfs", "zfs"})
"""Types of file systems that belong to one machine."""


def check_folder(folder: Path, *, elsewhere: bool = False) -> Check:
    """Whether the run's folder, which need not exist yet, can be written. Tells how much space is free.

    Args:
        elsewhere: the run is for another machine, which may have another disk there: a fault is a warning.
    """
    parent = existing_parent(folder)
    if not os.access(parent, os.W_OK | os.X_OK):
        fault = Status.WARNING if elsewhere else Status.FAILED
        fix = "OUTPUT_DIR, or trainer.default_local_dir, in a folder that can be written"
        return Check("disk", "checkpoints", fault, str(folder), f"{parent} cannot be written", fix)
    there = len(list(folder.glob("global_step_*"))) if folder.is_dir() else 0
    detail = f"{there} there already: the run resumes from the latest" if there else ""
    found = f"{folder}: {shutil.disk_usage(parent).free / 1e9:,.1f} GB free"
    return Check("disk", "checkpoints", Status.OK, found, detail)


def check_shared(paths: Mapping[str, str], num_nodes: int, mounts: str | None = None) -> Iterator[Check]:
    """Whether files that every node reads or writes can be on a shared file system, as far as one node shows it.

    Args:
        paths: by what they are.
        mounts: text of /proc/mounts, for a test.
    """
    if num_nodes < 2:
        return
    if mounts is None:
        try:
            mounts = Path("/proc/mounts").read_text(encoding="utf-8")
        except OSError:
            yield Check("disk", "shared folders", Status.SKIPPED, detail="/proc/mounts cannot be read")
            return
    types = {what: (path, file_system_of(existing_parent(Path(path)), mounts)) for what, path in paths.items()}
    if local := {what: found for what, found in types.items() if found[1] in LOCAL_FILE_SYSTEMS}:
        detail = "; ".join(f"{what} {path} is on {kind}" for what, (path, kind) in local.items())
        fix = "folders that every node sees under the same path; equal copies on each node do for what is only read"
        detail = f"{num_nodes} nodes need these, and they look local to this one: {detail}"
        yield Check("disk", "shared folders", Status.WARNING, detail=detail, fix=fix)
    else:
        found = ", ".join(sorted({kind for _, kind in types.values()}))
        yield Check("disk", "shared folders", Status.OK, found, "seen from this node alone; the others may differ")


def existing_parent(path: Path) -> Path:
    """The path itself, or the nearest folder above it that exists."""
    path = Path(os.path.abspath(path))
    while not path.exists():
        path = path.parent
    return path


def file_system_of(path: Path, mounts: str) -> str:
    """Type of the file system of a path, by the longest mount point above it; later mounts hide earlier ones."""
    resolved, best, found = str(path.resolve()), -1, "unknown"
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        point = fields[1].replace("\\040", " ")
        if (resolved == point or resolved.startswith(point.rstrip("/") + "/")) and len(point) >= best:
            best, found = len(point), fields[2]
    return found
