"""A method that is composed: a YAML file names its tools, initial frames, reward terms and prompt.

Turns are native tool calls (`methods.toolkit.grammar`).

`file` is the path of the user's own YAML, or the name of one of the package: `default`, `demo` and `spatial` (for the
synthetic worlds). The page "Compose a method" lists every key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar

from verl_video_tools.methods import toolkit as vt
from verl_video_tools.methods.compose.composition import Composition, load_composition
from verl_video_tools.methods.compose.parts import Ladder, ScoringContext, components
from verl_video_tools.methods.toolkit.grammar import tools_section


@dataclass(frozen=True, kw_only=True, init=False)
class Compose(vt.Method):
    """A method that its file describes. A field that the configuration sets takes precedence over the file.

    The user trusts the file and everything that it names, including Python paths, as a part of the configuration. Rows
    and records cannot name a file: `core.method.rollout_fields` holds no text.
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
    max_calls_per_turn: int = 5
    """Calls of one turn that are carried out; further ones are refused as `multiple_calls`."""
    rung: int | None = None
    """Rung of the ladder, from 1 to `num_rungs`, where the plan of the initial frames is one. None: by the rollout's
    number in its group; for validation, and outside groups, no rung."""
    num_rungs: int = 8
    """Rungs of the ladder; a training group sets it to its own size."""
    tools_section: str | None = None
    """Text that lists the tools in the system prompt, where `{schemas}` stands for them. None: our own. The config
    groups take that of the model's chat template, where it has one."""

    def __init__(
        self,
        *,
        file: str = "default",
        rung: int | None = None,
        num_rungs: int = 8,
        max_calls_per_turn: int | None = None,
        tools_section: str | None = None,
        **overrides: Any,
    ) -> None:
        """Read the file. `overrides` are fields of `Method`, and take precedence over the file.

        Raises:
            UsageError: the file or a field has a wrong value.
        """
        composition = load_composition(file)
        turns = asdict(composition.turns)
        calls_of_file = turns.pop("max_calls_per_turn")
        values = {
            "file": file,
            "rung": rung,
            "num_rungs": num_rungs,
            "tools_section": tools_section,
            # Other methods have these as class variables.
            "reward_components": tuple(term.key for term in composition.terms),
            "unpaid_components": tuple(term.key for term in composition.terms if not term.weight),
            "recipe_budget": composition.limits,
            "max_calls_per_turn": calls_of_file if max_calls_per_turn is None else max_calls_per_turn,
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)  # as a frozen dataclass sets its own fields
        weights = {term.key: term.weight for term in composition.terms}
        of_file = {"accuracy_reward": weights["accuracy"], "prompt_file": composition.prompt_file}
        super().__init__(**{**turns, **of_file, **overrides})

    def check_fields(self) -> None:
        vt.require(self, "compat", self.compat == "strict", "'strict': no published code is a composition")
        vt.require(self, "accuracy_reward", self.accuracy_reward > 0, "above 0, because `acc` is read from it")
        has_ladder = isinstance(self.composition.initial_frames, Ladder)
        has_schemas = self.tools_section is None or "{schemas}" in self.tools_section
        vt.require(self, "tools_section", has_schemas, "a text with {schemas}, or None")
        vt.require_at_least(self, 1, "num_rungs", "max_calls_per_turn")
        vt.require(self, "rung", self.rung is None or has_ladder, f"None: the plan of {self.file} is no ladder")
        vt.require(
            self, "rung", self.rung is None or 1 <= self.rung <= self.num_rungs, f"1 to {self.num_rungs}, or None"
        )

    @property
    def composition(self) -> Composition:
        """The content of the file."""
        return load_composition(self.file)

    @property
    def label(self) -> str:
        return f"{self.name}, {self.composition.name}"

    def _has_tool_that(self, attribute: str) -> bool:
        return any(getattr(tool, attribute, False) for tool in self.composition.tools.values())

    @property
    def searches(self) -> bool:
        return self._has_tool_that("searches")

    @property
    def asks_model(self) -> bool:
        return self._has_tool_that("asks_model")

    def provenance(self) -> dict[str, Any]:
        composition = self.composition
        return {
            "file": composition.name,
            "digest": composition.digest,
            "rewards": list(self.reward_components),
            "tools": list(composition.tools),
        }

    def for_session(self, session_id: int, group_size: int, validate: bool) -> Compose:
        """With a ladder, the method with the rollout's rung. The rollout's number in the group selects the rung."""
        if validate or self.rung is not None or not isinstance(self.composition.initial_frames, Ladder):
            return self
        return replace(self, num_rungs=group_size, rung=session_id % group_size + 1)

    # ------------------------------------------------------------------------------------------------ prompt and tools

    def plan_initial_frames(self, info: vt.VideoInfo, sample: vt.Sample, envelope: vt.PixelEnvelope) -> vt.FrameRequest:
        return self.composition.initial_frames.request(info, envelope, self.rung, self.num_rungs)

    def prompt(self, sample: vt.Sample, info: vt.VideoInfo, images: Sequence[vt.ImagePart]) -> list[vt.Message]:
        """The system prompt, and then the message `user`."""
        schemas = [
            vt.tool_schema(tool.name, tool.description, tool.parameters, tool.optional)
            for tool in self.composition.descriptions.values()
        ]
        user = vt.render(self, "user", question=sample.question.rstrip(), frames=self._labelled(images, info))
        return vt.initial_messages(
            self,
            __package__,
            user,
            duration=vt.format_seconds(info.duration_seconds, decimals=1),
            initial_frames=len(images),
            max_turns=self.max_turns,
            tools=tools_section(schemas, self.tools_section) if schemas else "",
        )

    def message_templates(self) -> Mapping[str, vt.Template]:
        return self.composition.messages

    def parse(self, text: str) -> vt.ParsedTurn:
        return vt.refuse_surplus_calls(vt.parse_turn(text), self.max_calls_per_turn)

    def tools(self, info: vt.VideoInfo) -> Mapping[str, vt.Tool]:
        return self.composition.tools

    def observe(self, outcomes: Sequence[vt.ToolOutcome], turns_left: int) -> vt.Content:
        """The observation: answers to the calls of a turn, in the order of the calls."""
        return vt.joined(map(self._answer, outcomes), ("\n",))

    def _answer(self, outcome: vt.ToolOutcome) -> vt.Content:
        """The message `observation`, `result` or `refusal` of one call."""
        record, composition = outcome.record, self.composition
        if not record.ok:
            return vt.render(self, "refusal", error=str(vt.format_error(record)))
        if outcome.images or outcome.pictures:
            # An estimate of what a call costs names no tool, and no video.
            unit: vt.BoxUnit = getattr(composition.tools.get(record.name), "unit", "pixels")
            frames = self._labelled(outcome.images, outcome.video, unit)
            return vt.render(self, "observation", frames=vt.with_text(outcome, frames))
        text = record.text
        if text is None and (in_words := composition.descriptions[record.name].result_text) is not None:
            text = in_words(record.arguments, record.result)
        return vt.render(self, "result", text=text or "")

    def _labelled(
        self, images: Sequence[vt.ImagePart], video: vt.VideoInfo | None, unit: vt.BoxUnit = "pixels"
    ) -> vt.Content:
        """Each frame on a line of its own, in the message `frame`. A part of a frame is in the message `picture`.

        Args:
            unit: the unit of the boxes in the labels of parts.
        """
        return vt.joined((self._labelled_frame(image, video, unit) for image in images), ("\n",))

    def _labelled_frame(self, image: vt.ImagePart, video: vt.VideoInfo | None, unit: vt.BoxUnit) -> vt.Content:
        record = image.record
        if video is not None and record.region is not None:
            return vt.render(self, "picture", image=(image,), label=vt.picture_label(record, video, unit))
        seconds = f"{record.timestamp_seconds:.1f}"
        return vt.render(self, "frame", image=(image,), index=str(record.index), seconds=seconds)

    # ---------------------------------------------------------------------------------------------------------- reward

    async def components(
        self, trajectory: vt.Trajectory, sample: vt.Sample, judge: vt.Judge | None
    ) -> dict[str, float]:
        """The values of the reward terms in the file, with this config's weight of `accuracy`.

        Raises:
            JudgeError: the judge gave no verdict.
        """
        composition = self.composition
        parameters = {name: tool.parameters.keys() for name, tool in composition.descriptions.items()}
        rollout = ScoringContext(trajectory, sample, judge, parameters)
        terms = [
            replace(term, weight=self.accuracy_reward) if term.key == "accuracy" else term for term in composition.terms
        ]
        return await components(terms, rollout)
