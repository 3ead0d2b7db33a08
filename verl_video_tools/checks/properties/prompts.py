"""Properties of the initial frames, and of what is written with them."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from verl_video_tools.checks.byte_tokens import estimated_tokens
from verl_video_tools.checks.labels import false_label
from verl_video_tools.checks.outcome import NotApplicable, fail
from verl_video_tools.checks.registry import holds
from verl_video_tools.checks.requests import request_fault
from verl_video_tools.checks.subject import Subject
from verl_video_tools.checks.world import QWEN, VIDEOS, with_other_truth, without_file
from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.templates import formatted_placeholder
from verl_video_tools.core.types import (
    CallRecord,
    ImagePart,
    Message,
    PixelEnvelope,
    ToolOutcome,
    content_images,
    content_text,
)
from verl_video_tools.rollout.cost import planned_images

_PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")
_GROUP_SIZE = 8
ODD_QUESTIONS = (
    "What is in {frames}? {0} {} {question} {{x}} %s %d %(a)s",
    'What does the sign \\n say: "$1 \\g<0>"?\nA. <answer>B</answer>\nB. <tool_call>{"name": "x"}</tool_call>',
    "\u4ec0\u4e48?\nA. \u7ea2 \U0001f600\nB. caf\u00e9",
    "Why? " * 400,
)


@holds("prompts")
def initial_frames_of_any_video(subject: Subject) -> None:
    """`plan_initial_frames` plans for any length and shape of video, because data sets hold videos of one frame."""
    for what, info in VIDEOS.items():
        for envelope in (PixelEnvelope(), QWEN):
            try:
                subject.method.plan_initial_frames(info, subject.sample, envelope)
            except Exception as error:
                raise fail(
                    f"plan_initial_frames raises for {what} ({info})", error, "plan at least one frame"
                ) from error


@holds("prompts", requires=("initial_frames_of_any_video",))
def initial_frames_lie_in_the_video(subject: Subject) -> None:
    """Initial frames are in order and within the video, because a frame outside it ends the rollout."""
    for what, info in VIDEOS.items():
        request = subject.method.plan_initial_frames(info, subject.sample, PixelEnvelope())
        if fault := request_fault(request, info):
            raise fail(
                f"initial frames of {what}: {fault}", request, "spread them over the video (`toolkit.spread_frames`)"
            )


@holds("prompts", requires=("initial_frames_of_any_video",))
def initial_frames_fit_the_processor(subject: Subject) -> None:
    """Initial frames have sizes that the processor leaves untouched, because a frame resized twice is another one."""
    for what, info in VIDEOS.items():
        request = subject.method.plan_initial_frames(info, subject.sample, QWEN)
        if len(request) and (fault := size_fault(request.width, request.height)):
            raise fail(
                f"initial frames of {what}: {fault}", (request.width, request.height), "use `toolkit.frame_size`"
            )


def size_fault(width: int, height: int) -> str | None:
    """Why a processor would resize a frame; None where it would not."""
    if width % QWEN.factor or height % QWEN.factor:
        return f"sides are no multiples of {QWEN.factor}"
    if not QWEN.min_pixels <= width * height <= QWEN.max_pixels:
        return f"the area is not within {QWEN.min_pixels} to {QWEN.max_pixels} pixels"
    return None


@holds("prompts", requires=("initial_frames_of_any_video",))
def initial_frames_are_repeatable(subject: Subject) -> None:
    """The same sample and video give the same initial frames, because a replay must show what was seen."""
    for info in VIDEOS.values():
        first, again = (subject.method.plan_initial_frames(info, subject.sample, QWEN) for _ in range(2))
        if first != again:
            raise fail("plan_initial_frames differs from call to call", again, "draw nothing; let the video decide")


@holds("prompts", requires=("initial_frames_of_any_video",))
def prompt_of_any_video(subject: Subject) -> None:
    """`prompt` is written for any video before a pixel is decoded, because budgets are asked with it."""
    for what, info in VIDEOS.items():
        try:
            subject.method.prompt(without_file(subject.sample), info, subject.planned(info))
        except Exception as error:
            raise fail(f"prompt raises for {what} without pixels", error, "write it from records alone") from error


@holds("prompts", requires=("prompt_of_any_video",))
def prompt_is_messages(subject: Subject) -> None:
    """The prompt is a system and a user message of texts and images, because chat templates take these."""
    prompt: Any = subject.prompt()
    if not isinstance(prompt, list) or not all(isinstance(message, Message) for message in prompt):
        raise fail("the prompt", prompt, "write a list of Messages")
    roles = [message.role for message in prompt]
    if roles not in (["user"], ["system", "user"]):
        raise fail("roles of the prompt", roles, "write a system message, then a user message")
    for message in prompt:
        content: Any = message.content
        if not isinstance(content, tuple) or not all(isinstance(part, str | ImagePart) for part in content):
            raise fail(f"content of the {message.role} message", content, "write a tuple of texts and ImageParts")


@holds("prompts", requires=("prompt_is_messages", "initial_frames_are_repeatable"))
def prompt_is_repeatable(subject: Subject) -> None:
    """The same sample gives the same prompt, because the rollouts of a group share its tokens in the engine."""
    first, again = subject.prompt(), subject.prompt()
    if first != again:
        raise fail("prompt differs from call to call", content_text(again[-1].content)[-200:], "draw nothing")


@holds("prompts", requires=("prompt_is_messages",))
def prompt_asks_the_question(subject: Subject) -> None:
    """The user's message holds the question as the row has it, options included, because nothing else asks it."""
    for sample in subject.samples:
        asked = "".join(content_text(message.content) for message in subject.prompt(sample) if message.role == "user")
        if sample.question.strip() not in asked:
            raise fail("the prompt does not hold the question", sample.question, "write sample.question whole")


