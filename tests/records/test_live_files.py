"""Records that grow, are replaced, cut or removed while they are read, against reading all of them again."""

from __future__ import annotations

import errno
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.viewer_page import line
from verl_video_tools.core.errors import UsageError
from verl_video_tools.records.live_files import LiveFiles
from verl_video_tools.records.records import read_places, step_files


def text_of(name: str, step: int = 1) -> str:
    recorded = line() | {"uid": name, "step": step}
    return json.dumps(recorded | {"trajectory": recorded["trajectory"].to_dict()}) + "\n"


def uids(files: LiveFiles) -> list[Any]:
    return [files.line(entry)["uid"] for entry in files.entries()]


ACTIONS = ("append", "half", "complete", "replace", "rewrite", "cut", "remove", "remove_all")


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(1, 2), st.booleans()), max_size=14))
def test_what_was_read_bit_by_bit_is_what_stands_there(actions: list[tuple[str, int, bool]]) -> None:
    with tempfile.TemporaryDirectory() as name:
        run = Path(name) / "run"
        folder = run / "trajectories"
        files = LiveFiles(run)
        halves: dict[Path, str] = {}
        for number, (action, step, read) in enumerate(actions):
            folder.mkdir(parents=True, exist_ok=True)
            path = folder / f"step_{step:06d}.jsonl"
            text = text_of(f"{number}")
            if action == "append":
                with path.open("a") as file:
                    file.write(halves.pop(path, "") + text)
            elif action == "half":
                if path not in halves:
                    with path.open("a") as file:
                        file.write(text[:40])
                    halves[path] = text[40:]
            elif action == "complete":
                if path in halves:
                    with path.open("a") as file:
                        file.write(halves.pop(path))
            elif action == "replace":
                other = path.with_suffix(".partial")
                other.write_text(text * 3)
                other.replace(path)
                halves.pop(path, None)
            elif action == "rewrite":  # the same inode, and not shorter
                path.write_text(text * 9)
                halves.pop(path, None)
            elif action == "cut":
                path.write_text("")
                halves.pop(path, None)
            elif action == "remove":
                path.unlink(missing_ok=True)
                halves.pop(path, None)
            else:
                shutil.rmtree(run)
                halves.clear()
            if read:
                files.read_new()
        files.read_new()
        expected = [(place.file, place.line, record["uid"]) for place, record in read_places(run)]
        entries = files.entries()
        found = [(entry.place.file, entry.place.line, files.line(entry)["uid"]) for entry in entries]
        assert sorted(found) == expected
        assert len({entry.position for entry in entries}) == len(entries)
        assert not files.read_new()  # nothing was written since


def test_a_line_that_cannot_be_read_costs_itself_alone(tmp_path: Path) -> None:
    path = tmp_path / "step_000001.jsonl"
    path.write_text(text_of("a") + '{"trajectory": 5}\n' + text_of("b"))
    files = LiveFiles(tmp_path)
    assert files.read_new()
    assert uids(files) == ["a", "b"]
    (note,) = files.notes()
    assert note.startswith(f"{path}, line 2: not a recorded rollout")
    with path.open("a") as file:
        file.write("null\n")
    assert files.read_new(), "a further note is a change"
    assert [note.split(":")[0] for note in files.notes()] == [f"{path}, line 2", f"{path}, line 4"]


@pytest.mark.parametrize("reads_at_first", [True, False])
def test_a_read_error_that_passes_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reads_at_first: bool
) -> None:
    """As on a network's file system. It stayed on the page until the file changed, in the place of its other notes."""
    path = tmp_path / "step_000001.jsonl"
    path.write_text(text_of("a") + "no rollout\n")
    files = LiveFiles(tmp_path)
    if reads_at_first:
        assert files.read_new() and len(files.notes()) == 1
    opened = Path.open

    def stale(self: Path, *arguments: Any, **options: Any) -> Any:
        if self == path:
            raise OSError(errno.ESTALE, "Stale file handle")
        return opened(self, *arguments, **options)

    monkeypatch.setattr(Path, "open", stale)
    assert files.read_new() and not files.read_new(), "told once"
    error = f"{path}: cannot be read (Stale file handle)"
    assert files.notes()[-1] == error and len(files.notes()) == 1 + reads_at_first
    assert len(files.entries()) == reads_at_first and (files.written_at() is not None) == reads_at_first
    monkeypatch.setattr(Path, "open", opened)
    assert files.read_new() and not files.read_new()
    (note,) = files.notes()
    assert "not a recorded rollout" in note and uids(files) == ["a"]


def test_the_lines_of_a_file_that_was_replaced_are_not_taken_for_the_former(tmp_path: Path) -> None:
    path = tmp_path / "step_000001.jsonl"
    path.write_text(text_of("a"))
    files = LiveFiles(tmp_path)
    files.read_new()
    (entry,) = files.entries()
    other = tmp_path / "other"
    other.write_text(text_of("b"))
    other.replace(path)
    with pytest.raises(UsageError, match="not there any more"):
        files.line(entry)
    path.unlink()
    with pytest.raises(UsageError, match="not there any more"):
        files.line(entry)


def test_a_run_that_holds_no_step_yet_and_one_file(tmp_path: Path) -> None:
    files = LiveFiles(tmp_path / "run")
    assert not files.read_new() and not files.exists() and files.written_at() is None
    folder = tmp_path / "run" / "trajectories"
    folder.mkdir(parents=True)
    assert not files.read_new() and files.exists()
    (folder / "step_000001.jsonl").write_text(text_of("a"))
    (folder / "val_step_000001.jsonl").write_text(text_of("held out"))
    assert files.read_new() and uids(files) == ["a"]
    one = LiveFiles(step_files(folder, validation=True)[0])
    assert one.read_new() and uids(one) == ["held out"]
