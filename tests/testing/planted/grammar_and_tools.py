"""Faults of grammars, tools and observations."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

from tests.testing.planted import caught_by
from verl_video_tools.methods import toolkit as vt
from verl_video_tools.methods.framemind import FrameMind
from verl_video_tools.methods.framemind.method import FrameAt, VideoClip
from verl_video_tools.methods.framethinker import ChooseFrames, FrameThinker
from verl_video_tools.methods.longvt import CropVideo, LongVT
from verl_video_tools.methods.videobrain import VideoBrain
from verl_video_tools.methods.videozoomer import VideoZoomer
from verl_video_tools.methods.videozoomer.method import VideoZoom
from verl_video_tools.video import Video


@caught_by("observe_answers_every_outcome")
@dataclass(frozen=True, kw_only=True)
class FailureNamesTheFile(FrameMind):
    """The model reads why a file could not be opened, and so its name."""

    name: ClassVar[str] = "planted"

    def observe(self, outcomes: Sequence[vt.ToolOutcome], turns_left: int) -> vt.Content:
        errors = [f"{each.record.error}\n" for each in outcomes if each.record.error is not None]
        return (*errors, *super().observe(outcomes, turns_left))


@dataclass(frozen=True, kw_only=True)
class Knowing(VideoZoom):
    async def plan(self, arguments: Mapping[str, Any], context: vt.ToolContext) -> vt.ToolPlan:
        plan = await super().plan(arguments, context)
        where = context.sample.video_segment_seconds
        assert plan.frames is not None
        return plan if where is None else replace(plan, frames=replace(plan.frames, seconds=where))


@caught_by("plans_ignore_the_truth")
@dataclass(frozen=True, kw_only=True)
class LooksWhereTheTruthIs(VideoZoomer):
    """A tool that shows where the row says that the answer is, whatever the call asks for."""

    name: ClassVar[str] = "planted"

    def tools(self, info: vt.VideoInfo) -> Mapping[str, vt.Tool]:
        return {Knowing.name: Knowing(max_frames=self.call_frames, max_pixels=self.max_pixels)}


@caught_by("example_turns_work")
@dataclass(frozen=True, kw_only=True)
class NeverGoesOn(LongVT):
    """A turn that calls is taken for the last one: no call is carried out."""

    name: ClassVar[str] = "planted"

    def continues_after(self, parsed: vt.ParsedTurn) -> bool:
        return parsed.summary is not None


@caught_by("observe_answers_every_outcome")
@dataclass(frozen=True, kw_only=True)
class ObserveForgetsFailures(FrameMind):
    """`observe` looks for the result of a call that has none."""

    name: ClassVar[str] = "planted"

    def observe(self, outcomes: Sequence[vt.ToolOutcome], turns_left: int) -> vt.Content:
        where = "".join(f"at {outcome.record.result['t']}: " for outcome in outcomes if "t" in outcome.record.arguments)
        for outcome in outcomes:
            assert outcome.record.error is None or outcome.record.error.code != "deadline"
        return (where, *super().observe(outcomes, turns_left))


@caught_by("observations_show_what_is_recorded")
@dataclass(frozen=True, kw_only=True)
class ObserveLosesAFrame(VideoZoomer):
    """The observation leaves the last frame of a call out; the record has it."""

    name: ClassVar[str] = "planted"

    def observe(self, outcomes: Sequence[vt.ToolOutcome], turns_left: int) -> vt.Content:
        return super().observe([replace(each, images=each.images[:-1]) for each in outcomes], turns_left)


@dataclass(frozen=True, kw_only=True)
class Sized(VideoZoom):
    async def plan(self, arguments: Mapping[str, Any], context: vt.ToolContext) -> vt.ToolPlan:
        plan = await super().plan(arguments, context)
        assert plan.frames is not None
        return replace(plan, frames=replace(plan.frames, width=100, height=100))

    def most_expensive_call(self, info: vt.VideoInfo, envelope: vt.PixelEnvelope) -> vt.FrameRequest:
        return replace(super().most_expensive_call(info, envelope), width=100, height=100)


@caught_by("call_frames_are_valid")
@dataclass(frozen=True, kw_only=True)
class OddSizes(VideoZoomer):
    """Frames of a call at a size of its own: the processor resizes them."""

    name: ClassVar[str] = "planted"

    def tools(self, info: vt.VideoInfo) -> Mapping[str, vt.Tool]:
        return {Sized.name: Sized(max_frames=self.call_frames, max_pixels=self.max_pixels)}


@caught_by("parse_accepts_any_text")
@dataclass(frozen=True, kw_only=True)
class ParseRaises(LongVT):
    """`json.loads` on what a policy wrote."""

    name: ClassVar[str] = "planted"

    def parse(self, text: str) -> vt.ParsedTurn:
        for block in vt.find_blocks(text, "tool_call"):
            json.loads(block.inner)
        return super().parse(text)


_SEEN: set[str] = set()


@caught_by("parse_is_stateless")
@dataclass(frozen=True, kw_only=True)
class ParseRemembers(FrameMind):
    """A call that was made once is not read again, in whatever rollout."""

    name: ClassVar[str] = "planted"

    def parse(self, text: str) -> vt.ParsedTurn:
        parsed = super().parse(text)
        if text in _SEEN:
            return vt.ParsedTurn(thought=parsed.thought)
        _SEEN.add(text)
        return parsed


_ZOOM = re.compile(r"<video_zoom>.*?</video_zoom>", re.DOTALL)


@caught_by("parse_takes_linear_time")
@dataclass(frozen=True, kw_only=True)
class QuadraticParse(VideoZoomer):
    """A regular expression that starts anew at every opening tag."""

    name: ClassVar[str] = "planted"

    def parse(self, text: str) -> vt.ParsedTurn:
        _ZOOM.findall(text)
        return super().parse(text)


@dataclass(frozen=True, kw_only=True)
class Swapping(VideoClip):
    async def plan(self, arguments: Mapping[str, Any], context: vt.ToolContext) -> vt.ToolPlan:
        start, end = arguments.get("t_start"), arguments.get("t_end")
        first, second = vt.finite_number(start, read_text=True), vt.finite_number(end, read_text=True)
        if first is not None and second is not None and second < first:
            start, end = end, start
        return await super().plan({**arguments, "t_start": start, "t_end": end}, context)


@caught_by("call_frames_lie_in_the_requested_span")
@dataclass(frozen=True, kw_only=True)
class ReversedIsSwapped(FrameMind):
    """A reversed segment is turned round, and the tool still says that it refuses one."""

    name: ClassVar[str] = "planted"

    def tools(self, info: vt.VideoInfo) -> Mapping[str, vt.Tool]:
        clip = self.video_clip()
        return {
            **super().tools(info),
            clip.name: Swapping(**{own.name: getattr(clip, own.name) for own in fields(clip)}),
        }


@caught_by("stop_strings_end_a_call")
@dataclass(frozen=True, kw_only=True)
class StopInsideTheCall(LongVT):
    """A stop string that cuts every call before its end."""

    name: ClassVar[str] = "planted"

    stop: ClassVar[tuple[str, ...]] = ("}",)


@dataclass(frozen=True, kw_only=True)
class Telling(VideoZoom):
    async def plan(self, arguments: Mapping[str, Any], context: vt.ToolContext) -> vt.ToolPlan:
        plan = await super().plan(arguments, context)
        return replace(plan, text="Shots begin in this segment.")


@caught_by("observations_show_what_is_recorded")
@dataclass(frozen=True, kw_only=True)
class TextLeftOut(VideoZoomer):
    """A tool tells something beside its frames, and `observe` shows the frames alone."""

    name: ClassVar[str] = "planted"

    def tools(self, info: vt.VideoInfo) -> Mapping[str, vt.Tool]:
        return {Telling.name: Telling(max_frames=self.call_frames, max_pixels=self.max_pixels)}

    def observe(self, outcomes: Sequence[vt.ToolOutcome], turns_left: int) -> vt.Content:
        wordless = [replace(each, record=replace(each.record, text=None)) for each in outcomes]
        return super().observe(wordless, turns_left)


@dataclass(frozen=True, kw_only=True)
class Hasty(CropVideo):
    async def plan(self, arguments: Mapping[str, Any], context: vt.ToolContext) -> vt.ToolPlan:
        plan = await super().plan(arguments, context)
        assert plan.frames is not None
        last = context.info.num_frames - 1
        indices = tuple(min(round(seconds * 30), last) for seconds in plan.frames.seconds or ())
        return replace(plan, frames=replace(plan.frames, seconds=None, indices=indices))


@caught_by("call_frames_lie_in_the_requested_span")
@dataclass(frozen=True, kw_only=True)
class ThirtyFramesASecond(LongVT):
    """A tool that takes every video to have 30 frames a second."""

    name: ClassVar[str] = "planted"

    def tools(self, info: vt.VideoInfo) -> Mapping[str, vt.Tool]:
        (crop,) = super().tools(info).values()
        assert isinstance(crop, CropVideo)
        return {crop.name: Hasty(**{own.name: getattr(crop, own.name) for own in fields(crop)})}


@dataclass(frozen=True, kw_only=True)
class Decoding(FrameAt):
    async def plan(self, arguments: Mapping[str, Any], context: vt.ToolContext) -> vt.ToolPlan:
        plan = await super().plan(arguments, context)
        brightness = float(Video(context.sample.video_path).frames_at([arguments["t"]]).frames_THWC.mean())
        return vt.ToolPlan(frames=plan.frames, result={**plan.result, "brightness": brightness})


@caught_by("plans_open_no_video")
@dataclass(frozen=True, kw_only=True)
class ToolDecodes(FrameMind):
    """A tool that decodes while it plans: budgets are asked too late."""

    name: ClassVar[str] = "planted"

    def tools(self, info: vt.VideoInfo) -> Mapping[str, vt.Tool]:
        made = super().tools(info)
        frame_at = made[FrameAt.name]
        assert isinstance(frame_at, FrameAt)
        return {**made, FrameAt.name: Decoding(**{own.name: getattr(frame_at, own.name) for own in fields(frame_at)})}


@dataclass(frozen=True, kw_only=True)
class Leaving(ChooseFrames):
    async def plan(self, arguments: Mapping[str, Any], context: vt.ToolContext) -> vt.ToolPlan:
        plan = await super().plan(arguments, context)
        assert plan.frames is not None and plan.frames.indices is not None
        indices = (*plan.frames.indices[:-1], int(arguments["end_frame"]))
        return replace(plan, frames=replace(plan.frames, indices=indices))


@caught_by("call_frames_are_valid")
@dataclass(frozen=True, kw_only=True)
class ToolLeavesTheVideo(FrameThinker):
    """A tool that shows a frame after the end it was given, also after that of the video."""

    name: ClassVar[str] = "planted"

    def tools(self, info: vt.VideoInfo) -> Mapping[str, vt.Tool]:
        made = super().tools(info)
        choose = made[ChooseFrames.name]
        assert isinstance(choose, ChooseFrames)
        return {**made, choose.name: Leaving(**{own.name: getattr(choose, own.name) for own in fields(choose)})}


@dataclass(frozen=True, kw_only=True)
class Trusting(CropVideo):
    async def plan(self, arguments: Mapping[str, Any], context: vt.ToolContext) -> vt.ToolPlan:
        if arguments["end_time"] == arguments["start_time"]:
            raise vt.CallRejected(vt.CallErrorCode.REVERSED_SEGMENT, "the segment is empty")
        return await super().plan(arguments, context)


@caught_by("bad_calls_are_rejected")
@dataclass(frozen=True, kw_only=True)
class ToolTrustsArguments(LongVT):
    """A tool that takes an argument for granted."""

    name: ClassVar[str] = "planted"

    def tools(self, info: vt.VideoInfo) -> Mapping[str, vt.Tool]:
        (crop,) = super().tools(info).values()
        assert isinstance(crop, CropVideo)
        return {crop.name: Trusting(**{own.name: getattr(crop, own.name) for own in fields(crop)})}


_UNIFORM, _CLIP = VideoBrain.tool_descriptions


@caught_by("tool_descriptions_match")
@dataclass(frozen=True, kw_only=True)
class UndescribedArgument(VideoBrain):
    """A description that says that a needed argument may be left out."""

    name: ClassVar[str] = "planted"

    tool_descriptions: ClassVar[tuple[vt.ToolDescription, ...]] = (
        _UNIFORM,
        replace(_CLIP, optional=("prompt",)),
    )


@caught_by("observations_show_what_is_recorded")
@dataclass(frozen=True, kw_only=True)
class FirstReplyOnly(LongVT):
    """A turn may hold several calls, and the observation shows the reply to the first of them alone."""

    name: ClassVar[str] = "first_reply_only"

    def observe(self, outcomes: Sequence[vt.ToolOutcome], turns_left: int) -> vt.Content:
        return super().observe(outcomes[:1], turns_left)


@caught_by("observations_show_what_is_recorded")
@dataclass(frozen=True, kw_only=True)
class LabelsByPosition(VideoBrain):
    """The label of a frame is computed from its place among the frames of the call, not from its own time."""

    name: ClassVar[str] = "labels_by_position"

    def observe(self, outcomes: Sequence[vt.ToolOutcome], turns_left: int) -> vt.Content:
        outcome = outcomes[0]
        if not outcome.record.ok or outcome.video is None:
            return super().observe(outcomes, turns_left)
        step = outcome.video.num_frames // max(1, len(outcome.images))
        content: list[str | vt.ImagePart] = ["The frames of your call."]
        for position, image in enumerate(outcome.images):
            content += [f"\nframe {position * step}: ", image]
        return tuple(content)


_PLANS: dict[str, vt.ToolPlan] = {}


@dataclass(frozen=True, kw_only=True)
class KeepingCropVideo(CropVideo):
    async def plan(self, arguments: Mapping[str, Any], context: vt.ToolContext) -> vt.ToolPlan:
        key = json.dumps(dict(arguments), sort_keys=True, default=str)
        if key not in _PLANS:
            _PLANS[key] = await super().plan(arguments, context)
        return _PLANS[key]


@caught_by("call_frames_are_valid")
@dataclass(frozen=True, kw_only=True)
class PlansKeptAcrossVideos(LongVT):
    """A tool keeps the plan of each call, by the call's arguments alone."""

    name: ClassVar[str] = "plans_kept_across_videos"

    def tools(self, info: vt.VideoInfo) -> Mapping[str, vt.Tool]:
        crop_video = KeepingCropVideo(
            fps=self.fps, max_frames=self.call_frames, min_pixels=self.min_pixels, max_pixels=self.max_pixels
        )
        return {crop_video.name: crop_video}


