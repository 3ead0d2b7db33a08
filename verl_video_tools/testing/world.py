"""The world that a method is checked in: one synthetic video, questions about it, and test doubles of the services."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from pkgutil import resolve_name

from verl_video_tools.core.errors import JudgeError
from verl_video_tools.core.types import AnswerLabel, Content, Method, PixelEnvelope, Sample, VideoInfo
from verl_video_tools.services.tool_model import FunctionToolModel
from verl_video_tools.synthetic.questions import Question, make_questions
from verl_video_tools.synthetic.seconds import evidence_seconds
from verl_video_tools.synthetic.world import SIDE_PIXELS, VideoSpec, random_spec, render

QWEN = PixelEnvelope(factor=28, min_pixels=56 * 56, max_pixels=1280 * 28 * 28)
"""Frame sizes that the processor of Qwen2.5-VL leaves unchanged."""

VIDEOS: dict[str, VideoInfo] = {
    "one frame": VideoInfo(0.2, 1, 5.0, 56, 56),
    "two frames": VideoInfo(0.4, 2, 5.0, 56, 56),
    "ten seconds": VideoInfo(10.0, 250, 25.0, 320, 240),
    "an upright phone video": VideoInfo(61.3, 1837, 29.97, 1080, 1920),
    "a slide show": VideoInfo(600.0, 300, 0.5, 1280, 720),
    "an hour": VideoInfo(3600.0, 108_000, 30.0, 1920, 1080),
}
"""Facts of videos without files, by a description for messages."""

_SUBTITLES = [
    {"start_seconds": 18.0, "end_seconds": 24.0, "text": "Here comes a red circle."},
    {"start_seconds": 60.0, "end_seconds": 63.5, "text": "And then it is gone."},
]
_SEED, _NUM_QUESTIONS = 30, 6  # the questions about this video are of four kinds, and one of them needs a search


@dataclass(frozen=True)
class World:
    """One video of 95 seconds, and six questions about it.

    Args:
        folder: an existing folder. The video is rendered into it on first use.
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
        """The facts that a probe of the video reports."""
        spec = self.spec
        return VideoInfo(spec.duration_seconds, spec.num_frames, float(spec.fps), SIDE_PIXELS, SIDE_PIXELS)

    @cached_property
    def questions(self) -> list[Question]:
        return make_questions(self.spec, _NUM_QUESTIONS, 0)

    def samples(self, method: type[Method]) -> list[Sample]:
        """The questions as rows, in the words of the method's `synthetic_question`."""
        words = None if method.synthetic_question is None else resolve_name(method.synthetic_question)
        return [
            self._sample(question, question if words is None else words(self.spec, question))
            for question in self.questions
        ]

    def _sample(self, question: Question, worded: Question) -> Sample:
        row = {
            "extra_info": {
                "question": worded.text,
                "question_type": "mc",
                "options": list(worded.options.values()),
                "video_path": self.video_path,
                "video_segment": list(evidence_seconds(self.spec, question)),
                "classification": "direct" if question.kind == "direct" else "active",
                "subtitles": _SUBTITLES,
                "index": self.questions.index(question),
                "split": "test",
            },
            "reward_model": {"ground_truth": worded.answer},
        }
        return Sample.from_row(row)


def without_file(sample: Sample) -> Sample:
    """The sample with the path of a video that does not exist."""
    path = "no_such_file.mp4"
    return replace(sample, video_path=path, extra_info={**sample.extra_info, "video_path": path})


def with_other_truth(sample: Sample) -> Sample:
    """The sample with another right option and another annotated segment."""
    truth = next(letter for letter in "AB" if letter != sample.ground_truth)
    extra_info = {**sample.extra_info, "video_segment": [1.0, 2.0]}
    return replace(sample, ground_truth=truth, video_segment_seconds=(1.0, 2.0), extra_info=extra_info)


def without_annotations(sample: Sample) -> Sample:
    """The sample with only what every row has: a question with its options, a truth and a video."""
    names = ("question", "question_type", "options", "video_path", "index", "split")
    extra_info = {name: sample.extra_info[name] for name in names}
    return replace(sample, video_segment_seconds=None, subtitles=(), extra_info=extra_info)


class RankingRetriever:
    """Ranks candidate frames by a hash of their indices, so not in order of time, and opens no video."""

    async def best_frames(
        self, video_path: str, candidates: Sequence[int], text: str, num_frames: int, deadline_seconds: float
    ) -> list[int]:
        return sorted(candidates, key=lambda index: ((index * 37) % 101, index))[:num_frames]


class FailingJudge:
    """A judge that cannot be reached. `num_requests` counts the requests."""

    def __init__(self) -> None:
        self.num_requests = 0

    async def judge(self, question: str, truth: str, answer: str) -> AnswerLabel:
        self.num_requests += 1
        raise JudgeError("the judge cannot be reached")


def tool_model() -> FunctionToolModel:
    """A tool model that gives the same reply to every question."""
    return FunctionToolModel(_reply)


def _reply(content: Content) -> str:
    return "A red circle."
