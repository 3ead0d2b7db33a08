"""Faults of configs, initial frames and prompts."""

from __future__ import annotations

import random
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from tests.testing.planted import caught_by
from verl_video_tools.methods import toolkit as vt
from verl_video_tools.methods.direct import Direct
from verl_video_tools.methods.framemind import FrameMind
from verl_video_tools.methods.framemind.method import FrameAt
from verl_video_tools.methods.framethinker import FrameThinker
from verl_video_tools.methods.longvt import LongVT
from verl_video_tools.methods.videobrain import VideoBrain
from verl_video_tools.methods.videozoomer import VideoZoomer


@caught_by("config_is_a_frozen_dataclass")
@dataclass(frozen=True, kw_only=True)
class AListAsField(Direct):
    """A list as a field: one rollout changes it for all."""

    name: ClassVar[str] = "planted"

    words: list[str] = field(default_factory=list)


@caught_by("config_survives_pickling")
@dataclass(frozen=True, kw_only=True)
class CountsRollouts(Direct):
    """A counter beside the fields: every process counts for itself."""

    name: ClassVar[str] = "planted"

    def plan_initial_frames(self, info: vt.VideoInfo, sample: vt.Sample, envelope: vt.PixelEnvelope) -> vt.FrameRequest:
        object.__setattr__(self, "rollouts", getattr(self, "rollouts", 0) + 1)
        return super().plan_initial_frames(info, sample, envelope)


@caught_by("config_is_a_frozen_dataclass")
class FieldsWithoutDataclass(LongVT):
    """A field of a subclass that is no dataclass: options set it, and nothing reads it."""

    name: ClassVar[str] = "planted"

    reach_seconds: float = 2.0


@caught_by("config_is_a_frozen_dataclass")
@dataclass(frozen=True, kw_only=True)
class FieldsWithoutType(LongVT):
    """Fields that are assigned without their type: the dataclass does not see them, and their defaults stay."""

    name: ClassVar[str] = "planted"

    max_turns = 6
    end_on_call_error = False


@caught_by("prompt_shows_its_frames")
@dataclass(frozen=True, kw_only=True)
class FramesOutOfOrder(Direct):
    """Frames of the prompt in another order than planned; the record tells the planned one."""

    name: ClassVar[str] = "planted"

    def prompt(self, sample: vt.Sample, info: vt.VideoInfo, images: Sequence[vt.ImagePart]) -> list[vt.Message]:
        return super().prompt(sample, info, [*images[::2], *images[1::2]])


@caught_by("prompt_fits_the_recipe")
@dataclass(frozen=True, kw_only=True)
class GreedyPrompt(VideoZoomer):
    """More initial frames than the recipe reserves room for."""

    name: ClassVar[str] = "planted"

    initial_frames: int = 200


@caught_by("prompt_names_every_tool")
@dataclass(frozen=True, kw_only=True)
class HidesATool(LongVT):
    """A tool is handed out that the prompt does not name, so that no policy would call it."""

    name: ClassVar[str] = "planted"
    check_examples: ClassVar[tuple[str, ...]] = ('<tool_call>{"name": "FrameAt", "arguments": {"t": 15}}</tool_call>',)

    def tools(self, info: vt.VideoInfo) -> Mapping[str, vt.Tool]:
        return {**super().tools(info), FrameAt.name: FrameAt(side_pixels=56)}


@caught_by("initial_frames_are_valid")
@dataclass(frozen=True, kw_only=True)
class InitialFramesBackwards(Direct):
    """Initial frames from the last to the first."""

    name: ClassVar[str] = "planted"

    def plan_initial_frames(self, info: vt.VideoInfo, sample: vt.Sample, envelope: vt.PixelEnvelope) -> vt.FrameRequest:
        planned = super().plan_initial_frames(info, sample, envelope)
        return replace(planned, indices=tuple(reversed(planned.indices or ())))


@caught_by("config_survives_pickling")
@dataclass(frozen=True, kw_only=True)
class KeepsALock(Direct):
    """A config that holds what cannot be pickled."""

    name: ClassVar[str] = "planted"

    guard: int | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return (KeepsALock, (), {"guard": threading.Lock()})


@caught_by("prompt_shows_its_frames")
@dataclass(frozen=True, kw_only=True)
class LabelsOneFrameLate(Direct):
    """Each initial frame stands under the time of the next one."""

    name: ClassVar[str] = "planted"

    def prompt(self, sample: vt.Sample, info: vt.VideoInfo, images: Sequence[vt.ImagePart]) -> list[vt.Message]:
        content: list[str | vt.ImagePart] = [sample.question]
        for image, labelled in zip(images, [*images[1:], images[-1]], strict=True):
            content += [f"\n{labelled.record.timestamp_seconds:.1f} s: ", image]
        return [super().prompt(sample, info, images)[0], vt.Message("user", tuple(content))]