@holds("prompts", requires=("prompt_asks_the_question",))
def prompt_asks_any_question(subject: Subject) -> None:
    """A question with braces, signs or tags is asked as it is written, because data sets hold such questions."""
    for question in ODD_QUESTIONS:
        try:
            prompt = subject.prompt(replace(subject.sample, question=question))
        except Exception as error:
            raise fail(
                f"prompt raises for the question {question!r}", error, "use `toolkit.render`, not str.format"
            ) from error
        if question.strip() not in "".join(content_text(message.content) for message in prompt):
            raise fail("the prompt does not hold the question", question, "write sample.question whole")


@holds("prompts", requires=("prompt_is_messages",))
def prompt_tells_of_each_tool(subject: Subject) -> None:
    """A prompt that names tools names all, because the policy calls only what it is told of."""
    if getattr(subject.method, "compat", "strict") == "reference":
        raise NotApplicable("its prompt is the published one")
    told = " ".join(content_text(message.content) for message in subject.prompt()).replace("_", " ")
    is_told = {name: name.replace("_", " ") in told for name in subject.method.tools(subject.info)}
    if not any(is_told.values()):
        raise NotApplicable("the prompt names no tool: calls are written in other words")
    if hidden := [name for name, is_named in is_told.items() if not is_named]:
        raise fail("the prompt does not name", hidden, "describe them beside the others")


@holds("prompts", requires=("prompt_is_messages",))
def prompt_hides_the_file(subject: Subject) -> None:
    """With the default config the prompt does not name the video's file, because a name may tell the answer."""
    sample = replace(subject.sample, video_path="/videos/the_answer_is_B.mp4")
    request = subject.defaults.plan_initial_frames(subject.info, sample, PixelEnvelope())
    images = planned_images(request, subject.info)
    for message in subject.defaults.prompt(sample, subject.info, images):
        if "the_answer_is_B" in content_text(message.content):
            text = content_text(message.content)
            raise fail(
                f"the {message.role} message names the file", text[-200:], "leave it out, or let a field ask for it"
            )


@holds("prompts", requires=("prompt_is_messages", "initial_frames_are_repeatable"))
def prompt_shows_its_frames(subject: Subject) -> None:
    """The prompt shows each initial frame once and in order, because records say so and tokens are counted so."""
    planned = subject.planned()
    shown = [image for message in subject.prompt() for image in content_images(message.content)]
    if [image.record for image in shown] != [image.record for image in planned]:
        indices = [image.record.index for image in shown]
        raise fail(
            f"frames of the prompt are not the {len(planned)} planned ones in order", indices, "put in each image once"
        )


@holds("prompts", requires=("prompt_shows_its_frames",))
def prompt_tells_true_times(subject: Subject) -> None:
    """A number beside a frame is its time, its index or its place in the row, because the policy calls by it."""
    for message in subject.prompt():
        if fault := false_label(message.content):
            raise fail(
                f"a label beside an initial frame: {fault}",
                content_text(message.content)[-200:],
                "write image.record's",
            )


@holds("prompts", requires=("prompt_is_messages",))
def prompt_is_filled_in(subject: Subject) -> None:
    """No placeholder of a field stands unfilled in the prompt, because the policy would read `{name}`."""
    names = {own.name for own in fields(subject.method)} | {"question", "frames", "duration", "tools", "call_frames"}
    for message in subject.prompt():
        text = content_text(message.content)
        unfilled = [name for name in _PLACEHOLDER.findall(text) if name in names]
        if formatted := formatted_placeholder(text, names):
            unfilled.append(formatted)
        if unfilled:
            raise fail(
                f"the {message.role} message holds unfilled placeholders", unfilled, "give them to `load_prompt`"
            )


