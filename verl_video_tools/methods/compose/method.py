"""A method that is composed: tools, grammar, initial frames, reward terms and prompt are named in a YAML file.

`file` is the path of the user's own YAML, or the name of one of the package: `default`, `demo` and `spatial` (for the
synthetic worlds), and `framemind`, `framethinker`, `longvt`, `videobrain`, `videozoomer`, which are the five papers as
far as a composition goes. The page "Compose a method" lists every key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, fields, replace
from typing import Any, ClassVar

from verl_video_tools.methods import toolkit as vt
from verl_video_tools.methods.compose import messages
from verl_video_tools.methods.compose.composition import Composition, load_composition
from verl_video_tools.methods.compose.frames import Ladder, NoFrames
from verl_video_tools.methods.compose.group_terms import ScoredGroup
from verl_video_tools.methods.compose.terms import Accuracy, Scored


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
        values = {**known, **fields_of(load_composition(file)), **given, "file": file}
        assert MISSING not in values.values(), "every field has a default"
        for name, value in {**values, **self._class_variables(file, values["accuracy_reward"])}.items():
            object.__setattr__(self, name, value)  # as a frozen dataclass sets its own fields
        self.__post_init__()

    @staticmethod
    def _class_variables(file: str, accuracy_reward: float) -> dict[str, Any]:
        """What other methods have as class variables, and a config of this one by its file."""
        composition = load_composition(file)
        reward = composition.reward
        return {
            "reward_components": reward.keys,
            "group_components": reward.group_keys,
            "unpaid_components": reward.unpaid({"accuracy": accuracy_reward}),
            "recipe_budget": vt.RolloutLimits(**asdict(composition.limits)),
            "thought_tag": composition.grammar.thought_tag,
        }

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
    def label(self) -> str:
        return f"{self.name}, {self.composition.name}"

    @property
    def searches(self) -> bool:
        return any(tool.searches for tool in self.composition.tools.values())

    @property
    def asks_model(self) -> bool:
        return any(tool.asks_model for tool in self.composition.tools.values())

    def prompt_subtitles(self, sample: vt.Sample) -> Sequence[vt.Subtitle]:
        """None where a tool looks them up."""
        looked_up = any(tool.tells_subtitles for tool in self.composition.tools.values())
        return () if looked_up else super().prompt_subtitles(sample)

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
        return self.composition.initial_frames.request(info, envelope, self.rung, self.num_rungs)

    def prompt(self, sample: vt.Sample, info: vt.VideoInfo, images: Sequence[vt.ImagePart]) -> list[vt.Message]:
        """The system prompt; then the message `user`."""
        composition = self.composition
        duration = vt.format_seconds(info.duration_seconds, decimals=1)
        values: dict[str, object] = {
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
            frames=messages.labelled(self, images, composition.decimals),
            duration=duration,
            num_frames=str(info.num_frames),
            fps=f"{info.average_fps:.5g}",
        )
        return [vt.Message("system", (system,)), vt.Message("user", user)]

    def message_templates(self) -> Mapping[str, vt.Template]:
        return self.composition.templates

    def parse(self, text: str) -> vt.ParsedTurn:
        return self.composition.grammar.parse(text)

    def write_call(self, thought: str, name: str, arguments: Mapping[str, Any]) -> str:
        """A turn that makes a call, in the composition's grammar. For experts, and for the checker of methods."""
        return self.composition.grammar.write_call(thought, name, arguments)

    def goes_on_after(self, parsed: vt.ParsedTurn) -> bool:
        return self.composition.grammar.goes_on_after(parsed)

    def tools(self, info: vt.VideoInfo) -> Mapping[str, vt.Tool]:
        return {name: offered.tool for name, offered in self.composition.tools.items()}

    def observe(self, outcomes: Sequence[vt.ToolOutcome], turns_left: int) -> vt.Content:
        composition = self.composition
        return messages.observation(self, composition.tools, outcomes, turns_left, composition.decimals)

    def max_cost_call(
        self, info: vt.VideoInfo, sample: vt.Sample, envelope: vt.PixelEnvelope
    ) -> vt.FrameRequest | None:
        """The most expensive call of the tools that say what they can show."""
        offered = self.composition.tools.values()
        known = [each.dearest(each.tool, info, envelope) for each in offered if each.dearest is not None]
        return max(known, key=lambda request: len(request) * request.width * request.height, default=None)

    # ---------------------------------------------------------------------------------------------------------- reward

    async def components(
        self, trajectory: vt.Trajectory, sample: vt.Sample, judge: vt.Judge | None
    ) -> dict[str, float]:
        """The terms of the file that a rollout earns by itself, in the file's words.

        Raises:
            JudgeError: the judge gave no verdict.
        """
        composition = self.composition
        # Hidden ones, such as the path of the video, say nothing of what is done.
        parameters = {name: offered.parameters.keys() for name, offered in composition.tools.items()}
        rollout = Scored(trajectory, sample, judge, composition.grammar, parameters)
        return await composition.reward.components(rollout, {"accuracy": self.accuracy_reward})

    def score_group(
        self, trajectories: Sequence[vt.Trajectory], rewards: Sequence[Mapping[str, float]], sample: vt.Sample
    ) -> list[dict[str, float]]:
        """The terms of the file that compare rollouts."""
        group = ScoredGroup(trajectories, rewards)
        return self.composition.reward.group_components(group, {"accuracy": self.accuracy_reward})

    def acc(self, reward: Mapping[str, float], sample: vt.Sample) -> float:
        """As every method's; of a segment that is graded by its overlap the IoU. Also told where it is not paid."""
        earned = reward.get("accuracy", 0.0)
        value = earned / self.accuracy_reward if self.accuracy_reward else earned
        term = self.composition.reward.term("accuracy").term
        if isinstance(term, Accuracy) and term.segments_by_iou and sample.question_type == "segment":
            return value
        return float(value >= 1.0)

    def check_earnable(self, sample: vt.Sample, judge: object | None) -> None:
        """As every method's; and what each term needs of a row.

        Raises:
            UsageError: no rollout could earn what the method pays.
        """
        super().check_earnable(sample, judge)
        if isinstance(self.composition.initial_frames, NoFrames):  # a rollout without a call would have no image
            raise vt.UsageError(
                f"{self.file} shows no frames at first, which is for `vvt eval`: verl 0.9.1 cannot train on a rollout "
                "without an image; give it initial_frames"
            )
        for part in self.composition.reward.terms:
            if part.weight:
                part.term.check_earnable(sample, judge)


def fields_of(composition: Composition) -> dict[str, Any]:
    """The fields of `Compose` that a file sets."""
    return {
        **asdict(composition.turns),
        "accuracy_reward": composition.reward.term("accuracy").weight,
        "stop": composition.grammar.stop,
        "initial_frames_selector": composition.selector,
        "prompt_file": composition.prompt_file,
    }
