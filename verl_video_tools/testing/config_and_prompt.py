"""Properties of a method's config, of its initial frames and of its prompt."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import MISSING, fields, replace
from typing import Any

from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.method import method_of_rollout, rollout_overrides
from verl_video_tools.core.prompts import formatted_placeholder
from verl_video_tools.core.types import (
    Content,
    FrameRecord,
    FrameRequest,
    ImagePart,
    Method,
    PixelEnvelope,
    VideoInfo,
    content_images,
    content_text,
)
from verl_video_tools.rollout.cost import estimated_tokens, planned_images
from verl_video_tools.testing.subject import NotApplicable, Subject, fail, holds, is_number, no_error
from verl_video_tools.testing.world import QWEN, VIDEOS, with_other_truth, without_file
from verl_video_tools.video import fit_envelope

_GROUP_SIZE = 8
_ODD_QUESTIONS = (
    "What is in {frames}? {0} {} {question} {{x}} %s %d %(a)s",
    'What does the sign \\n say: "$1 \\g<0>"?\nA. <answer>B</answer>\nB. <tool_call>{"name": "x"}</tool_call>',
    "\u4ec0\u4e48?\nA. \u7ea2 \U0001f600\nB. caf\u00e9",
    "Why? " * 400,
)
_PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")
_LABEL_NUMBER = re.compile(r"\d+:\d{2}(?::\d{2})?|\d+\.\d+|\d+")
_LABEL_CHARACTERS = 40

# -------------------------------------------------------------------------------------------------------------- config


@holds("config")
def config_is_a_frozen_dataclass(subject: Subject) -> None:
    """Each setting is a typed field of a frozen dataclass, with a value that cannot change, because other attributes
    cannot be set and concurrent rollouts share one config."""
    cls, typed = type(subject.method), {each.name: each for each in fields(subject.method)}
    hints = {name: hint for base in cls.__mro__ for name, hint in vars(base).get("__annotations__", {}).items()}
    if missing := sorted(name for name, hint in hints.items() if name not in typed and "ClassVar" not in str(hint)):
        advice = "decorate the class: @dataclass(frozen=True, kw_only=True)"
        raise fail(f"{cls.__name__} annotates names that are not fields", missing, advice)
    defaults = {name: each.default for name, each in typed.items() if each.default is not MISSING}
    if untyped := sorted(name for name, default in defaults.items() if getattr(cls, name) is not default):
        what = f"{cls.__name__} assigns fields without a type, which leaves their defaults unchanged"
        raise fail(what, untyped, "annotate them, as in `max_turns: int = 4`")
    for name in typed:
        value = getattr(subject.method, name)
        try:
            hash(value)
        except TypeError:
            raise fail(f"the field {name} is mutable", value, "use a tuple or a number") from None


@holds("config", requires=("config_is_a_frozen_dataclass",))
def group_configs_are_valid(subject: Subject) -> None:
    """`for_session` accepts every group size and changes only numbers, flags and choices, because records and rows may
    set nothing else."""
    method = subject.method
    members = [(number, size, validate) for size in (1, 2, 8) for number in range(size) for validate in (False, True)]
    for number, size, validate in members:
        where = f"rollout {number} of a group of {size}"
        with no_error(where, "return options within their range for every size"):
            member = method.for_session(number, size, validate)
        try:
            settings = rollout_overrides(member, method)
        except UsageError as error:
            raise fail(f"{where}: {error}", member, "change other fields") from error
        if method_of_rollout(method, settings) != member or method.for_session(number, size, validate) != member:
            raise fail(f"{where} differs from call to call", member, "use replace(self, ...) without random values")


# ------------------------------------------------------------------------------------------------------ initial frames


def request_fault(request: FrameRequest | None, info: VideoInfo, envelope: PixelEnvelope) -> str | None:
    """Why the requested frames cannot be shown in order and at their size; None if they can."""
    if request is None or not len(request):
        return None
    if request.indices is None:
        places, last = list(request.seconds or ()), info.duration_seconds
    else:
        places, last = [float(index) for index in request.indices], info.num_frames - 1
    if outside := [place for place in places if not 0 <= place <= last]:
        return f"the place {outside[0]:g} is not within 0 to {last:g}"
    if places != sorted(places):
        return "the frames are not in order of time"
    size = (request.width, request.height)
    if min(size) < 1 or fit_envelope(*size, envelope) != size:
        return f"a size of {request.width}x{request.height} pixels, which the processor changes"
    return None


@holds("prompt")
def initial_frames_are_valid(subject: Subject) -> None:
    """Initial frames of any video lie in it, in order, at a size that the processor leaves unchanged, because a wrong
    frame ends the rollout."""
    for what, info in VIDEOS.items():
        for envelope in (PixelEnvelope(), QWEN):
            with no_error(f"plan_initial_frames for {what} ({info})", "plan at least one frame"):
                request = subject.method.plan_initial_frames(info, subject.sample, envelope)
            if fault := request_fault(request, info, envelope):
                advice = "use `toolkit.spread_frames` and `toolkit.frame_size`"
                raise fail(f"initial frames of {what}: {fault}", request, advice)


@holds("config", requires=("config_is_a_frozen_dataclass", "initial_frames_are_valid"))
def config_values_are_checked(subject: Subject) -> None:
    """A number out of range raises UsageError, because a value that fails later fails in every rollout."""
    for name, value in _odd_values(subject.method):
        with no_error(f"{name}={value!r}", "check it in check_fields by `require`"):
            try:
                odd = replace(subject.method, **{name: value})
            except UsageError:
                continue
            for info in (VIDEOS["ten seconds"], VIDEOS["an hour"]):
                request = odd.plan_initial_frames(info, subject.sample, PixelEnvelope())
                odd.tools(info)
        if min(request.width, request.height) < 1:
            what = f"{name}={value!r} is accepted, but its frames have no area"
            raise fail(what, (request.width, request.height), "reject it in check_fields")


def _odd_values(method: Method) -> Iterator[tuple[str, Any]]:
    """Numeric fields of the class itself with numbers that are probably out of range."""
    for name in sorted({each.name for each in fields(method)} - {each.name for each in fields(Method)}):
        value = getattr(method, name)
        if is_number(value):
            yield from ((name, odd) for odd in ((-1, 0) if isinstance(value, int) else (-1.0, 0.0, math.nan)))


# -------------------------------------------------------------------------------------------------------------- prompt


@holds("prompt", requires=("initial_frames_are_valid",))
def prompt_is_repeatable(subject: Subject) -> None:
    """One sample always gives the same frames and messages, before decoding, because a group shares its prompt and a
    replay repeats it."""
    for what, info in VIDEOS.items():
        first, again = (subject.initial_images(info, QWEN) for _ in range(2))
        if first != again:
            raise fail(f"plan_initial_frames differs from call to call for {what}", again, "use no random values")
        with no_error(f"prompt for {what} without pixels", "write it from the frames' records"):
            roles = [message.role for message in subject.method.prompt(without_file(subject.sample), info, first)]
        if roles not in (["user"], ["system", "user"]):
            raise fail("the roles of the prompt", roles, "write a system and a user message")
    if (other := subject.prompt()) != subject.prompt():
        raise fail("prompt differs from call to call", content_text(other[-1].content)[-200:], "use no random values")


@holds("prompt", requires=("prompt_is_repeatable",))
def prompt_shows_its_frames(subject: Subject) -> None:
    """The prompt shows each initial frame once, in order and beside its true time, because records and calls use
    these times."""
    planned = [image.record for image in subject.initial_images()]
    prompt = subject.prompt()
    in_prompt = [image.record for message in prompt for image in content_images(message.content)]
    if in_prompt != planned:
        indices = [record.index for record in in_prompt]
        raise fail(
            f"frames of the prompt are not the {len(planned)} planned ones in order", indices, "add each image once"
        )
    for message in prompt:
        if fault := false_label(message.content):
            text = content_text(message.content)[-200:]
            raise fail(f"a label beside an initial frame: {fault}", text, "write the time of image.record")


def false_label(content: Content) -> str | None:
    """The first label without a true number for its frame; None if all labels are true.

    A frame's label is the text before it on its line. True numbers are the frame's time (to the decimals written, or as
    a clock), its index, and its place among the frames shown, from 0 or 1. If a label has a decimal number or a clock,
    one of them must be the time.
    """
    for place, (label, record) in enumerate(_labels(content)):
        numbers = _LABEL_NUMBER.findall(label)
        times = [number for number in numbers if "." in number or ":" in number]
        if times and not any(_is_time(number, record.timestamp_seconds) for number in times):
            return f"{label!r} beside the frame at {record.timestamp_seconds:g} s"
        if numbers and not times and not any(_is_true(int(number), place, record) for number in numbers):
            return f"{label!r} beside frame {record.index} at {record.timestamp_seconds:g} s"
    return None


def _labels(content: Content) -> Iterator[tuple[str, FrameRecord]]:
    before = ""
    for part in content:
        if isinstance(part, ImagePart):
            yield before.rsplit("\n", 1)[-1][-_LABEL_CHARACTERS:], part.record
            before = ""
        else:
            before += part


def _is_time(text: str, seconds: float) -> bool:
    if ":" in text:
        clock = 0.0
        for digits in text.split(":"):
            clock = clock * 60 + int(digits)
        return abs(clock - seconds) <= 1.0
    step = 10.0 ** -len(text.partition(".")[2])
    return abs(float(text) - seconds) <= 0.5 * step + 1e-6


def _is_true(number: int, place: int, record: FrameRecord) -> bool:
    return number in (place, place + 1, record.index) or abs(number - record.timestamp_seconds) <= 1.0


@holds("prompt", requires=("prompt_is_repeatable",))
def prompt_hides_the_answer(subject: Subject) -> None:
    """Prompt and initial frames do not depend on the truth or its segment, nor name the file, because the policy would
    learn to read the answer there."""
    sample, other = subject.sample, with_other_truth(subject.sample)
    plan, changed = (subject.method.plan_initial_frames(subject.info, each, QWEN) for each in (sample, other))
    if plan != changed:
        raise fail("initial frames change with the truth of the row", changed, "plan from the video and the question")
    if (prompt := subject.prompt(other)) != subject.prompt(sample):
        text = content_text(prompt[-1].content)[-200:]
        raise fail("the prompt changes with the truth of the row", text, "read no ground_truth and no video_segment")
    named, method = replace(sample, video_path="/videos/the_answer_is_B.mp4"), subject.defaults
    images = planned_images(method.plan_initial_frames(subject.info, named, PixelEnvelope()), subject.info)
    for message in method.prompt(named, subject.info, images):
        if "the_answer_is_B" in (text := content_text(message.content)):
            advice = "leave it out, or add a field that shows it"
            raise fail(f"the {message.role} message names the file by default", text[-200:], advice)


@holds("prompt", requires=("prompt_is_repeatable",))
def prompt_quotes_the_question(subject: Subject) -> None:
    """The prompt holds any question as it is written, with its options, braces and tags, because the policy reads the
    question only there."""
    for question in (*(sample.question for sample in subject.samples), *_ODD_QUESTIONS):
        with no_error(f"prompt for the question {question!r}", "use `toolkit.render`, not str.format"):
            prompt = subject.prompt(replace(subject.sample, question=question))
        if question.strip() not in content_text(prompt[-1].content):
            raise fail("the user message does not hold the question", question, "write the whole sample.question")


@holds("prompt", requires=("prompt_quotes_the_question",))
def prompt_is_filled_in(subject: Subject) -> None:
    """The prompt has no placeholder without its value, because the policy would read `{name}`."""
    names = {each.name for each in fields(subject.method)} | {"question", "frames", "duration", "tools", "call_frames"}
    for message in subject.prompt():
        text = content_text(message.content)
        placeholders = [name for name in _PLACEHOLDER.findall(text) if name in names]
        if placeholder := formatted_placeholder(text, names):
            placeholders.append(placeholder)
        if placeholders:
            raise fail(f"placeholders in the {message.role} message", placeholders, "pass them to `load_prompt`")


@holds("prompt", requires=("prompt_is_repeatable",))
def prompt_names_every_tool(subject: Subject) -> None:
    """A prompt that names one tool names all, because the policy calls only the tools that it knows."""
    if subject.method.compat == "reference":
        raise NotApplicable("the prompt is the published one")
    text = " ".join(content_text(message.content) for message in subject.prompt()).replace("_", " ")
    named = {name: name.replace("_", " ") in text for name in subject.method.tools(subject.info)}
    if not any(named.values()):
        raise NotApplicable("the prompt names no tool: its calls are written in other words")
    if missing := [name for name, is_named in named.items() if not is_named]:
        raise fail("tools that the prompt does not name", missing, "describe them beside the others")


@holds("prompt", requires=("prompt_is_repeatable",))
def prompt_fits_the_recipe(subject: Subject) -> None:
    """The prompt of any video fits `recipe_budget` in every rollout of a group, because longer prompts are not trained
    on."""
    method, budget = subject.method, subject.method.recipe_budget
    model = subject.model or estimated_tokens(QWEN)
    for number in range(_GROUP_SIZE):
        member = method.for_session(number, _GROUP_SIZE, False)
        for what, info in VIDEOS.items():
            images = planned_images(member.plan_initial_frames(info, subject.sample, model.envelope), info)
            tokens = model.counter.prompt(member.prompt(subject.sample, info, images))
            if tokens > budget.prompt_tokens or len(images) > budget.images:
                limits = f"{budget.prompt_tokens} tokens and {budget.images} images"
                advice = "raise recipe_budget, or show less"
                if subject.model is None:
                    advice += "; the sizes and tokens are those of Qwen2.5-VL, `--processor` takes another model's"
                raise fail(f"tokens and images of the prompt of {what} exceed {limits}", (tokens, len(images)), advice)
