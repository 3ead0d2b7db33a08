"""The folder of checkpoints, and what one node can say of shared folders."""

from __future__ import annotations

from pathlib import Path

import pytest

from verl_video_tools.core.check import Status
from verl_video_tools.dry_run.disk import check_folder, check_shared, existing_parent, file_system_of

MOUNTS = """\
overlay / overlay rw 0 0
/dev/sda /data ext4 rw 0 0
server:/export /data/shared nfs4 rw 0 0
server:/spaced /with\\040space lustre rw 0 0
tmpfs /dev/shm tmpfs rw 0 0
broken
"""


def test_existing_checkpoints_are_reported(tmp_path: Path) -> None:
    for step in (10, 20):
        (tmp_path / f"global_step_{step}").mkdir()
    check = check_folder(tmp_path)
    assert check.status is Status.OK and "2 there already: the run resumes" in check.detail
    assert check_folder(tmp_path / "not" / "there").status is Status.OK and not (tmp_path / "not").exists()


@pytest.mark.parametrize(("elsewhere", "status"), [(False, Status.FAILED), (True, Status.WARNING)])
def test_a_folder_that_cannot_be_written(elsewhere: bool, status: Status, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.access", lambda path, mode: False)
    check = check_folder(Path("/opt/run"), elsewhere=elsewhere)
    assert check.status is status and "cannot be written" in check.detail


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
