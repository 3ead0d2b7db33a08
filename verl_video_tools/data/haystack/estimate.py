"""Upper bounds of what the steps that ask models cost, without retries; printed before any model is asked."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import InitVar, dataclass

from verl_video_tools.data.haystack.config import HaystackConfig
from verl_video_tools.data.haystack.log import Record
from verl_video_tools.data.haystack.models import instructions
from verl_video_tools.data.haystack.pipeline import short_videos, shown_seconds
from verl_video_tools.data.haystack.scenes import Part
from verl_video_tools.video import fit_pixels

PATCH_PIXELS = 28
"""Side of a visual token of the Qwen2-VL and Qwen2.5-VL models."""
CHARACTERS_PER_TOKEN = 4.0
"""Of English text, roughly."""
LABEL_TOKENS = 14
"""A frame's time, a token for each digit, and what the chat template puts around the image."""
HEADING_TOKENS = 24
"""The number and the times of a part before its description."""
CHAT_TOKENS = 24
"""What the chat template puts around the two messages of a request, and the words around a question and its answer."""


@dataclass
class StepCost:
    """One step: what it takes at most, whatever was already made.

    Args:
        prompt: that each request begins with.
    """

    step: str
    prompt: InitVar[str]
    requests: int = 0
    images: int = 0
    input_tokens: int = 0
    output_tokens: int = 0

    def __post_init__(self, prompt: str) -> None:
        self._prompt_tokens = math.ceil(len(prompt) / CHARACTERS_PER_TOKEN) + CHAT_TOKENS

    def add(self, requests: int, images: int, input_tokens: int, output_tokens: int) -> None:
        """Requests with so many images and tokens each, beside the prompt."""
        self.requests += requests
        self.images += requests * images
        self.input_tokens += requests * (input_tokens + self._prompt_tokens)
        self.output_tokens += requests * output_tokens


def estimate(scenes: Mapping[str, Record], config: HaystackConfig) -> list[StepCost]:
    """An upper bound of each step that asks a model: every reply is as long as it may be, every group of captions gives
    all questions that it may, each about the parts that take most images, and all reach the last check.

    Only attempts after an unusable reply or a failed request come on top.
    """
    captions = StepCost("captions", instructions("caption.txt"))
    questions = StepCost("questions", instructions("questions.txt", num_questions=config.questions_per_request))
    text = StepCost("text checks", instructions("text_check.txt"))
    sight = StepCost("visual checks", instructions("visual_check.txt"))
    count, question_tokens = config.questions_per_request, config.max_question_tokens
    short = short_videos(scenes, config)
    for video, scene in scenes.items():
        parts = [(float(start), float(end)) for start, end in scene.get("parts", [])]
        if not parts or video in short:
            continue
        width, height = fit_pixels(scene["width"], scene["height"], config.frame_pixels)
        frame_tokens = math.ceil(width / PATCH_PIXELS) * math.ceil(height / PATCH_PIXELS) + LABEL_TOKENS
        for part in parts:
            frames = len(shown_seconds(part, config.caption_fps, config.max_frames))
            captions.add(1, frames, frames * frame_tokens, config.max_caption_tokens)
        for first in range(0, len(parts), config.captions_per_request):
            group = parts[first : first + config.captions_per_request]
            read = len(group) * (config.max_caption_tokens + HEADING_TOKENS)
            questions.add(1, 0, read, count * question_tokens)
            if most := _most_frames(group, scene["duration_seconds"], config):
                text.add(count, 0, read + question_tokens, config.max_verdict_tokens)
                sight.add(count, most, most * frame_tokens + question_tokens, config.max_verdict_tokens)
    return [captions, questions, text, sight]


def _most_frames(parts: Sequence[Part], video_seconds: float, config: HaystackConfig) -> int:
    """Of the evidence of one question, which is some of these parts in a row; 0 if any evidence is too long to keep."""
    spans = [(start, end) for number, (start, _) in enumerate(parts) for _, end in parts[number:]]
    kept = [(start, end) for start, end in spans if config.evidence_fault(end - start, video_seconds) is None]
    return max((len(shown_seconds(span, config.check_fps, config.max_frames)) for span in kept), default=0)
