"""No tools: the answer in one turn from frames spread over the whole video.

What the five methods are measured against, in evaluation and as a baseline of training, and VideoBrain's base model
when it sorts questions (arXiv 2602.04094, 3.2).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Literal

import numpy as np

from verl_video_tools.core.reasoning import split_thought
from verl_video_tools.methods import toolkit as vt
from verl_video_tools.methods.toolkit.frames import PATCH_FACTOR, frame_size
from verl_video_tools.methods.toolkit.oracle import Script, ScriptedOracle
from verl_video_tools.synthetic.questions import Question
from verl_video_tools.synthetic.world import VideoSpec
from verl_video_tools.video.resize import fit_box
from verl_video_tools.video.sampling import linspace_indices

_THOUGHT_TAGS = ("think", "thinking")

# The rate, bounds and rounding of a video input are those of `qwen_vl_utils` (Apache-2.0); the code is ours.
FRAMES_PER_SECOND = 2.0
"""Frame rate of a video input. Qwen2.5-VL and Qwen3-VL were both evaluated with it."""
FRAMES_PER_PATCH = 2
"""Number of frames that one token covers."""
MIN_FRAMES = 4
MIN_TOKENS_PER_PATCH, MAX_TOKENS_PER_PATCH = 128, 768
"""Tokens of a pair of frames. The bound of the whole video comes before the lower one."""


@dataclass(frozen=True, kw_only=True)
class Direct(vt.Method):
    """Frames, then one answer. The defaults are those of VideoBrain's base model."""

    name: ClassVar[str] = "direct"
    reward_components: ClassVar[tuple[str, ...]] = ("accuracy",)
    thought_tag: ClassVar[str | None] = None
    recipe_budget: ClassVar[vt.RolloutLimits] = vt.RolloutLimits(prompt_tokens=8192, response_tokens=8192, images=128)
    oracle: ClassVar[str | None] = "verl_video_tools.methods.direct.method:DirectOracle"

    max_turns: int = 1
    """One turn, which answers."""
    initial_frames: int = 16
    """Number of frames, from the first of the video to the last (VideoBrain, 4.1). 0 shows no frames, to measure what a
    model knows without the video."""
    box: tuple[int, int] = (640, 360)
    """Width and height in pixels; frames are shrunk to fit into them, and never enlarged (VideoBrain's code)."""
    answering: Literal["short", "cot"] = "short"
    """What the packaged prompt asks for: `short`, an answer as short as possible, or `cot`, thoughts before the answer,
    as FrameThinker's paper asks its baselines (B.3)."""

    frames_as: Literal["images", "video"] = "images"
    """`video`: the model's own video input, in evaluation behind a vLLM; the next two fields bound it, and
    `initial_frames` and `box` do not count. Defaults as Qwen2.5-VL was evaluated (arXiv 2502.13923, 3.3.4)."""
    max_video_frames: int = 768
    """Of a video input, two per second; those of a longer video are spread over all of it. Qwen3-VL: 2048."""
    max_video_tokens: int = 24576
    """Visual tokens of a video input, whose frames are made small enough. Qwen3-VL: 229,376."""

    def check_fields(self) -> None:
        vt.require(self, "max_turns", self.max_turns == 1, "1: without tools nothing follows the first turn")
        vt.require_at_least(self, 0, "initial_frames")
        vt.require(self, "box", min(self.box) >= 1, "two sides of at least 1 pixel")
        vt.require_at_least(self, 2, "max_video_frames", "max_video_tokens")
        vt.require(self, "compat", self.compat == "strict", "'strict': there is no published code to follow")

    @property
    def label(self) -> str:
        parts = [self.name]
        if self.answering == "cot":
            parts.append("CoT")
        if self.initial_frames_as_video:
            parts.append("video input")
        if not self._shows_any:
            parts.append("no visual")
        return ", ".join(parts)

    @property
    def initial_frames_as_video(self) -> bool:
        return self.frames_as == "video" and self._shows_any

    @property
    def _shows_any(self) -> bool:
        return self.initial_frames > 0

    # ------------------------------------------------------------------------------------------------ prompt and turns

    def plan_initial_frames(self, info: vt.VideoInfo, sample: vt.Sample, envelope: vt.PixelEnvelope) -> vt.FrameRequest:
        """`initial_frames` frames spread evenly, all of a shorter video; or those of the video input."""
        if self.initial_frames_as_video:
            return sampled_video(info, self.max_video_frames, self.max_video_tokens, envelope)
        if not self._shows_any:
            return vt.FrameRequest(1, 1, indices=())
        return vt.spread_frames(info, self.initial_frames, fit_box(info.width, info.height, *self.box, envelope))

    def prompt(self, sample: vt.Sample, info: vt.VideoInfo, images: Sequence[vt.ImagePart]) -> list[vt.Message]:
        """The system prompt; then the question, and each frame after its number and time, or the frames of a video.

        Rows of some methods ask by frame numbers, those of others by seconds.
        """
        if self.initial_frames_as_video:
            return self._messages("video", (sample.question.rstrip(), "\n", "\n", *images))
        frames = _labelled(images, "\nframe {0.index} at {0.timestamp_seconds:.2f} s: ")
        return self._messages("frames" if self._shows_any else "nothing", (sample.question.rstrip(), "\n", *frames))

    @property
    def asks_about_several_videos(self) -> bool:
        return self._shows_any and not self.initial_frames_as_video

    def plan_videos(
        self, infos: Sequence[vt.VideoInfo], sample: vt.Sample, envelope: vt.PixelEnvelope
    ) -> list[vt.FrameRequest]:
        """`initial_frames` shared out evenly, one of each video at least."""
        share = replace(self, initial_frames=max(1, self.initial_frames // len(infos)))
        requests = (share.plan_initial_frames(info, sample, envelope) for info in infos)
        return [replace(request, video=number) for number, request in enumerate(requests)]

    def videos_prompt(
        self, sample: vt.Sample, infos: Sequence[vt.VideoInfo], images: Sequence[vt.ImagePart]
    ) -> list[vt.Message]:
        """As `prompt`, each frame also after the number of its video, from 1."""
        frames = _labelled(images, "\nvideo {number}, frame {0.index} at {0.timestamp_seconds:.2f} s: ")
        return self._messages("videos", (sample.question.rstrip(), "\n", *frames))

    def picture_prompt(self, question: str, images: Sequence[vt.ImagePart]) -> list[vt.Message]:
        """The system prompt; then the question, and each image after its number, from 1."""
        content: list[str | vt.ImagePart] = [question.rstrip()]
        for number, image in enumerate(images, start=1):
            content += ["\n\n" if number == 1 else "\n", f"image {number}: ", image]
        return self._messages("images" if images else "text", tuple(content))

    def _messages(self, visuals: str, user: vt.Content) -> list[vt.Message]:
        """What is seen and how to answer, or what the user's file says; then the user's message."""
        names = [f"prompt_{visuals}.txt", f"prompt_{self.answering}.txt"] if self.prompt_file is None else [""]
        load = partial(vt.load_prompt, __package__, initial_frames=self.initial_frames)
        system = "\n\n".join(load(name, self.prompt_file) for name in names)
        return [vt.Message("system", (system,)), vt.Message("user", user)]

    def parse(self, text: str) -> vt.ParsedTurn:
        """The last `<answer>` block after the thinking, or else all that stands there; nothing if that never ends."""
        thought, reply = split_thought(text, _THOUGHT_TAGS)
        blocks = vt.find_blocks(reply, "answer")
        is_cut = thought is None and reply.startswith(tuple(f"<{tag}>" for tag in _THOUGHT_TAGS))
        words = "" if is_cut else reply
        answer = blocks[-1].inner.strip() if blocks else words
        return vt.ParsedTurn(
            thought=thought,
            answer=answer or None,
            well_formed=bool(answer) and not is_cut and len(blocks) == 1 and blocks[0].end == len(reply),
            answer_is_open=not blocks and len(answer) > 1,  # a letter is all that a choice asks for
        )

    def tools(self, info: vt.VideoInfo) -> Mapping[str, vt.Tool]:
        """None."""
        return {}

    def observe(self, outcomes: Sequence[vt.ToolOutcome], turns_left: int) -> vt.Content:
        """Nothing: there are no calls to answer."""
        return ()

    def check_gradable(self, sample: vt.Sample, judge: object | None) -> None:
        """As every method's.

        Raises:
            UsageError: also where there are no frames, or a video input, which are for evaluation alone.
        """
        super().check_gradable(sample, judge)
        if self.initial_frames_as_video or not self._shows_any:
            raise vt.UsageError(
                "initial_frames=0 and frames_as=video are for `vvt eval`; training shows frames, as images"
            )

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


def _labelled(images: Sequence[vt.ImagePart], label: str) -> vt.Content:
    """Each frame after its label: a format of its record, and of the `number` of its video, from 1."""
    return vt.joined((label.format(image.record, number=image.record.video + 1), image) for image in images)


def sampled_video(info: vt.VideoInfo, max_frames: int, max_tokens: int, envelope: vt.PixelEnvelope) -> vt.FrameRequest:
    """An even number of frames spread evenly over the time of the video, from the first to the last; all of a shorter
    one.

    Args:
        max_frames: where two per second make more; they are at least 4.
        max_tokens: of all frames together.
    """
    count = min(max(info.duration_seconds * FRAMES_PER_SECOND, MIN_FRAMES), max_frames, info.num_frames)
    num_frames = max(1, int(count) // FRAMES_PER_PATCH * FRAMES_PER_PATCH)
    factor = PATCH_FACTOR if envelope.factor == 1 else envelope.factor
    tokens_per_patch = min(MAX_TOKENS_PER_PATCH, max_tokens * FRAMES_PER_PATCH // max(num_frames, FRAMES_PER_PATCH))
    max_pixels = max(1, tokens_per_patch) * factor**2
    size = frame_size(info, MIN_TOKENS_PER_PATCH * factor**2, max_pixels, envelope)
    if info.uneven_last_seconds is not None:  # a variable rate, at which even numbers are no even times
        return vt.FrameRequest(*size, seconds=tuple(np.linspace(0.0, info.last_seconds, num_frames).tolist()))
    indices = np.linspace(0, info.num_frames - 1, num_frames).round().astype(int)
    return vt.FrameRequest(*size, indices=tuple(indices.tolist()))


# ------------------------------------------------------------------------------------ oracle of the synthetic world


@dataclass(frozen=True, kw_only=True)
class DirectOracle(ScriptedOracle):
    """Answers by the frame that the question names, if the method shows it, and guesses otherwise."""

    method: Direct

    def script(self, spec: VideoSpec, question: Question) -> Script:
        frame = question.evidence[0][0]
        initial_frames = linspace_indices(0, spec.num_frames - 1, self.method.initial_frames)
        shown = [frame] if question.kind == "direct" and frame in initial_frames else []
        return Script("direct", (self._conclusion(self._rng(spec, question), spec, question, shown),))
