"""Faults of rewards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar
from uuid import uuid4

from tests.group_method import relative_length_penalty
from tests.testing.planted import caught_by
from verl_video_tools.methods import toolkit as vt
from verl_video_tools.methods.direct import Direct
from verl_video_tools.methods.framemind import FrameMind
from verl_video_tools.methods.framethinker import FrameThinker
from verl_video_tools.methods.longvt import LongVT
from verl_video_tools.methods.videobrain import VideoBrain
from verl_video_tools.methods.videozoomer import VideoZoomer


@caught_by("accepted_rows_are_scored")
@dataclass(frozen=True, kw_only=True)
class AcceptsAnyRow(LongVT):
    """Rows that no rule grades are accepted without a judge, and fail in the reward."""

    name: ClassVar[str] = "planted"

    def check_sample(self, sample: vt.Sample, judge: object | None) -> None:
        """All rows are welcome."""


@caught_by("grading_separates_right_from_wrong")
@dataclass(frozen=True, kw_only=True)
class AnswerHoldsTheTruth(Direct):
    """An answer is right that holds the letter of the truth, among others."""

    name: ClassVar[str] = "planted"

    async def components(
        self, trajectory: vt.Trajectory, sample: vt.Sample, judge: vt.Judge | None
    ) -> dict[str, float]:
        letters = (trajectory.answer or "").replace(",", " ").split()
        return {"accuracy": float(sample.ground_truth in letters)}


@caught_by("accepted_rows_are_scored")
@dataclass(frozen=True, kw_only=True)
class AsksAJudgeAlways(Direct):
    """The reward asks the judge about every answer, also of a multiple-choice row in a run that has none."""

    name: ClassVar[str] = "planted"

    async def components(
        self, trajectory: vt.Trajectory, sample: vt.Sample, judge: vt.Judge | None
    ) -> dict[str, float]:
        if trajectory.answer is None:
            return self.no_components()
        assert judge is not None
        label = await judge.judge(sample.question, sample.ground_truth, trajectory.answer)
        return {**self.no_components(), "accuracy": self.accuracy_reward * (label is vt.AnswerLabel.CORRECT)}


@caught_by("reward_is_complete")
@dataclass(frozen=True, kw_only=True)
class DividesByCalls(VideoBrain):
    """The mean over no calls is no number."""

    name: ClassVar[str] = "planted"

    async def components(
        self, trajectory: vt.Trajectory, sample: vt.Sample, judge: vt.Judge | None
    ) -> dict[str, float]:
        earned = await super().components(trajectory, sample, judge)
        calls = trajectory.executed_calls()
        share = sum(bool(call.frames) for call in calls) / len(calls) if calls else float("nan")
        return {**earned, "behavior": earned["behavior"] * share}


@caught_by("reward_is_complete")
@dataclass(frozen=True, kw_only=True)
class ForgetsAComponent(FrameThinker):
    """A rollout without an answer lacks a component."""

    name: ClassVar[str] = "planted"

    async def components(
        self, trajectory: vt.Trajectory, sample: vt.Sample, judge: vt.Judge | None
    ) -> dict[str, float]:
        earned = await super().components(trajectory, sample, judge)
        if trajectory.answer is None:
            del earned["format"]
        return earned


@caught_by("accepted_rows_are_scored")
@dataclass(frozen=True, kw_only=True)
class PaysBySegment(Direct):
    """The reward reads the row's annotated segment, which most rows have not."""

    name: ClassVar[str] = "planted"

    async def components(
        self, trajectory: vt.Trajectory, sample: vt.Sample, judge: vt.Judge | None
    ) -> dict[str, float]:
        assert sample.video_segment_seconds is not None
        start, end = sample.video_segment_seconds
        return await super().components(trajectory, sample, judge) if start <= end else self.no_components()


@caught_by("reward_is_repeatable")
@dataclass(frozen=True, kw_only=True)
class PaysForSpeed(FrameMind):
    """A slow disk costs reward."""

    name: ClassVar[str] = "planted"

    async def components(
        self, trajectory: vt.Trajectory, sample: vt.Sample, judge: vt.Judge | None
    ) -> dict[str, float]:
        earned = await super().components(trajectory, sample, judge)
        return {**earned, "tool": earned["tool"] - 1e-3 * sum(call.latency_ms > 1000 for call in trajectory.calls())}


