"""What a method is checked on: a video of the synthetic world, questions about it, and facts of further videos.

No service is asked: the judge knows the truth, and the retriever ranks frames by their numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from pkgutil import resolve_name

from verl_video_tools.core.errors import JudgeError
from verl_video_tools.core.types import AnswerLabel, Method, PixelEnvelope, Sample, VideoInfo
from verl_video_tools.synthetic.questions import Question, make_questions
from verl_video_tools.synthetic.seconds import evidence_seconds
from verl_video_tools.synthetic.spec import random_spec
from verl_video_tools.synthetic.world import SIDE_PIXELS, VideoSpec, render

NO_FILE = "no_such_file.mp4"
"""Path in the samples of checks during which no video may be opened."""

QWEN = PixelEnvelope(factor=28, min_pixels=56 * 56, max_pixels=1280 * 28 * 28)
"""Sizes as a Qwen2.5-VL's processor leaves them untouched."""

VIDEOS: dict[str, VideoInfo] = {
    "one frame": VideoInfo(0.2, 1, 5.0, 56, 56),
    "two frames": VideoInfo(0.4, 2, 5.0, 56, 56),
    "ten seconds": VideoInfo(10.0, 250, 25.0, 320, 240),
    "an upright phone video": VideoInfo(61.3, 1837, 29.97, 1080, 1920),
    "a slide show": VideoInfo(600.0, 300, 0.5, 1280, 720),
    "an hour": VideoInfo(3600.0, 108_000, 30.0, 1920, 1080),
}
"""Facts of videos by what they are; there are no such files."""

_SUBTITLES = [
    {"start_seconds": 18.0, "end_seconds": 24.0, "text": "Here comes a red circle."},
    {"start_seconds": 60.0, "end_seconds": 63.5, "text": "And then it is gone."},
]
_SEED, _NUM_QUESTIONS = 30, 6  # a video whose questions ask in four ways, one of them by a search


@dataclass(frozen=True)
class World:
    """A folder with one video of 95 seconds.

    Args:
        folder: exists; the video is written there when it is first asked for.
    """

    folder: Path

    @cached_property
    def video_path(self) -> str:
        path = self.folder / "video.mp4"
        render(self.spec, path)
        return str(path)

    @cached_property
    def spec(self) -> VideoSpec:
        return random_spec(_SEED)

    @property
    def info(self) -> VideoInfo:
        """Facts of the video, as they are probed."""
        spec = self.spec
        return VideoInfo(spec.duration_seconds, spec.num_frames, float(spec.fps), SIDE_PIXELS, SIDE_PIXELS)

    @cached_property
    def questions(self) -> list[Question]:
        return make_questions(self.spec, _NUM_QUESTIONS, 0)

    def seconds_of(self, index: int) -> float:
        """Presentation time of a frame."""
        return index / float(self.spec.fps)

    def samples(self, method: type[Method]) -> list[Sample]:
        """The questions as rows of the method ask them."""
        words = None if method.synthetic_question is None else resolve_name(method.synthetic_question)
        return [
            self._sample(question, question if words is None else words(self.spec, question))
            for question in self.questions
        ]

    def _sample(self, question: Question, asked: Question) -> Sample:
        segment = evidence_seconds(self.spec, question)
        row = {
            "extra_info": {
                "question": asked.text,
                "question_type": "mc",
                "options": list(asked.options.values()),
                "video_path": self.video_path,
                "video_segment": list(segment),
                "classification": "direct" if question.kind == "direct" else "active",
                "subtitles": _SUBTITLES,
                "index": self.questions.index(question),
                "split": "test",
            },
            "reward_model": {"ground_truth": asked.answer},
        }
        return Sample.from_row(row)


def without_file(sample: Sample) -> Sample:
    """The sample of a video that cannot be opened."""
    return replace(sample, video_path=NO_FILE, extra_info={**sample.extra_info, "video_path": NO_FILE})


def with_other_truth(sample: Sample) -> Sample:
    """The sample with another right option, seen at another place."""
    other = next(letter for letter in "AB" if letter != sample.ground_truth)
    told = {**sample.extra_info, "video_segment": [1.0, 2.0]}
    return replace(sample, ground_truth=other, video_segment_seconds=(1.0, 2.0), extra_info=told)


def without_annotations(sample: Sample) -> Sample:
    """The sample with what every row has, and nothing else: a question with its options, a truth and a video."""
    needed = ("question", "question_type", "options", "video_path", "index", "split")
    told = {name: sample.extra_info[name] for name in needed}
    return replace(sample, video_segment_seconds=None, subtitles=(), extra_info=told)


class RankingRetriever:
    """Ranks candidates by their numbers, not in order of time, and opens no video."""

    async def best_frames(
        self, video_path: str, candidates: Sequence[int], text: str, num_frames: int, deadline_seconds: float
    ) -> list[int]:
        return sorted(candidates, key=lambda index: ((index * 37) % 101, index))[:num_frames]


class NoJudge:
    """A judge that is out of reach, and knows whether it was asked."""

    def __init__(self) -> None:
        self.was_asked = False

    async def judge(self, question: str, truth: str, answer: str) -> AnswerLabel:
        self.was_asked = True
        raise JudgeError("the judge is out of reach")