@caught_by("prompt_hides_the_answer")
@dataclass(frozen=True, kw_only=True)
class NamesTheFile(FrameMind):
    """The prompt names the video's file, whose name may tell the answer."""

    name: ClassVar[str] = "planted"

    def prompt(self, sample: vt.Sample, info: vt.VideoInfo, images: Sequence[vt.ImagePart]) -> list[vt.Message]:
        system, user = super().prompt(sample, info, images)
        return [system, vt.Message("user", (f"{sample.video_path}\n", *user.content))]


@caught_by("prompt_is_filled_in")
@dataclass(frozen=True, kw_only=True)
class PromptWithAFormat(Direct):
    """The prompt asks for a value in Python's format, which `load_prompt` does not fill."""

    name: ClassVar[str] = "planted"

    def prompt(self, sample: vt.Sample, info: vt.VideoInfo, images: Sequence[vt.ImagePart]) -> list[vt.Message]:
        system, user = super().prompt(sample, info, images)
        return [vt.Message("system", (*system.content, "The video has {duration:.1f} seconds.")), user]


@caught_by("prompt_is_repeatable")
@dataclass(frozen=True, kw_only=True)
class RandomInitialFrames(FrameThinker):
    """Initial frames are drawn at random: no replay shows what was seen."""

    name: ClassVar[str] = "planted"

    def plan_initial_frames(self, info: vt.VideoInfo, sample: vt.Sample, envelope: vt.PixelEnvelope) -> vt.FrameRequest:
        planned = super().plan_initial_frames(info, sample, envelope)
        indices = sorted(random.choices(range(info.num_frames), k=len(planned)))
        return vt.FrameRequest(width=planned.width, height=planned.height, indices=tuple(indices))


@caught_by("group_configs_are_valid")
@dataclass(frozen=True, kw_only=True)
class SessionNamesAFile(Direct):
    """A rollout of a group has a prompt file of its own: a record could then name files."""

    name: ClassVar[str] = "planted"

    def for_session(self, session_id: int, group_size: int, validate: bool) -> SessionNamesAFile:
        return replace(self, initial_frames_selector="most_similar") if session_id == 2 else self


@caught_by("prompt_hides_the_answer")
@dataclass(frozen=True, kw_only=True)
class TruthInThePrompt(VideoBrain):
    """The prompt names the seconds where the answer is."""

    name: ClassVar[str] = "planted"

    def prompt(self, sample: vt.Sample, info: vt.VideoInfo, images: Sequence[vt.ImagePart]) -> list[vt.Message]:
        system, user = super().prompt(sample, info, images)
        where = f"Look near {sample.video_segment_seconds}. " if sample.video_segment_seconds else ""
        return [vt.Message("system", (where, *system.content)), user]


@caught_by("config_values_are_checked")
@dataclass(frozen=True, kw_only=True)
class UncheckedNumber(Direct):
    """A number without a range: -1 is taken, and every rollout fails."""

    name: ClassVar[str] = "planted"

    shown: int = 4

    def plan_initial_frames(self, info: vt.VideoInfo, sample: vt.Sample, envelope: vt.PixelEnvelope) -> vt.FrameRequest:
        planned = super().plan_initial_frames(info, sample, envelope)
        if self.shown < 0:
            raise ValueError(f"cannot show {self.shown} frames")
        return planned


@caught_by("prompt_quotes_the_question")
@dataclass(frozen=True, kw_only=True)
class BracesInQuestion(VideoZoomer):
    """The question is put into the prompt before `str.format` fills in the numbers."""

    name: ClassVar[str] = "braces_in_question"

    def prompt(self, sample: vt.Sample, info: vt.VideoInfo, images: Sequence[vt.ImagePart]) -> list[vt.Message]:
        system, user = super().prompt(sample, info, images)
        asked = (sample.question + "\nThe video lasts {duration:.1f} seconds.").format(duration=info.duration_seconds)
        return [system, vt.Message("user", (*user.content[:-1], f"\n{asked}"))]


@dataclass(frozen=True, kw_only=True)
class FrameLadder(VideoZoomer):
    name: ClassVar[str] = "frame_ladder"

    def for_session(self, session_id: int, group_size: int, validate: bool) -> FrameLadder:
        return replace(self, initial_frames=8 + 8 * session_id // max(1, group_size - 1))


@caught_by("group_configs_are_valid")
@dataclass(frozen=True, kw_only=True)
class LadderOfOne(FrameLadder):
    """The frames of a rollout rise with its number in the group, and a group of one divides by zero."""

    name: ClassVar[str] = "ladder_of_one"

    def for_session(self, session_id: int, group_size: int, validate: bool) -> LadderOfOne:
        return replace(self, initial_frames=8 + 8 * session_id // (group_size - 1))