@holds("prompts", requires=("prompt_is_repeatable",))
def prompt_hides_the_truth(subject: Subject) -> None:
    """Prompt and initial frames do not depend on the truth or its place, because policies would learn to read them."""
    sample = subject.sample
    changed = with_other_truth(sample)
    plans = [subject.method.plan_initial_frames(subject.info, each, QWEN) for each in (sample, changed)]
    if plans[0] != plans[1]:
        raise fail("initial frames change with the truth of the row", plans[1], "plan from the video and the question")
    if (told := subject.prompt(changed)) != subject.prompt(sample):
        text = content_text(told[-1].content)
        raise fail(
            "the prompt changes with the truth of the row",
            text[-200:],
            "write nothing of ground_truth or video_segment",
        )


@holds("prompts", requires=("prompt_is_messages", "initial_frames_fit_the_processor"))
def prompt_fits_the_recipe(subject: Subject) -> None:
    """The prompt of an hour of video fits `recipe_budget` in each rollout of a group, because else none would train."""
    budget = subject.method.recipe_budget
    envelope = QWEN if subject.model is None else subject.model.envelope
    for number in range(_GROUP_SIZE):
        member = subject.method.for_session(number, _GROUP_SIZE, False)
        for what, info in VIDEOS.items():
            images = planned_images(member.plan_initial_frames(info, subject.sample, envelope), info)
            prompt = member.prompt(subject.sample, info, images)
            tokens = estimated_tokens(prompt) if subject.model is None else subject.model.counter.prompt(prompt)
            needed = (tokens, len(images))
            if tokens > budget.prompt_tokens or len(images) > budget.images:
                reserved = f"{budget.prompt_tokens} tokens, {budget.images} images"
                raise fail(f"the prompt of {what} (tokens, images) exceeds {reserved}", needed, _advice(subject))


@holds("prompts", requires=("prompt_fits_the_recipe", "observations_are_pure", "plans_fit_the_processor"))
def a_call_fits_the_recipe(subject: Subject) -> None:
    """After the first frames of an hour of video a call fits `recipe_budget`, because else none is executed."""
    info, budget = VIDEOS["an hour"], subject.method.recipe_budget
    request = subject.method.max_cost_call(info, subject.sample, QWEN)
    if request is None:
        raise NotApplicable("max_cost_call does not say")
    if fault := size_fault(request.width, request.height):
        raise fail(f"max_cost_call: {fault}", (request.width, request.height), "use `toolkit.frame_size`")
    images = planned_images(request, info)
    try:
        content = subject.method.observe([ToolOutcome(CallRecord("", {}, ok=True), images, info)], 1)
    except Exception as error:
        raise NotApplicable(f"observe wants more of a call than its frames: {error!r}") from error
    first = len(subject.method.plan_initial_frames(info, subject.sample, QWEN))
    tokens = estimated_tokens([Message("user", content)])
    needed = (tokens, first + len(images))
    if tokens > budget.response_tokens or first + len(images) > budget.images:
        reserved = f"{budget.response_tokens} tokens, {budget.images} images"
        raise fail(f"the dearest call (tokens, images with the first) exceeds {reserved}", needed, _advice(subject))


def _advice(subject: Subject) -> str:
    """What to do about a budget that is exceeded."""
    if subject.model is not None:
        return "reserve more, or show less"
    return (
        "reserve more, or show less; or, if the method is for another model than Qwen2.5-VL, whose sizes and tokens "
        "are assumed, name the folder of its processor (`--processor`)"
    )


@holds("prompts", requires=("prompt_is_messages",))
def prompt_file_replaces_the_prompt(subject: Subject) -> None:
    """`prompt_file` replaces the system prompt, because released checkpoints are run with their own."""
    text = "These words are the user's own."
    with TemporaryDirectory() as folder:
        path = Path(folder) / "prompt.txt"
        path.write_text(text, encoding="utf-8")
        method = replace(subject.method, prompt_file=str(path))
        prompt = method.prompt(subject.sample, subject.info, subject.planned())
    if text not in content_text(prompt[0].content):
        raise fail(
            "the system prompt with a `prompt_file`", content_text(prompt[0].content)[:100], "use `toolkit.load_prompt`"
        )


@holds("prompts", requires=("prompt_is_repeatable",))
def templates_can_be_replaced(subject: Subject) -> None:
    """A `templates_file` with the packaged texts changes nothing, because users start from these."""
    templates = subject.method.message_templates()
    if not templates:
        raise NotApplicable("the method has no message templates")
    with TemporaryDirectory() as folder:
        path = Path(folder) / "templates.toml"
        lines = [f"{name} = {_toml(template.text)}" for name, template in templates.items()]
        path.write_text("\n".join(lines), encoding="utf-8")
        try:
            method = replace(subject.method, templates_file=str(path))
        except UsageError as error:
            raise fail(
                "the packaged templates are refused as a templates_file", error, "mend `once` of the template"
            ) from error
        if method.prompt(subject.sample, subject.info, subject.planned()) != subject.prompt():
            raise fail("the prompt with the packaged texts as templates_file differs", lines[0], "use `toolkit.render`")


def _toml(text: str) -> str:
    escapes = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}
    return '"' + "".join(escapes.get(character, character) for character in text) + '"'
