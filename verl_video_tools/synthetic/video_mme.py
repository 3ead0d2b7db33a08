"""Questions of the synthetic world as a benchmark publishes its own: in the annotation format of Video-MME.

So an evaluation can be tried without the benchmark's videos. What the format is read from stands in
`verl_video_tools.data.formats.plain`. There is no `url`, as the videos are on this machine only.
"""

from __future__ import annotations

from collections.abc import Mapping
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
}
"""Of the benchmark's twelve, the one that each kind of question comes nearest."""

_SHORT_SECONDS = 120.0
"""Videos up to this long are `short`; ours last ten minutes at most, which is `medium`."""


def video_mme_entry(spec: VideoSpec, asked: Question, video_path: Path, video: int, number: int) -> dict[str, Any]:
    """A question as the benchmark has it.

    Args:
        asked: in the words in which it is to be asked.
        video: number of the video, from 1.
        number: of the question among the video's, from 1.
    """
    seconds = spec.num_frames / spec.fps
    return {
        "video_id": f"{video:03d}",
        "duration": "short" if seconds <= _SHORT_SECONDS else "medium",
        "domain": "Synthetic",
        "sub_category": "NeedleClips" if spec.world == "needle" else "Shapes",
        "url": "",
        "videoID": video_path.stem,
        "question_id": f"{video:03d}-{number}",
        "task_type": _TASK_TYPES[asked.kind],
        "question": asked.text.splitlines()[0],
        "options": [f"{letter}. {option}" for letter, option in asked.options.items()],
        "answer": asked.answer,
    }
