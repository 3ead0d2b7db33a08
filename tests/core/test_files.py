"""Files that appear whole or not at all."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
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


def test_what_a_killed_writer_left_is_removed_by_the_next(tmp_path: Path) -> None:
    path, other = tmp_path / "rows[1].json", tmp_path / "rows[1].json.old"
    with whole_file(path) as partial:
        partial.write_text("of a writer that lives")
        left = [_leave_partial(file) for file in (path, other)]
        with whole_file(path) as second:
            assert not left[0].exists() and left[1].exists() and partial.exists()
            second.write_text("second")
    assert path.read_text() == "of a writer that lives"
    assert set(tmp_path.iterdir()) == {path, left[1]}, "of another file's leftovers nothing is known"


def _leave_partial(path: Path) -> Path:
    """What a process leaves that is killed while it writes a file."""
    code = "import os, sys; from pathlib import Path; from verl_video_tools.core.files import whole_file\n"
    code += "with whole_file(Path(sys.argv[1])) as partial:\n"
    code += " partial.touch(); print(partial, flush=True); os.kill(os.getpid(), 9)"
    ended = subprocess.run([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True)
    assert ended.returncode == -signal.SIGKILL
    return Path(ended.stdout.strip())


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
