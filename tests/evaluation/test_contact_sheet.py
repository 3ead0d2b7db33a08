"""Contact sheets: which frames are on one, and in which order."""

from __future__ import annotations

import numpy as np
import pytest

from tests.videos.files import draw_number, read_number
from verl_video_tools.core.frames import FrameRecord
from verl_video_tools.core.messages import ImagePart
from verl_video_tools.evaluation.chat import CELL_PIXELS, MAX_CELLS, contact_sheet

LABEL_PIXELS = 16


def image(number: int, width: int, height: int) -> ImagePart:
    return ImagePart(FrameRecord(number, number / 10, width, height), draw_number(number, width, height))


@pytest.mark.parametrize(
    ("width", "height", "cell"), [(96, 64, (96, 64)), (768, 384, (192, 96)), (200, 400, (96, 192))]
)
@pytest.mark.parametrize(("count", "columns", "rows"), [(1, 1, 1), (2, 2, 1), (5, 3, 2), (16, 4, 4)])
def test_every_frame_is_there_row_by_row(
    width: int, height: int, cell: tuple[int, int], count: int, columns: int, rows: int
) -> None:
    sheet = np.asarray(contact_sheet([image(3 * number, width, height) for number in range(count)]))
    step = cell[1] + LABEL_PIXELS
    assert sheet.shape == (rows * step, columns * cell[0], 3) and max(cell) <= CELL_PIXELS
    for number in range(count):
        top, left = number // columns * step, number % columns * cell[0]
        assert read_number(sheet[top : top + cell[1], left : left + cell[0]]) == 3 * number
        label = sheet[top + cell[1] : top + step, left : left + cell[0]]
        assert label.min() < 80 and np.median(label) == 255, "dark on white"


def test_of_many_frames_so_many_are_drawn_from_the_first_to_the_last() -> None:
    sheet = np.asarray(contact_sheet([image(number, 96, 64) for number in range(512)]))
    side = int(MAX_CELLS**0.5)
    cells = sheet.reshape(side, 64 + LABEL_PIXELS, side, 96, 3).swapaxes(1, 2)[:, :, :64]
    drawn = [read_number(cell) for cell in cells.reshape(-1, 64, 96, 3)]
    assert len(drawn) == MAX_CELLS and drawn[0] == 0 and drawn[-1] == 511
    assert set(np.diff(drawn)) <= {5, 6}


def test_pictures_of_several_sizes_do_not_overlap() -> None:
    sheet = np.asarray(contact_sheet([image(7, 96, 64), image(9, 64, 96)]))
    assert sheet.shape == (96 + LABEL_PIXELS, 2 * 96, 3)
    assert (read_number(sheet[:64, :96]), read_number(sheet[:96, 96:160])) == (7, 9)
