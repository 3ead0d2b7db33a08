"""Questions of the synthetic world as benchmarks publish theirs: Video-MME, LongVideoBench, Charades-STA.

So an evaluation can be tried without a benchmark's videos. What the formats are read from stands in
`verl_video_tools.data.formats`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verl_video_tools.synthetic.questions import Kind, Question
from verl_video_tools.synthetic.world import VideoSpec

_TASK_TYPES: Mapping[Kind, str] = {
    "direct": "Object Recognition",
    "at_time": "Temporal Perception",
    "between_frames": "Object Recognition",
    "between_things": "Temporal Reasoning",
    "order": "Temporal Reasoning",
    "count": "Counting Problem",
    "on_card": "Spatial Perception",
}
"""Of Video-MME's twelve, the one that each kind of question comes nearest."""

_CATEGORIES: Mapping[Kind, str] = {
    "direct": "S2O",
    "at_time": "T2O",
    "between_frames": "S2O",
    "between_things": "O3O",
    "order": "SSS",
    "count": "SAA",
    "on_card": "S2O",
}
"""The same of LongVideoBench's seventeen: what the question names (scene, text, object) and what it asks for."""

_SHORT_SECONDS = 120.0
"""Videos up to this long are `short` in Video-MME; ours last ten minutes at most, which is `medium`."""
_DURATION_GROUPS_SECONDS = (15, 60, 600)
"""Of LongVideoBench, by the longest video of each."""
_CAPTION_SECONDS = 2


@dataclass(frozen=True, slots=True)
class AskedQuestion:
    """A question about a video, in the words in which it is to be asked.

    Attributes:
        video: number of the video, from 1.
        number: of the question among the video's, from 1.
    """

    spec: VideoSpec
    question: Question
    video_path: Path
    video: int
    number: int

    @property
    def text(self) -> str:
        """Without the options."""
        return self.question.text.splitlines()[0]


def video_mme_entry(asked: AskedQuestion) -> dict[str, Any]:
    """As Video-MME has it. There is no `url`, as the videos are on this machine only."""
    seconds = asked.spec.num_frames / asked.spec.fps
    return {
        "video_id": f"{asked.video:03d}",
        "duration": "short" if seconds <= _SHORT_SECONDS else "medium",
        "domain": "Synthetic",
        "sub_category": "Shapes" if asked.spec.world == "short" else "NeedleClips",
        "url": "",
        "videoID": asked.video_path.stem,
        "question_id": f"{asked.video:03d}-{asked.number}",
        "task_type": _TASK_TYPES[asked.question.kind],
        "question": asked.text,
        "options": [f"{letter}. {option}" for letter, option in asked.question.options.items()],
        "answer": asked.question.answer,
    }


def longvideobench_entry(asked: AskedQuestion) -> dict[str, Any]:
    """As LongVideoBench has it; the subtitles are those of `captions`."""
    options = asked.question.options
    seconds = asked.spec.num_frames / asked.spec.fps
    return {
        "id": f"{asked.video_path.stem}_{asked.number - 1}",
        "video_id": asked.video_path.stem,
        "video_path": asked.video_path.name,
        "subtitle_path": f"{asked.video_path.stem}_en.json",
        "question": asked.text,
        "candidates": list(options.values()),
        "correct_choice": list(options).index(asked.question.answer),
        "question_category": _CATEGORIES[asked.question.kind],
        "topic_category": "Synthetic",
        "duration_group": next(longest for longest in _DURATION_GROUPS_SECONDS if seconds <= longest),
        "duration": seconds,
        "starting_timestamp_for_subtitles": 0,
    }


def captions(spec: VideoSpec) -> list[dict[str, str]]:
    """Subtitles of a video in LongVideoBench's form: they say the time, and nothing of what is shown."""
    seconds = spec.num_frames / spec.fps
    starts = range(0, int(seconds), _CAPTION_SECONDS)
    return [
        {
            "start": _clock(start),
            "end": _clock(min(start + _CAPTION_SECONDS, seconds)),
            "line": f"It is {start // 60}:{start % 60:02d}.",
        }
        for start in starts
    ]


def charades_sta_lines(spec: VideoSpec, video_path: Path) -> Iterator[str]:
    """A line of Charades-STA for each thing that a video shows once: its name, start and end in seconds, a sentence."""
    shown = Counter(event.label for event in spec.events)
    for event in spec.events:
        if shown[event.label] == 1:
            start, end = event.start_frame / spec.fps, (event.end_frame + 1) / spec.fps
            yield f"{video_path.stem} {start:.1f} {end:.1f}##{event.label} is shown."


def _clock(seconds: float) -> str:
    minutes, rest = divmod(seconds, 60)
    return f"{int(minutes // 60):02d}:{int(minutes % 60):02d}:{rest:06.3f}"