@caught_by("thought_tag_matches_the_grammar")
@dataclass(frozen=True, kw_only=True)
class ThoughtTagLeft(VideoBrain):
    """The grammar begins a turn with `<thinking>`, and `thought_tag` is still the base class's `think`."""

    name: ClassVar[str] = "thought_tag_left"
    thought_tag: ClassVar[str | None] = "think"


@dataclass(frozen=True, kw_only=True)
class KnowingCropVideo(CropVideo):
    async def plan(self, arguments: Mapping[str, Any], context: vt.ToolContext) -> vt.ToolPlan:
        plan = await super().plan(arguments, context)
        truth = context.sample.video_segment_seconds
        if truth is not None and (plan.result["end_time"] < truth[0] or plan.result["start_time"] > truth[1]):
            raise vt.CallRejected(vt.CallErrorCode.NOTHING_FOUND, "nothing of interest happens there")
        return plan


@caught_by("plans_ignore_the_truth")
@dataclass(frozen=True, kw_only=True)
class ToolKnowsTheTruth(LongVT):
    """A tool shows frames only where the crop meets the segment that the row annotates as evidence."""

    name: ClassVar[str] = "tool_knows_the_truth"

    def tools(self, info: vt.VideoInfo) -> Mapping[str, vt.Tool]:
        crop_video = KnowingCropVideo(
            fps=self.fps, max_frames=self.call_frames, min_pixels=self.min_pixels, max_pixels=self.max_pixels
        )
        return {crop_video.name: crop_video}


