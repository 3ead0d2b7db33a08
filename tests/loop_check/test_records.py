"""What the taps write is what the audit reads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from tests.loop_check.hand_made import SETTINGS, rollout
from verl_video_tools.core.errors import UsageError
from verl_video_tools.loop_check.records import TapFolder, groups_of, read_image, read_rollouts, read_settings


def test_rollouts_come_back_as_they_were(tmp_path: Path) -> None:
    """Of two processes, written in any order."""
    first, second = TapFolder(tmp_path), TapFolder(tmp_path)
    rollouts = [rollout(session_id=i, uid=uid) for uid in ("g", "h") for i in range(2)]
    for number, each in enumerate(rollouts):
        folder = (first, second)[number % 2]
        for line in reversed([*each.generations, *each.rows, *each.trained.values()]):
            folder.write(line)
    assert read_rollouts(tmp_path) == rollouts
    assert [len(group) for group in groups_of(read_rollouts(tmp_path))] == [2, 2]


def test_lines_of_several_threads_are_whole(tmp_path: Path) -> None:
    folder = TapFolder(tmp_path)
    rows = [rollout(session_id=i).rows[0] for i in range(100)]
    with ThreadPoolExecutor(8) as executor:
        list(executor.map(folder.write, rows))
    assert len(read_rollouts(tmp_path)) == 100


def test_an_image_is_kept_once(tmp_path: Path) -> None:
    pixels_HWC = np.random.default_rng(0).integers(0, 256, (28, 56, 3), dtype=np.uint8)
    folders = [TapFolder(tmp_path), TapFolder(tmp_path)]
    with ThreadPoolExecutor(8) as executor:
        list(executor.map(lambda i: folders[i % 2].keep_image("a", pixels_HWC), range(16)))
    assert [path.name for path in (tmp_path / "images").iterdir()] == ["a.png"]
    assert np.array_equal(np.asarray(read_image(tmp_path, "a")), pixels_HWC)


def test_settings(tmp_path: Path) -> None:
    assert read_settings(tmp_path) is None
    TapFolder(tmp_path).write_settings(SETTINGS)
    assert read_settings(tmp_path) == SETTINGS


def test_a_folder_of_something_else(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no lines of a conformance run"):
        read_rollouts(tmp_path)
    (tmp_path / "rows-1.jsonl").write_text('{"uid": "g"}\n')
    with pytest.raises(UsageError, match=r"rows-1.jsonl, line 1"):
        read_rollouts(tmp_path)


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="VVT_LOOP_CHECK_DIR"):
        TapFolder(tmp_path / "file")
