"""No tools: the answer in one turn from frames spread over the whole video.

What the five methods are measured against, in evaluation and as a baseline of training, and VideoBrain's base model
when it sorts questions (arXiv 2602.04094, 3.2).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from verl_video_tools.core.reasoning import split_thought
from verl_video_tools.methods import toolkit as vt
from verl_video_tools.video.resize import fit_box

_THOUGHT_TAGS = ("think", "thinking")


@dataclass(frozen=True, kw_only=True)
class Direct(vt.Method):
    """Frames, then one answer; the defaults are the base model's of VideoBrain."""

    name: ClassVar[str] = "direct"
    reward_components: ClassVar[tuple[str, ...]] = ("accuracy",)
    renamed_fields: ClassVar[Mapping[str, str]] = {"num_frames": "initial_frames"}
    thought_tag: ClassVar[str | None] = None
    recipe_budget: ClassVar[vt.RolloutLimits] = vt.RolloutLimits(prompt_tokens=8192, response_tokens=8192, images=128)
    oracle: ClassVar[str | None] = "verl_video_tools.methods.direct.oracle:DirectOracle"

    max_turns: int = 1
    """The answer's; there is nothing that a second turn could ask for."""
    initial_frames: int = 16
    """Frames shown, from the first of the video to the last (VideoBrain, 4.1)."""
    box: tuple[int, int] = (640, 360)
    """Width and height in pixels that frames are shrunk to fit, never enlarged (VideoBrain's code)."""

    def check_fields(self) -> None:
        vt.require(self, "max_turns", self.max_turns == 1, "1: without tools nothing follows the first turn")
        vt.require(self, "initial_frames", self.initial_frames >= 1, "at least 1")
        vt.require(self, "box", min(self.box) >= 1, "two sides of at least 1 pixel")
        vt.require(self, "compat", self.compat == "strict", "'strict': there is no published code to follow")

    # ------------------------------------------------------------------------------------------------ prompt and turns

    def plan_initial_frames(self, info: vt.VideoInfo, sample: vt.Sample, envelope: vt.PixelEnvelope) -> vt.FrameRequest:
        """`initial_frames` frames spread evenly, all of a shorter video."""
        return vt.spread_frames(info, self.initial_frames, fit_box(info.width, info.height, *self.box, envelope))

    def prompt(self, sample: vt.Sample, info: vt.VideoInfo, images: Sequence[vt.ImagePart]) -> list[vt.Message]:
        """The system prompt; then the question, and each frame after its number and time.

        Rows of some methods ask by frame numbers, those of others by seconds.
        """
        content: list[str | vt.ImagePart] = [sample.question.rstrip(), "\n"]
        for image in images:
            content += [f"\nframe {image.record.index} at {image.record.timestamp_seconds:.2f} s: ", image]
        system = vt.load_prompt(__package__, "prompt.txt", self.prompt_file, initial_frames=self.initial_frames)
        return [vt.Message("system", (system,)), vt.Message("user", tuple(content))]

    def parse(self, text: str) -> vt.ParsedTurn:
        """The last `<answer>` block after the thinking, or else all that stands there; nothing if that never ends."""
        thought, said = split_thought(text, _THOUGHT_TAGS)
        blocks = vt.find_blocks(said, "answer")
        is_cut = thought is None and said.startswith(tuple(f"<{tag}>" for tag in _THOUGHT_TAGS))
        words = "" if is_cut else said
        answer = blocks[-1].inner.strip() if blocks else words
        return vt.ParsedTurn(
            thought=thought,
            answer=answer or None,
            well_formed=bool(answer) and not is_cut and len(blocks) == 1 and blocks[0].end == len(said),
        )

    def tools(self, info: vt.VideoInfo) -> Mapping[str, vt.Tool]:
        """None."""
        return {}

    def observe(self, outcomes: Sequence[vt.ToolOutcome], turns_left: int) -> vt.Content:
        """Nothing: there are no calls to answer."""
        return ()

    # ---------------------------------------------------------------------------------------------------------- reward

    async def components(
        self, trajectory: vt.Trajectory, sample: vt.Sample, judge: vt.Judge | None
    ) -> dict[str, float]:
        """`accuracy` if the answer is right; a partly right one counts as wrong.

        Raises:
            JudgeError: the judge gave no verdict.
        """
        is_correct = await vt.grade_answer(trajectory.answer, sample, judge) is vt.AnswerLabel.CORRECT
        accuracy = self.accuracy_reward if is_correct else 0.0
        return {"accuracy": accuracy}