@dataclass(frozen=True)
class Brightness:
    """Tells how bright the frames of a span are, and asks a model what they show."""

    name: ClassVar[str] = "brightness"

    async def plan(self, arguments: Mapping[str, Any], context: vt.ToolContext) -> vt.ToolPlan:
        start, end = vt.span_argument(arguments, context.info.duration_seconds)
        if context.decode is None or context.model is None:
            raise vt.ToolModelError("no model is set up")
        return await self.described(start, end, context)

    async def described(self, start: float, end: float, context: vt.ToolContext) -> vt.ToolPlan:
        assert context.decode is not None and context.model is not None
        images = await context.decode(vt.FrameRequest(width=28, height=28, seconds=(start, end)))
        brightness = [float(image.pixels_HWC.mean()) for image in images if image.pixels_HWC is not None]
        reply = await context.model.ask((*images, "What is shown?"), 1.0)
        return vt.ToolPlan(text=f"{reply.text} The frames have brightness {brightness}.")


@dataclass(frozen=True, kw_only=True)
class Measuring(LongVT):
    name: ClassVar[str] = "measuring"
    check_examples: ClassVar[tuple[str, ...]] = (
        '<tool_call>{"name": "brightness", "arguments": {"start_time": 15, "end_time": 30}}</tool_call>',
    )

    def tools(self, info: vt.VideoInfo) -> Mapping[str, vt.Tool]:
        return {**super().tools(info), Brightness.name: Brightness()}

    def tool_schemas(self) -> list[dict[str, Any]]:
        span = {"start_time": ("number", "Start in seconds."), "end_time": ("number", "End in seconds.")}
        return [*super().tool_schemas(), vt.tool_schema(Brightness.name, "Tells how bright frames are.", span)]


@dataclass(frozen=True)
class TakingServicesForGranted(Brightness):
    async def plan(self, arguments: Mapping[str, Any], context: vt.ToolContext) -> vt.ToolPlan:
        start, end = vt.span_argument(arguments, context.info.duration_seconds)
        return await self.described(start, end, context)


@caught_by("bad_calls_are_rejected")
@dataclass(frozen=True, kw_only=True)
class MissingModelRaises(Measuring):
    """A tool uses the model and the frames that verl's own tool loop does not give it."""

    name: ClassVar[str] = "planted"

    def tools(self, info: vt.VideoInfo) -> Mapping[str, vt.Tool]:
        return {**super().tools(info), Brightness.name: TakingServicesForGranted()}