@caught_by("fabricated_replies_earn_nothing")
@dataclass(frozen=True, kw_only=True)
class PaysForText(VideoZoomer):
    """The tool is paid for where the text of a turn holds a reply, whoever wrote it."""

    name: ClassVar[str] = "planted"

    async def components(
        self, trajectory: vt.Trajectory, sample: vt.Sample, judge: vt.Judge | None
    ) -> dict[str, float]:
        earned = await super().components(trajectory, sample, judge)
        replied = any("<tool_response>" in turn.text for turn in trajectory.turns)
        return {**earned, "tool": earned["tool"] + (0.5 if replied else 0.0)}


@caught_by("refused_calls_earn_nothing")
@dataclass(frozen=True, kw_only=True)
class PaysForWrittenCalls(LongVT):
    """The tool is paid for where a call was written, carried out or not."""

    name: ClassVar[str] = "planted"

    async def components(
        self, trajectory: vt.Trajectory, sample: vt.Sample, judge: vt.Judge | None
    ) -> dict[str, float]:
        earned = await super().components(trajectory, sample, judge)
        return {**earned, "temporal_iou": 1.0 if trajectory.calls() else 0.0}


@caught_by("reward_is_repeatable")
@dataclass(frozen=True, kw_only=True)
class TidiesTheRecord(LongVT):
    """Scoring cuts the answer in the record that is written afterwards."""

    name: ClassVar[str] = "planted"

    async def components(
        self, trajectory: vt.Trajectory, sample: vt.Sample, judge: vt.Judge | None
    ) -> dict[str, float]:
        earned = await super().components(trajectory, sample, judge)
        trajectory.turns[-1].thought = None
        return earned


def written_characters(trajectory: vt.Trajectory) -> int:
    return sum(len(turn.text) for turn in trajectory.turns)


@dataclass(frozen=True, kw_only=True)
class Brief(FrameThinker):
    name: ClassVar[str] = "brief"
    reward_components: ClassVar[tuple[str, ...]] = (*FrameThinker.reward_components, "brevity")
    group_components: ClassVar[tuple[str, ...]] = ("brevity",)

    def score_group(
        self, trajectories: Sequence[vt.Trajectory], rewards: Sequence[Mapping[str, float]], sample: vt.Sample
    ) -> list[dict[str, float]]:
        penalties = relative_length_penalty([written_characters(each) for each in trajectories])
        return [{"brevity": 0.2 * penalty} for penalty in penalties]


@caught_by("group_rewards_follow_the_rollout")
@dataclass(frozen=True, kw_only=True)
class BonusInSortedOrder(Brief):
    """The bonus for short rollouts comes back in order of length instead of the order of the rollouts."""

    name: ClassVar[str] = "bonus_in_sorted_order"

    def score_group(
        self, trajectories: Sequence[vt.Trajectory], rewards: Sequence[Mapping[str, float]], sample: vt.Sample
    ) -> list[dict[str, float]]:
        return super().score_group(sorted(trajectories, key=written_characters), rewards, sample)


@dataclass(frozen=True, kw_only=True)
class Curious(VideoZoomer):
    name: ClassVar[str] = "curious"
    reward_components: ClassVar[tuple[str, ...]] = (*VideoZoomer.reward_components, "curiosity")
    group_components: ClassVar[tuple[str, ...]] = ("curiosity",)

    def score_group(
        self, trajectories: Sequence[vt.Trajectory], rewards: Sequence[Mapping[str, float]], sample: vt.Sample
    ) -> list[dict[str, float]]:
        bonuses = vt.curiosity_bonus([self.tried(each) for each in trajectories], 0.9)
        return [{"curiosity": bonus} for bonus in bonuses]

    def tried(self, trajectory: vt.Trajectory) -> bool:
        return bool(trajectory.executed_calls())


