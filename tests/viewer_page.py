"""A recorded rollout to draw, and the viewer's page as a parser of HTML reads it."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from verl_video_tools.core.errors import CallError
from verl_video_tools.core.types import CallRecord, FrameRecord, StopReason, Trajectory, Turn, VideoInfo
from verl_video_tools.records.view import write_html


def frames(*indices: int) -> list[FrameRecord]:
    return [FrameRecord(index, index / 5, 64, 36) for index in indices]


def line(
    session: int = 0,
    *,
    score: float = 1.0,
    method: str = "longvt",
    stop: StopReason = StopReason.ANSWER,
    text: str = "<think>look</think>",
    path: str = "/videos/none.mp4",
    question: str = "What is shown?",
) -> dict[str, Any]:
    calls = [
        CallRecord("crop_video", {"start_time": 2.0}, ok=True, frames=frames(10, 12), result={"start_time": 2.0}),
        CallRecord("crop_video", {"start_time": 99.0}, ok=False, error=CallError("out_of_range", "beyond the end")),
    ]
    trajectory = Trajectory(
        method=method,
        question=question,
        video=VideoInfo(10.0, 50, 5.0, 64, 36),
        initial_frames=frames(0, 25, 49),
        turns=[Turn(text=text, calls=calls, observation="2.0s <image>"), Turn(text="B", answer="B", well_formed=True)],
        stop_reason=stop,
        answer="B",
    )
    return {
        "step": 3,
        "uid": "group-1",
        "session_id": session,
        "ground_truth": "B",
        "extra_info": {"video_path": path, "video_segment": [2.0, 4.0]},
        "reward": {"score": score, "acc": 1.0, "accuracy": 1.0, "format": 0.5, "judge_calls": 0.0},
        "advantage": 0.25,
        "trajectory": trajectory,
    }


def written(tmp_path: Path, lines: list[dict[str, Any]], **options: Any) -> str:
    """The page of these rollouts, `view.html` in a folder."""
    out = tmp_path / "view.html"
    size = write_html(lines, out, **{"title": "a run", **options})
    assert size == out.stat().st_size
    return out.read_text(encoding="utf-8")


class Page(HTMLParser):
    """Its start tags in order, texts, blocks of data by id, programs; and elements as they end, with all their text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.blocks: dict[str, Any] = {}
        self.programs: list[str] = []
        self._script: dict[str, str | None] | None = None
        self.texts: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None], str]] = []
        self._open: list[tuple[str, dict[str, str | None], list[str]]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attributes)))
        self._script = dict(attributes) if tag == "script" else None
        self._open.append((tag, dict(attributes), []))

    def handle_endtag(self, tag: str) -> None:
        self._script = None
        if tag in (name for name, _, _ in self._open):
            while self._open[-1][0] != tag:
                self._open.pop()  # an element without an end, such as a picture
            name, attributes, texts = self._open.pop()
            self.elements.append((name, attributes, "".join(texts)))

    def handle_data(self, data: str) -> None:
        if self._script is None:
            self.texts.append(data)
            for _, _, texts in self._open:
                texts.append(data)
        elif self._script.get("type") == "application/json":
            self.blocks[str(self._script["id"])] = json.loads(data)
        else:
            self.programs.append(data)

    def rows(self) -> list[list[str]]:
        """Cells of every row of a table."""
        rows: list[list[str]] = []
        cells: list[str] = []
        for name, _, text in self.elements:
            if name in ("td", "th"):
                cells.append(text)
            elif name == "tr":
                rows.append(cells)
                cells = []
        return rows

    def having(self, attribute: str) -> list[str]:
        return [str(attributes[attribute]) for _, attributes in self.tags if attribute in attributes]
