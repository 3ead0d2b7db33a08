"""A run that was killed while it saved a checkpoint resumes from one that is whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from verl_video_tools.verl_plugin import checkpoints

TRACKER = checkpoints.LAST_CHECKPOINT


@pytest.mark.slow  # it imports verl
def test_the_file_is_the_one_that_verl_writes() -> None:
    manager = pytest.importorskip("verl.utils.checkpoint.checkpoint_manager", reason="verl names the file")
    assert manager.get_checkpoint_tracker_filename("run") == f"run/{TRACKER}"


def saved(folder: Path, step: int, whole: bool = True) -> None:
    for part in ("actor", "transfer_queue"):
        (folder / f"global_step_{step}" / part).mkdir(parents=True)
    if whole:
        (folder / f"global_step_{step}" / "data.pt").touch()


@pytest.mark.parametrize("named", ["", "12", "1\x00", "-1"])
def test_the_newest_whole_checkpoint_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str], named: str) -> None:
    for step in (2, 9, 10):
        saved(tmp_path, step)
    saved(tmp_path, 11, whole=False)
    (tmp_path / TRACKER).write_text(named)
    checkpoints.name_whole_checkpoint(tmp_path, "data.pt")
    assert (tmp_path / TRACKER).read_text() == "10"
    assert f"{tmp_path / TRACKER} names no checkpoint" in capsys.readouterr().out


@pytest.mark.parametrize("named", ["2", "12"])
def test_a_checkpoint_whose_weights_are_gone_is_none(tmp_path: Path, named: str) -> None:
    """verl removes the weights of an old one before it names the next, and leaves its folder."""
    for step in (1, 2, 12):
        saved(tmp_path, step)
    for step in (2, 12):
        (tmp_path / f"global_step_{step}" / "actor").rmdir()
    (tmp_path / TRACKER).write_text(named)
    checkpoints.name_whole_checkpoint(tmp_path, "data.pt")
    assert (tmp_path / TRACKER).read_text() == "1"


def test_what_verl_has_named_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for step in (2, 9):
        saved(tmp_path, step)
    (tmp_path / TRACKER).write_text("2")
    checkpoints.name_whole_checkpoint(tmp_path, "data.pt")
    assert (tmp_path / TRACKER).read_text() == "2"
    assert capsys.readouterr().out == ""


def test_without_a_whole_checkpoint_the_run_starts_from_scratch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoints.name_whole_checkpoint(tmp_path, "data.pt")
    assert capsys.readouterr().out == ""
    saved(tmp_path, 1, whole=False)
    (tmp_path / TRACKER).touch()
    checkpoints.name_whole_checkpoint(tmp_path, "data.pt")
    assert not (tmp_path / TRACKER).exists()
    assert "starting from scratch" in capsys.readouterr().out


def test_a_run_that_was_killed_before_it_named_its_first_checkpoint_has_it(tmp_path: Path) -> None:
    saved(tmp_path, 1)
    checkpoints.name_whole_checkpoint(tmp_path, "data.pt")
    assert (tmp_path / TRACKER).read_text() == "1"


def left(folder: Path) -> list[int]:
    """Steps whose weights are there; -1: of a folder that is no checkpoint."""
    names = [actor.parent.name.removeprefix("global_step_") for actor in folder.glob("global_step_*/actor")]
    return sorted(int(name) if name.isdecimal() else -1 for name in names)


def test_weights_of_older_checkpoints_go_and_the_rest_stays(tmp_path: Path) -> None:
    for step in (2, 9, 10, 20):
        saved(tmp_path, step)
    (tmp_path / "global_step_15" / "transfer_queue").mkdir(parents=True)  # verl has removed its weights
    (tmp_path / "global_step_mine" / "actor").mkdir(parents=True)
    (tmp_path / TRACKER).write_text("20")
    checkpoints.remove_old_checkpoints(tmp_path, 2)
    assert left(tmp_path) == [-1, 10, 20]
    assert {path.parent.name for path in tmp_path.glob("*/transfer_queue")} == {"global_step_10", "global_step_20"}
    assert (tmp_path / "global_step_2" / "data.pt").exists()
    checkpoints.remove_old_checkpoints(tmp_path, 5)
    assert left(tmp_path) == [-1, 10, 20]


def test_a_checkpoint_under_way_does_not_count_and_the_one_that_is_named_stays(tmp_path: Path) -> None:
    for step in (9, 10, 11, 12):
        saved(tmp_path, step)
    for named in ("", "1\x00"):
        (tmp_path / TRACKER).write_text(named)
        checkpoints.remove_old_checkpoints(tmp_path, 1)
    (tmp_path / TRACKER).unlink()
    checkpoints.remove_old_checkpoints(tmp_path, 1)
    assert left(tmp_path) == [9, 10, 11, 12]
    (tmp_path / TRACKER).write_text("10")
    checkpoints.remove_old_checkpoints(tmp_path, 1)
    assert left(tmp_path) == [10, 11, 12]
