"""Questions of the synthetic world in the format of Video-MME, to try an evaluation without a benchmark's videos."""

from __future__ import annotations

from collections.abc import Mapping
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

_SHORT_SECONDS = 120.0
"""Videos up to this long are `short` in Video-MME; ours last ten minutes at most, which is `medium`."""


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
