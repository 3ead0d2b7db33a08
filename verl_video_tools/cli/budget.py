"""`vvt budget`: what rollouts take on videos of a kind, before there are any."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated

import typer

from verl_video_tools.cli.list_names import names_of
from verl_video_tools.cli.options import Settings, command
from verl_video_tools.core.errors import UsageError

if TYPE_CHECKING:
    from verl_video_tools.rollout.cost import CostEstimate

_OPTION = "He sits down at the table and reads a letter."
_QUESTION = "\n".join(
    [
        "What does the man in the blue shirt do after he has closed the door?",
        *(f"{letter}. {_OPTION}" for letter in "ABCD"),
    ]
)


@command
class Budget:
    """Estimate a rollout's tokens, and the limits that it needs."""

    method: Annotated[str, typer.Option(help="Name of the method.", autocompletion=names_of("methods"))]
    processor: Annotated[
        str, typer.Option(metavar="MODEL_DIR", help="Folder or name of the model whose processor counts tokens.")
    ]
    duration: Annotated[float, typer.Option(min=0.1, metavar="SECONDS", help="Of the video.")] = 3600.0
    size: Annotated[str, typer.Option(metavar="WIDTHxHEIGHT", help="Of the video, in pixels.")] = "1920x1080"
    fps: Annotated[float, typer.Option(min=0.1, help="Frames per second of the video.")] = 30.0
    turn_tokens: Annotated[int, typer.Option(min=1, help="Tokens that the policy writes per turn.")] = 512
    question: Annotated[
        str, typer.Option(help="Text of the question, with its options.", show_default="one with four options")
    ] = _QUESTION
    min_pixels: Annotated[int | None, typer.Option(help="The run's data.mm_processor_kwargs.min_pixels.")] = None
    max_pixels: Annotated[int | None, typer.Option(help="The run's data.mm_processor_kwargs.max_pixels.")] = None
    assignments: Settings = None

    def run(self) -> None:
        from verl_video_tools.core.assignments import read_assignments
        from verl_video_tools.core.output import hold_output
        from verl_video_tools.core.types import VideoInfo
        from verl_video_tools.methods import get_method
        from verl_video_tools.rollout.cost import estimate_cost
        from verl_video_tools.verl_plugin.model_tokens import load_model_tokens

        width, height = _read_size(self.size)
        if not math.isfinite(self.duration * self.fps):
            raise UsageError(
                f"--duration {self.duration:g}, --fps {self.fps:g}: a video's are finite numbers, such as 3600 and 30"
            )
        info = VideoInfo(self.duration, max(1, round(self.duration * self.fps)), self.fps, width, height)
        with hold_output():
            model = load_model_tokens(self.processor, {"min_pixels": self.min_pixels, "max_pixels": self.max_pixels})
            settings = read_assignments(self.assignments or [])
            configured = get_method(self.method, **settings)
            estimate = estimate_cost(configured, info, model, question=self.question, turn_tokens=self.turn_tokens)
        print(as_text(estimate))


def as_text(estimate: CostEstimate) -> str:
    """Three small tables as plain text."""
    looks = {"initial frames": estimate.initial_frames, "a call, at most": estimate.call}
    lines = [f"{'':<22}{'frames':>10}{'size':>12}{'per frame':>12}{'tokens':>12}"]
    for name, look in looks.items():
        if look is not None:
            size = f"{look.width}x{look.height}"
            lines.append(f"{name:<22}{look.num_frames:>10,}{size:>12}{look.frame_tokens:>12,}{look.tokens:>12,}")
    needed, reserved = estimate.needed, estimate.reserved
    rows = {
        "max_prompt_length": (needed.prompt_tokens, reserved.prompt_tokens),
        "max_response_length": (needed.response_tokens, reserved.response_tokens),
        "max_model_len": tuple(limits.prompt_tokens + limits.response_tokens for limits in (needed, reserved)),
        "images": (needed.images, reserved.images),
    }
    turns = f"{estimate.max_turns} turns"
    lines += ["", f"{'':<22}{turns:>10}{'reserved':>12}    tokens written per turn: {estimate.turn_tokens:,}"]
    for name, (own, recipe) in rows.items():
        mark = f"    exceeded by {own - recipe:,}" if own > recipe else ""
        lines.append(f"{name:<22}{own:>10,}{recipe:>12,}{mark}")
    if estimate.call is not None:
        num_calls = estimate.calls_that_fit(reserved)
        lines += ["", f"within what the recipe reserves: {num_calls} of {estimate.max_turns - 1} such calls"]
    return "\n".join(lines)


def _read_size(text: str) -> tuple[int, int]:
    width, _, height = text.partition("x")
    if not (width.isdecimal() and height.isdecimal() and int(width) > 0 and int(height) > 0):
        raise UsageError(f"--size {text!r}: write WIDTHxHEIGHT in pixels, such as 1920x1080")
    return int(width), int(height)