@caught_by("refused_calls_earn_nothing")
@dataclass(frozen=True, kw_only=True)
class CuriosityForRefusedCalls(Curious):
    """The bonus for trying tools goes to every rollout that wrote a call, also to one whose calls were all refused."""

    name: ClassVar[str] = "curiosity_for_refused_calls"

    def tried(self, trajectory: vt.Trajectory) -> bool:
        return bool(trajectory.calls())


@dataclass(frozen=True, kw_only=True)
class Looking(VideoZoomer):
    name: ClassVar[str] = "looking"
    reward_components: ClassVar[tuple[str, ...]] = (*VideoZoomer.reward_components, "look")
    turn_components: ClassVar[tuple[str, ...]] = ("look",)

    async def components(
        self, trajectory: vt.Trajectory, sample: vt.Sample, judge: vt.Judge | None
    ) -> Mapping[str, float | Sequence[float]]:
        look = [0.1 * any(call.ok for call in turn.calls) for turn in trajectory.turns]
        return {**await super().components(trajectory, sample, judge), "look": look}


@caught_by("turn_rewards_stay_with_their_turns")
@dataclass(frozen=True, kw_only=True)
class PaysTheFirstTurn(Looking):
    """A rollout that ends in no call is paid at its first turn, whatever turn it was that looked."""

    name: ClassVar[str] = "pays_the_first_turn"

    async def components(
        self, trajectory: vt.Trajectory, sample: vt.Sample, judge: vt.Judge | None
    ) -> Mapping[str, float | Sequence[float]]:
        look = [0.0] * len(trajectory.turns)
        if look and not trajectory.turns[-1].calls:
            look[0] = 0.1 * bool(trajectory.executed_calls())
        return {**await super().components(trajectory, sample, judge), "look": look}


@caught_by("judge_errors_propagate")
@dataclass(frozen=True, kw_only=True)
class SilentJudgeIsWrong(FrameMind):
    """A judge that gives no verdict counts as one that says no."""

    name: ClassVar[str] = "silent_judge_is_wrong"

    async def components(
        self, trajectory: vt.Trajectory, sample: vt.Sample, judge: vt.Judge | None
    ) -> dict[str, float]:
        try:
            return await super().components(trajectory, sample, judge)
        except Exception:
            return self.no_components()


@dataclass(frozen=True, kw_only=True)
class Remembering(LongVT):
    """Later turns see their own words as text, and the last observation."""

    name: ClassVar[str] = "remembering"

    def context_policy(self) -> vt.ContextPolicy:
        return self.remember

    def remember(self, dialogue: Sequence[vt.Message]) -> list[vt.Message]:
        written = [vt.content_text(message.content) for message in dialogue if message.role == "assistant"]
        return [*dialogue[:2], vt.Message("user", (*written, *dialogue[-1].content))]


@caught_by("contexts_follow_from_the_dialogue")
@dataclass(frozen=True, kw_only=True)
class RemembersPixels(Remembering):
    """What is remembered depends on pixels, which are not there where the budget is checked."""

    name: ClassVar[str] = "remembers_pixels"

    def remember(self, dialogue: Sequence[vt.Message]) -> list[vt.Message]:
        images = [image for message in dialogue for image in vt.content_images(message.content)]
        bright = sum(image.pixels_HWC is not None for image in images)
        return [*super().remember(dialogue)[:-1], vt.Message("user", (f"{bright} images",))]


@caught_by("contexts_follow_from_the_dialogue")
@dataclass(frozen=True, kw_only=True)
class ForgetsAtRandom(Remembering):
    """Each time another note."""

    name: ClassVar[str] = "forgets_at_random"

    def remember(self, dialogue: Sequence[vt.Message]) -> list[vt.Message]:
        return [*super().remember(dialogue)[:-1], vt.Message("user", (f"note {uuid4()}", *dialogue[-1].content))]


@caught_by("contexts_follow_from_the_dialogue")
@dataclass(frozen=True, kw_only=True)
class ShowsForeignImages(Remembering):
    """An image that no message has shown."""

    name: ClassVar[str] = "shows_foreign_images"

    def remember(self, dialogue: Sequence[vt.Message]) -> list[vt.Message]:
        foreign = vt.ImagePart(vt.FrameRecord(10_000, 2_000.0, 28, 28))
        return [*dialogue[:2], vt.Message("user", (foreign,))]
