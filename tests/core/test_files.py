"""Files that appear whole or not at all."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from verl_video_tools.core.files import share_weights, whole_file


def test_a_file_appears_once_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    with whole_file(path) as partial:
        partial.write_text("new")
        assert not path.exists()
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_a_block_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    path.write_text("old")
    with pytest.raises(KeyError), whole_file(path) as partial:
        partial.write_text("half")
        raise KeyError
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_two_writers_do_not_meet(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    with whole_file(path) as first, whole_file(path) as second:
        first.write_text("first")
        second.write_text("second")
    assert path.read_text() == "first"
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_stays_and_its_file_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    path, target = tmp_path / "rows.json", tmp_path / "elsewhere" / "rows.json"
    target.write_text("old")
    path.symlink_to(target)
    with whole_file(path) as partial:
        partial.write_text("new")
    assert path.is_symlink() and target.read_text() == "new"
    assert list(target.parent.iterdir()) == [target]


def test_a_pipe_is_written_to_and_stays(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with ThreadPoolExecutor() as executor:
        read = executor.submit(path.read_text)
        with whole_file(path) as partial:
            partial.write_text("new")
        assert read.result() == "new"
    assert path.is_fifo() and list(tmp_path.iterdir()) == [path]


def test_nothing_written_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), whole_file(tmp_path / "rows.json"):
        pass


def test_weights_that_cannot_be_shared_stay_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint is whole, so neither a foreign file nor a file system without permissions may end the training."""
    elsewhere = tmp_path / "elsewhere.safetensors"
    folder = tmp_path / "folder"
    folder.mkdir(mode=0o755)
    files = [folder / "a.safetensors", folder / "b.safetensors", elsewhere]
    for file in files:
        file.touch(mode=0o600)
    (folder / "linked.safetensors").symlink_to(elsewhere)
    (folder / "dangling.safetensors").symlink_to(tmp_path / "nothing")
    original = Path.chmod

    def refuse_one(self: Path, mode: int, **options: bool) -> None:
        if self.name.startswith("a."):
            raise PermissionError(1, "Operation not permitted", str(self))
        original(self, mode, **options)

    monkeypatch.setattr(Path, "chmod", refuse_one)
    share_weights(folder)
    assert [file.stat().st_mode & 0o777 for file in files] == [0o600, 0o644, 0o600]
