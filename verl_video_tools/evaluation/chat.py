"""One question about a video to a served model, with the method's own loop, told while it goes on."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from PIL import Image, ImageDraw

from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.messages import ImagePart, Message, content_images
from verl_video_tools.core.types import CallRecord, FrameRecord, Method, Retriever, Sample, Trajectory, Turn
from verl_video_tools.rollout.chat_policy import ChatPolicy, PolicyConfig
from verl_video_tools.services.tool_model import ToolModelConfig
from verl_video_tools.services.tool_model.client import EndpointToolModel
from verl_video_tools.video import linspace_indices

CELL_PIXELS = 192
"""Longer side of a frame on a contact sheet at most."""
MAX_CELLS = 100
"""Of more frames so many are drawn, evenly spread, the first and the last among them."""
_LABEL_PIXELS = 16

_MOST_TIMES_TOLD = 8
_MOST_CHARACTERS_TOLD = 2000


async def ask(
    question: str,
    video: str,
    method: Method,
    policy: PolicyConfig,
    sheets: Path,
    tell: Callable[[str], None],
    *,
    seed: int | None = None,
    retriever: Retriever | None = None,
    tool_model: ToolModelConfig | None = None,
) -> Trajectory:
    """Ask, and tell each turn, its calls and what they showed as soon as they are there.

    Args:
        question: the whole text that the model reads, options included.
        video: path of the video file.
        policy: without a model's name, the first that the endpoint lists.
        sheets: what frames of each turn are drawn in: `<sheets>_0.jpg` has the initial ones, and so on. Its folder is
            made.
        tell: called with each line of the account.
        retriever: for methods that find frames by text.
        tool_model: for methods whose tools ask a model.

    Returns:
        The rollout. One that failed has flags, and says why in `error`.

    Raises:
        UsageError: the method needs a retriever or a tool model, and there is none; or a sheet cannot be written.
        EndpointError: the endpoint cannot be reached, refuses an option of sampling, or lists no model.
    """
    if method.searches and retriever is None:
        raise UsageError(f"{method.name} searches for frames by text; name its encoder: --retrieval model=DIR")
    if method.asks_model and tool_model is None:
        raise UsageError(f"tools of {method.name} ask a model; name its endpoint: --tool-model-base-url URL")
    account = _Account(sheets, tell)
    sample = Sample(question=question, ground_truth="", video_path=video, question_type="open")
    async with AsyncExitStack() as stack:
        lister = await stack.enter_async_context(ChatPolicy(policy))
        if policy.model is None:
            policy = replace(policy, model=(await lister.client.served_models())[0])
        chat = await stack.enter_async_context(ChatPolicy(policy))
        await chat.check_usable()
        asked = None if tool_model is None else await stack.enter_async_context(EndpointToolModel(tool_model))
        run = method.for_session(0, 1, validate=True)
        rollout = await chat.rollout(run, sample, seed=seed, retriever=retriever, tool_model=asked, watch=account.shown)
        if rollout.trajectory.flags:
            await chat.check_usable()
    account.end(rollout.trajectory)
    return rollout.trajectory


@dataclass
class _Account:
    """What is told of a rollout."""

    sheets: Path
    tell: Callable[[str], None]
    _turns_told: int = field(default=0, init=False)

    def shown(self, trajectory: Trajectory, messages: Sequence[Message]) -> None:
        """The model is about to read these messages, the newest ones of the rollout."""
        images = [image for message in messages for image in content_images(message.content)]
        sheet = ""
        if images:
            path = self.sheets.with_name(f"{self.sheets.name}_{len(trajectory.turns)}.jpg")
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                contact_sheet(images).save(path)
            except OSError as error:
                raise UsageError(f"cannot write {path}: {error.strerror or error}; give another --out") from error
            sheet = f"    {path}"
        if not trajectory.turns:
            self.tell(f"initial frames: {_frames([image.record for image in images])}{sheet}")
        else:
            self._tell_turns(trajectory)
            if sheet:
                self.tell(f"  shown:{sheet}")

    def end(self, trajectory: Trajectory) -> None:
        """What is left to tell of a finished rollout."""
        self._tell_turns(trajectory)
        if trajectory.answer is not None:
            self.tell(f"answer: {plain(trajectory.answer)}")
        elif not trajectory.flags:
            self.tell(f"no answer; the rollout ended with {trajectory.stop_reason}")

    def _tell_turns(self, trajectory: Trajectory) -> None:
        for number, turn in enumerate(trajectory.turns[self._turns_told :], self._turns_told + 1):
            self.tell(f"turn {number}: {plain(_thought(turn))}")
            for call in turn.calls:
                self.tell(f"  {plain(call.name)} {plain(json.dumps(call.arguments, ensure_ascii=False))}")
                self.tell(f"    {_result(call)}")
        self._turns_told = len(trajectory.turns)


def plain(text: str) -> str:
    """On one line, cut where it is very long, and without characters that would steer a terminal."""
    line = "".join(letter for letter in " ".join(text.split()) if letter.isprintable())
    return line if len(line) <= _MOST_CHARACTERS_TOLD else f"{line[:_MOST_CHARACTERS_TOLD]} ..."


def _thought(turn: Turn) -> str:
    """Why the model does what it does; the whole turn where it cannot be told apart and neither calls nor answers."""
    said = turn.thought or turn.reasoning
    if said is None and not turn.calls and turn.answer is None:
        return turn.text
    return said or ""


def _result(call: CallRecord) -> str:
    if call.error is not None:
        return f"refused: {plain(str(call.error))}"
    parts = [_frames(call.frames)] if call.frames else []
    if call.text is not None:
        parts.append(plain(call.text))
    return "; ".join(parts) or "done"


def _frames(records: Sequence[FrameRecord]) -> str:
    """Their number, numbers in the video and times."""
    frames = [tile for record in records for tile in record.single_frames]
    if not frames:
        return "none"
    if len(frames) == 1:
        told = f"1 frame: {frames[0].index} ({frames[0].timestamp_seconds:.2f} s)"
    elif len(frames) <= _MOST_TIMES_TOLD:
        told = f"{len(frames)} frames: " + ", ".join(
            f"{each.index} ({each.timestamp_seconds:.2f} s)" for each in frames
        )
    else:
        first, last = frames[0], frames[-1]
        told = (
            f"{len(frames)} frames from {first.index} ({first.timestamp_seconds:.2f} s) "
            f"to {last.index} ({last.timestamp_seconds:.2f} s)"
        )
    regions = {record.region for record in records if record.region is not None}
    return told + "".join(f", pixels {list(region)}" for region in sorted(regions))


def contact_sheet(images: Sequence[ImagePart]) -> Image.Image:
    """Frames that were shown together as one RGB picture, row by row: each small, with its time below it.

    Args:
        images: at least one; each with its pixels.
    """
    drawn = [images[index] for index in linspace_indices(0, len(images) - 1, min(len(images), MAX_CELLS))]
    cells = [_small(image) for image in drawn]
    columns = math.ceil(math.sqrt(len(cells)))
    width, height = max(cell.width for cell in cells), max(cell.height for cell in cells) + _LABEL_PIXELS
    sheet = Image.new("RGB", (columns * width, math.ceil(len(cells) / columns) * height), "white")
    draw = ImageDraw.Draw(sheet)
    for number, (image, cell) in enumerate(zip(drawn, cells, strict=True)):
        left, top = number % columns * width, number // columns * height
        sheet.paste(cell, (left, top))
        draw.text((left + 2, top + height - _LABEL_PIXELS + 2), f"{image.record.timestamp_seconds:.1f} s", fill="black")
    return sheet


def _small(image: ImagePart) -> Image.Image:
    assert image.pixels_HWC is not None, "what a model is shown has been decoded"
    picture = Image.fromarray(image.pixels_HWC)
    picture.thumbnail((CELL_PIXELS, CELL_PIXELS))
    return picture
