"""A method that is composed: a YAML file names its tools, grammar, initial frames, reward terms and prompt.

`file` is the path of the user's own YAML, or the name of one of the package: `default`, `demo` and `spatial` (for the
synthetic worlds). The page "Compose a method" lists every key.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from typing import Any, ClassVar

from verl_video_tools.core.config import checked_fields
from verl_video_tools.methods import toolkit as vt
from verl_video_tools.methods.compose.composition import Composition, load_composition
from verl_video_tools.methods.compose.parts import Ladder, NoFrames, located
from verl_video_tools.methods.compose.reward import Reward, ScoredGroup, ScoringContext


@dataclass(frozen=True, kw_only=True, init=False)
class Compose(vt.Method):
    """What the file says; a field that the configuration sets wins over the file.

    The file is the user's configuration, and so is all that it names, Python paths included. Rows and records cannot
    name one: `core.method.rollout_fields` holds no text.
    """

    name: ClassVar[str] = "compose"
    # Of the default file; each config has those of its own.
    reward_components: ClassVar[tuple[str, ...]] = ("accuracy", "format", "tool")
    recipe_budget: ClassVar[vt.RolloutLimits] = vt.RolloutLimits(prompt_tokens=8192, response_tokens=16_384, images=160)
    oracle: ClassVar[str | None] = "verl_video_tools.methods.compose.oracle:ComposeOracle"
    synthetic_question: ClassVar[str | None] = "verl_video_tools.synthetic.seconds:windows_in_seconds"

    file: str = "default"
    """Path of the YAML file, or the name of a packaged composition. Read once per process."""
    max_turns: int = 5
    end_on_call_error: bool = False
    context: vt.ContextPolicy = "append"
    """Which frames later turns see; anything but `append` makes one training sequence per turn."""
    rung: int | None = None
    """Rung of the ladder, from 1 to `num_rungs`, where the plan of the initial frames is one. None: by the rollout's
    number in its group; for validation, and outside groups, the plan's `validation_frames`."""
    num_rungs: int = 8
    """Rungs of the ladder; a training group sets it to its own size."""

    def __init__(self, *, file: str = "default", **given: Any) -> None:
        """Read the file; `given` fields win over it, and what neither says has the defaults of `Method`.

        Raises:
            UsageError: the file or a field makes no sense.
            TypeError: there is no such field.
        """
        known = {own.name: own.default for own in fields(type(self))}
        if unknown := given.keys() - known.keys():
            raise TypeError(f"{type(self).__name__} has no field {', '.join(sorted(unknown))}")
        composition = load_composition(file)
        with located(f"{file}: turns"):
            turns = checked_fields(type(self), composition.turns)
        values = {**known, **turns, **composition.method_fields(), **given, "file": file}
        assert MISSING not in values.values(), "every field has a default"
        reward = composition.reward.with_weight("accuracy", values["accuracy_reward"])
        values |= {
            # Other methods have these as class variables.
            "reward_components": reward.keys,
            "group_components": reward.group_keys,
            "unpaid_components": reward.unpaid,
            "recipe_budget": composition.limits,
            "thought_tag": composition.grammar.thought_tag,
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)  # as a frozen dataclass sets its own fields
        self.__post_init__()

    def check_fields(self) -> None:
        vt.require(
            self, "compat", self.compat == "strict", "'strict': published behaviour is the papers' methods' alone"
        )
        has_ladder = isinstance(self.composition.initial_frames, Ladder)
        vt.require(self, "num_rungs", self.num_rungs >= 1, "at least 1")
        vt.require(self, "rung", self.rung is None or has_ladder, f"None: the plan of {self.file} is no ladder")
        vt.require(
            self, "rung", self.rung is None or 1 <= self.rung <= self.num_rungs, f"1 to {self.num_rungs}, or None"
        )

    @property
    def composition(self) -> Composition:
        """What the file says."""
        return load_composition(self.file)

    @property
    def reward(self) -> Reward:
        """The terms of the file, with this config's weight of `accuracy`."""
        return self.composition.reward.with_weight("accuracy", self.accuracy_reward)

    @property
    def label(self) -> str:
        return f"{self.name}, {self.composition.name}"

    def _has_tool_that(self, attribute: str) -> bool:
        return any(getattr(offered.tool, attribute, False) for offered in self.composition.tools.values())

    @property
    def searches(self) -> bool:
        return self._has_tool_that("searches")

    @property
    def asks_model(self) -> bool:
        return self._has_tool_that("asks_model")

    def prompt_subtitles(self, sample: vt.Sample) -> Sequence[vt.Subtitle]:
        """None where a tool looks them up."""
        return () if self._has_tool_that("reads_subtitles") else super().prompt_subtitles(sample)

    def made_of(self) -> dict[str, Any]:
        composition = self.composition
        group_keys = composition.reward.group_keys
        return {
            "file": composition.name,
            "digest": composition.digest,
            "rewards": list(composition.reward.keys),
            **({"group_rewards": list(group_keys)} if group_keys else {}),
            "tools": list(composition.tools),
        }

    def context_policy(self) -> vt.ContextPolicy:
        return self.context

    def for_session(self, session_id: int, group_size: int, validate: bool) -> Compose:
        """With a ladder the rollout's rung: its number in the group decides."""
        if validate or self.rung is not None or not isinstance(self.composition.initial_frames, Ladder):
            return self
        return replace(self, num_rungs=group_size, rung=session_id % group_size + 1)

    # ------------------------------------------------------------------------------------------------ prompt and tools

    def plan_initial_frames(self, info: vt.VideoInfo, sample: vt.Sample, envelope: vt.PixelEnvelope) -> vt.FrameRequest:
        plan = self.composition.initial_frames
        if isinstance(plan, Ladder):
            return plan.request(info, envelope, self.rung, self.num_rungs)
        return plan.request(info, envelope)

    def prompt(self, sample: vt.Sample, info: vt.VideoInfo, images: Sequence[vt.ImagePart]) -> list[vt.Message]:
        """The system prompt; then the message `user`."""
        composition = self.composition
        duration = vt.format_seconds(info.duration_seconds, decimals=1)
        values = {
            "duration": duration,
            "initial_frames": len(images),
            "max_turns": self.max_turns,
            "max_calls": self.max_turns - 1,
            "thought": self.thought_tag or "",
            "tools": composition.grammar.how_to_call(list(composition.tools.values())) if composition.tools else "",
            **composition.prompt_values,
        }
        system = vt.load_prompt(__package__, "prompt.txt", self.prompt_file, **values)
        user = vt.render(
            self,
            "user",
            question=sample.question.rstrip(),
            frames=self._labelled(images),
            duration=duration,
            num_frames=str(info.num_frames),
            fps=f"{info.average_fps:.5g}",
        )
        return [vt.Message("system", (system,)), vt.Message("user", user)]

    def message_templates(self) -> Mapping[str, vt.Template]:
        return self.composition.templates

    def parse(self, text: str) -> vt.ParsedTurn:
        return self.composition.grammar.parse(text)

    def tools(self, info: vt.VideoInfo) -> Mapping[str, vt.Tool]:
        return {name: offered.tool for name, offered in self.composition.tools.items()}

    def observe(self, outcomes: Sequence[vt.ToolOutcome], turns_left: int) -> vt.Content:
        """What answers the calls of a turn, in their order."""
        content: list[str | vt.ImagePart] = []
        for number, outcome in enumerate(outcomes):
            content += [*(("\n",) if number else ()), *self._answer(outcome)]
        return tuple(content)

    def _answer(self, outcome: vt.ToolOutcome) -> vt.Content:
        """The message `observation`, `result` or `refusal` of one call."""
        record = outcome.record
        if not record.ok:
            return vt.render(self, "refusal", error=str(vt.format_error(record)))
        offered = self.composition.tools.get(record.name)  # None in an estimate of what a call costs
        if outcome.images:
            unit: vt.BoxUnit = getattr(offered.tool, "unit", "pixels") if offered else "pixels"
            frames = self._labelled(outcome.images, outcome.video, unit)
            return vt.render(self, "observation", frames=vt.with_text(outcome, frames))
        text = record.text
        if text is None and offered is not None and (in_words := offered.description.result_text) is not None:
            text = in_words(record.arguments, record.result)
        return vt.render(self, "result", text=json.dumps(record.result, ensure_ascii=False) if text is None else text)

    def _labelled(
        self, images: Sequence[vt.ImagePart], video: vt.VideoInfo | None = None, unit: vt.BoxUnit = "pixels"
    ) -> vt.Content:
        """Each frame on a line of its own in the message `frame`; a part of a frame, or a grid of frames, in `picture`.

        Args:
            unit: of the boxes in labels of parts.
        """
        content: list[str | vt.ImagePart] = []
        for image in images:
            record = image.record
            content += ["\n"] if content else []
            if video is not None and (record.region is not None or record.tiles):
                label = vt.picture_label(record, video, unit)
                content += vt.render(self, "picture", image=(image,), label=label)
            else:
                seconds = f"{record.timestamp_seconds:.{self.composition.decimals}f}"
                content += vt.render(self, "frame", image=(image,), index=str(record.index), seconds=seconds)
        return tuple(content)

    # ---------------------------------------------------------------------------------------------------------- reward

    async def components(
        self, trajectory: vt.Trajectory, sample: vt.Sample, judge: vt.Judge | None
    ) -> dict[str, float]:
        """The terms of the file that a rollout earns by itself, in the file's words.

        Raises:
            JudgeError: the judge gave no verdict.
        """
        composition = self.composition
        parameters = {name: offered.parameters.keys() for name, offered in composition.tools.items()}
        rollout = ScoringContext(trajectory, sample, judge, composition.grammar, parameters)
        return await self.reward.components(rollout)

    def score_group(
        self, trajectories: Sequence[vt.Trajectory], rewards: Sequence[Mapping[str, float]], sample: vt.Sample
    ) -> list[dict[str, float]]:
        """The terms of the file that compare rollouts."""
        return self.reward.group_components(ScoredGroup(trajectories, rewards))

    def acc(self, reward: Mapping[str, float], sample: vt.Sample) -> float:
        """As every method's, also where accuracy has the weight 0."""
        earned = reward.get("accuracy", 0.0)
        return float((earned / self.accuracy_reward if self.accuracy_reward else earned) >= 1.0)

    def check_earnable(self, sample: vt.Sample, judge: object | None) -> None:
        """As every method's; and that there are initial frames."""
        super().check_earnable(sample, judge)
        if isinstance(self.composition.initial_frames, NoFrames):  # a rollout without a call would have no image
            raise vt.UsageError(
                f"{self.file} shows no frames at first, which is for `vvt eval`: verl 0.9.1 cannot train on a rollout "
                "without an image; give it initial_frames"
            )
