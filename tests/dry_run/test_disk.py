"""Space for checkpoints, and what one node can say of shared folders."""

from __future__ import annotations

import shutil
from collections import namedtuple
from pathlib import Path

import pytest

from verl_video_tools.core.check import Status
from verl_video_tools.dry_run.disk import check_shared, check_space, existing_parent, file_system_of

MOUNTS = """\
overlay / overlay rw 0 0
/dev/sda /data ext4 rw 0 0
server:/export /data/shared nfs4 rw 0 0
server:/spaced /with\\040space lustre rw 0 0
tmpfs /dev/shm tmpfs rw 0 0
broken
"""


@pytest.fixture
def free_bytes(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    free = {"bytes": 100}
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(1000, 0, free["bytes"]))
    return free


@pytest.mark.parametrize(("free", "status"), [(50, Status.OK), (49, Status.FAILED)])
def test_all_checkpoints_and_the_exported_model_must_fit(
    free: int, status: Status, free_bytes: dict[str, int], tmp_path: Path
) -> None:
    free_bytes["bytes"] = free
    check = check_space(tmp_path / "not" / "there", checkpoint_bytes=20, num_kept=2, export_bytes=10)
    assert check.status is status
    assert bool(check.fix) == (status is Status.FAILED)
    other = check_space(tmp_path / "not" / "there", 20, 2, 10, elsewhere=True)
    assert other.status is (Status.OK if status is Status.OK else Status.WARNING)
    assert not (tmp_path / "not").exists()


def test_new_checkpoints_come_on_top_of_those_that_are_there(free_bytes: dict[str, int], tmp_path: Path) -> None:
    """A run that resumes writes its own before any of an earlier start goes."""
    for step in (10, 20):
        (tmp_path / f"global_step_{step}").mkdir()
    free_bytes["bytes"] = 50
    check = check_space(tmp_path, checkpoint_bytes=20, num_kept=2, export_bytes=10)
    assert check.status is Status.OK and "2 there already: the run resumes" in check.detail
    free_bytes["bytes"] = 49
    assert check_space(tmp_path, 20, 2, 10).status is Status.FAILED


def test_a_folder_that_cannot_be_written(free_bytes: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.access", lambda path, mode: False)
    check = check_space(Path("/opt/run"), 20, 2, 10)
    assert check.status is Status.FAILED and "cannot be written" in check.detail


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/data/x", "ext4"),
        ("/data", "ext4"),
        ("/data/shared/run", "nfs4"),
        ("/data/sharedrun", "ext4"),
        ("/with space/x", "lustre"),
        ("/home", "overlay"),
    ],
)
def test_the_longest_mount_point_decides(path: str, kind: str) -> None:
    assert file_system_of(Path(path), MOUNTS) == kind


def test_shared_folders() -> None:
    paths = {"the run's folder": "/data/shared/run", "the model": "/with space/model"}
    assert list(check_shared(paths, 1, MOUNTS)) == []
    (local,) = check_shared({**paths, "rows": "/dev/shm"}, 2, MOUNTS)
    assert local.status is Status.WARNING and "rows /dev/shm is on tmpfs" in local.detail
    assert "nfs4" not in local.detail


def test_folders_of_a_network_are_fine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("verl_video_tools.dry_run.disk.existing_parent", lambda path: path)
    (check,) = check_shared({"a": "/data/shared/run", "b": "/with space/model"}, 2, MOUNTS)
    assert check.status is Status.OK and check.found == "lustre, nfs4"


def test_the_nearest_folder_that_exists(tmp_path: Path) -> None:
    assert existing_parent(tmp_path / "a" / "b") == tmp_path
    assert existing_parent(tmp_path) == tmp_path
