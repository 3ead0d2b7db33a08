"""No tools: the answer in one turn from frames spread over the whole video.

What the five methods are measured against, in evaluation and as a baseline of training, and VideoBrain's base model
when it sorts questions (arXiv 2602.04094, 3.2).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from verl_video_tools.core.config import require
from verl_video_tools.core.grading import grade_answer
from verl_video_tools.core.prompt_files import load_prompt
from verl_video_tools.core.reasoning import split_thought
from verl_video_tools.core.types import (
    AnswerLabel,
    Content,
    FrameRequest,
    ImagePart,
    Judge,
    Message,
    Method,
    ParsedTurn,
    PixelEnvelope,
    RolloutLimits,
    Sample,
    Tool,
    ToolOutcome,
    Trajectory,
    VideoInfo,
)
from verl_video_tools.methods.toolkit.blocks import find_blocks
from verl_video_tools.video.resize import fit_box
from verl_video_tools.video.sampling import linspace_indices

_THOUGHT_TAGS = ("think", "thinking")


@dataclass(frozen=True, kw_only=True)
class Direct(Method):
    """One look, one answer; the defaults are the base model's of VideoBrain."""

    name: ClassVar[str] = "direct"
    reward_components: ClassVar[tuple[str, ...]] = ("accuracy",)
    renamed_fields: ClassVar[Mapping[str, str]] = {"num_frames": "initial_frames"}
    thought_tag: ClassVar[str | None] = None
    recipe_budget: ClassVar[RolloutLimits] = RolloutLimits(prompt_tokens=8192, response_tokens=8192, images=128)
    oracle: ClassVar[str | None] = "verl_video_tools.methods.direct.oracle:DirectOracle"

    max_turns: int = 1
    """The answer's; there is nothing that a second turn could look at."""
    initial_frames: int = 16
    """Frames shown, from the first of the video to the last (VideoBrain, 4.1)."""
    box: tuple[int, int] = (640, 360)
    """Width and height in pixels that frames are shrunk to fit, never enlarged (VideoBrain's code)."""

    def check_fields(self) -> None:
        require(self, "max_turns", self.max_turns == 1, "1: without tools nothing follows the first turn")
        require(self, "initial_frames", self.initial_frames >= 1, "at least 1")
        require(self, "box", min(self.box) >= 1, "two sides of at least 1 pixel")
        require(self, "compat", self.compat == "strict", "'strict': there is no published code to follow")

    # ------------------------------------------------------------------------------------------------ prompt and turns

    def plan_initial_frames(self, info: VideoInfo, sample: Sample, envelope: PixelEnvelope) -> FrameRequest:
        """`initial_frames` frames spread evenly, all of a shorter video."""
        width, height = fit_box(info.width, info.height, *self.box, envelope)
        return FrameRequest(
            width=width, height=height, indices=linspace_indices(0, info.num_frames - 1, self.initial_frames)
        )

    def prompt(self, sample: Sample, info: VideoInfo, images: Sequence[ImagePart]) -> list[Message]:
        """The system prompt; then the question, and each frame after its number and time.

        Rows of some methods ask by frame numbers, those of others by seconds.
        """
        content: list[str | ImagePart] = [sample.question.rstrip(), "\n"]
        for image in images:
            content += [f"\nframe {image.record.index} at {image.record.timestamp_seconds:.2f} s: ", image]
        system = load_prompt(__package__, "prompt.txt", self.prompt_file, initial_frames=self.initial_frames)
        return [Message("system", (system,)), Message("user", tuple(content))]

    def parse(self, text: str) -> ParsedTurn:
        """The last `<answer>` block after the thinking, or else all that stands there; nothing if that never ends."""
        thought, said = split_thought(text, _THOUGHT_TAGS)
        blocks = find_blocks(said, "answer")
        is_cut = thought is None and said.startswith(tuple(f"<{tag}>" for tag in _THOUGHT_TAGS))
        words = "" if is_cut else said
        answer = blocks[-1].inner.strip() if blocks else words
        return ParsedTurn(
            thought=thought,
            answer=answer or None,
            well_formed=bool(answer) and not is_cut and len(blocks) == 1 and blocks[0].end == len(said),
        )

    def tools(self, info: VideoInfo) -> Mapping[str, Tool]:
        """None."""
        return {}

    def observe(self, outcomes: Sequence[ToolOutcome], turns_left: int) -> Content:
        """Nothing: there are no calls to answer."""
        return ()

    # ---------------------------------------------------------------------------------------------------------- reward

    async def components(self, trajectory: Trajectory, sample: Sample, judge: Judge | None) -> dict[str, float]:
        """`accuracy` if the answer is right; a partly right one counts as wrong.

        Raises:
            JudgeError: the judge gave no verdict.
        """
        is_correct = await grade_answer(trajectory.answer, sample, judge) is AnswerLabel.CORRECT
        accuracy = self.accuracy_reward if is_correct else 0.0
        return {"accuracy": accuracy}
