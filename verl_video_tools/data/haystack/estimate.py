"""What the steps that ask models cost at most, told before any is asked."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from verl_video_tools.data.haystack.config import HaystackConfig
from verl_video_tools.data.haystack.log import Record
from verl_video_tools.data.haystack.models import instructions
from verl_video_tools.data.haystack.pipeline import shown_seconds
from verl_video_tools.video import fit_pixels

PIXELS_PER_TOKEN = 28 * 28
"""A visual token of the Qwen2-VL and Qwen2.5-VL models."""
CHARACTERS_PER_TOKEN = 4.0
"""Of English text, roughly."""
CAPTION_TOKENS = 200
QUESTION_TOKENS = 70
VERDICT_TOKENS = 30
LABEL_TOKENS = 10
"""A frame's time, and what the chat template puts around the picture."""


@dataclass(frozen=True)
class StepCost:
    """One step: what it takes at most, whatever was already made."""

    step: str
    requests: int = 0
    pictures: int = 0
    input_tokens: int = 0
    output_tokens: int = 0


def estimate(scenes: Mapping[str, Record], config: HaystackConfig) -> list[StepCost]:
    """An upper bound of each step that asks a model: every group of captions gives all questions that it may, each
    about one part, and all reach the last check."""
    captions = _Sum("captions", instructions("caption.txt"))
    questions = _Sum("questions", instructions("questions.txt", num_questions=config.questions_per_request))
    text = _Sum("text checks", instructions("text_check.txt"))
    sight = _Sum("visual checks", instructions("visual_check.txt"))
    for scene in scenes.values():
        parts = [(float(start), float(end)) for start, end in scene.get("parts", [])]
        if not parts:
            continue
        width, height = fit_pixels(scene["width"], scene["height"], config.frame_pixels)
        frame_tokens = math.ceil(width * height / PIXELS_PER_TOKEN) + LABEL_TOKENS
        for part in parts:
            frames = len(shown_seconds(part, config.caption_fps, config.max_frames))
            captions.add(1, frames, frames * frame_tokens, CAPTION_TOKENS)
        most = max(len(shown_seconds(part, config.check_fps, config.max_frames)) for part in parts)
        for first in range(0, len(parts), config.captions_per_request):
            read = CAPTION_TOKENS * len(parts[first : first + config.captions_per_request])
            count = config.questions_per_request
            questions.add(1, 0, read, count * QUESTION_TOKENS)
            text.add(count, 0, read + QUESTION_TOKENS, VERDICT_TOKENS)
            sight.add(count, most, most * frame_tokens + QUESTION_TOKENS, VERDICT_TOKENS)
    return [step.cost() for step in (captions, questions, text, sight)]


class _Sum:
    def __init__(self, step: str, prompt: str) -> None:
        self._step = step
        self._prompt_tokens = math.ceil(len(prompt) / CHARACTERS_PER_TOKEN)
        self._requests = self._pictures = self._input = self._output = 0

    def add(self, requests: int, pictures: int, input_tokens: int, output_tokens: int) -> None:
        """Requests with so many pictures and tokens each, beside the prompt."""
        self._requests += requests
        self._pictures += requests * pictures
        self._input += requests * (input_tokens + self._prompt_tokens)
        self._output += requests * output_tokens

    def cost(self) -> StepCost:
        return StepCost(self._step, self._requests, self._pictures, self._input, self._output)
