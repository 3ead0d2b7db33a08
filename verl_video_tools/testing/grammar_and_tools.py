"""Properties of how a method reads turns, plans calls and answers them."""

from __future__ import annotations

import copy
import json
import math
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from verl_video_tools.core.errors import (
    FAILURE_CODES,
    CallError,
    CallErrorCode,
    CallRejected,
    SetupError,
    UsageError,
    VideoToolsError,
)
from verl_video_tools.core.types import (
    CallRecord,
    FrameRecord,
    FrameRequest,
    ImagePart,
    ParsedTurn,
    PixelEnvelope,
    ToolCall,
    ToolOutcome,
    ToolPlan,
    VideoInfo,
    content_images,
    content_text,
    with_pixels,
)
from verl_video_tools.testing.config_and_prompt import false_label, request_fault
from verl_video_tools.testing.subject import (
    Failed,
    NotApplicable,
    Subject,
    fail,
    holds,
    is_number,
    no_error,
    parse,
    variations,
)
from verl_video_tools.testing.world import QWEN, VIDEOS, with_other_truth

_HOSTILE = (
    *("", " ", "\x00", "\ud800", "B", "A B C D", "<answer></answer>", "<answer>B", "</answer>B<answer>", "{" * 500),
    *("<answer>A</answer><answer>B</answer>", "<think>", "<tool_call></tool_call>", "<tool_call>[]</tool_call>"),
    *('<tool_call>{"name": null}</tool_call>', '<tool_call>{"name": ["x"], "arguments": [1]}</tool_call>'),
    *("<tool_call>" + "[" * 3000 + "</tool_call>", '<tool_call>{"name": "x", "arguments": {"a": NaN}}</tool_call>'),
    *("<answer>" + "B" * 20_000 + "</answer>", "get frame number at time ", "{0} {frames} %s"),
)
"""Texts that follow no grammar."""
_ODD_VALUES: tuple[Any, ...] = (
    *(None, True, 0, -1, 2.5, 10**30, 1e308, math.nan, math.inf, "", "A", "12", "99:99", "\ud800", "x" * 5000),
    *([], [1, 0], [-1, 1], ["a", "b"], [math.nan, 1], [[1, 2]], {}, {"a": 1}, "../other.mp4"),
)
_USUAL_TAGS = ("<think>", "<answer>", "<tool_call>", "<tool_call>{", "<", "{", '"', " ", "a", "<answer>a</answer")
_TAG = re.compile(r"</?\w+>|\w+\(")
_SLOW_PARSE_SECONDS = 0.1
_FRAME_SECONDS = 0.25
"""A little more than one frame of the world's video."""

# ------------------------------------------------------------------------------------------------------------- grammar


def _hostile_texts(subject: Subject) -> Iterator[str]:
    """Texts without a grammar, and example turns that are cut, doubled, reversed or quoted otherwise."""
    yield from _HOSTILE
    for turn in dict.fromkeys(subject.example_turns):
        yield from (turn[:length] for length in range(0, len(turn), max(1, len(turn) // 60)))
        yield from (turn * 2, turn[::-1], turn.upper(), turn.replace('"', "'"), re.sub(r"\d", "9" * 400, turn))


@holds("grammar")
def parse_accepts_any_text(subject: Subject) -> None:
    """`parse` returns a ParsedTurn with JSON arguments for any text, because a policy writes any text."""
    for text in _hostile_texts(subject):
        where = f"parse({text[:80]!r})"
        parsed: Any
        with no_error(where, "return a turn without calls"):
            parsed = subject.method.parse(text)
        if not isinstance(parsed, ParsedTurn) or not isinstance(parsed.calls, tuple):
            raise fail(where, parsed, "return a ParsedTurn whose calls are a tuple")
        if parsed.answer is not None and parsed.answer != str(parsed.answer).strip():
            raise fail(f"the answer of {where}", parsed.answer, "strip it")
        call: Any
        for call in parsed.calls:
            if not isinstance(call, ToolCall) or not isinstance(call.name, str):
                raise fail(f"a call of {where}", call, "return ToolCalls whose name is a text")
            with no_error(f"JSON of the arguments of {where}", "reject such a call"):
                json.dumps(dict(call.arguments), allow_nan=False, ensure_ascii=False).encode("utf-8", "surrogatepass")


@holds("grammar", requires=("parse_accepts_any_text",))
def parse_is_stateless(subject: Subject) -> None:
    """`parse` depends on the text alone, because all rollouts of a process share one config."""
    turns = [*subject.example_turns, *_HOSTILE]
    # A word that no other text has, so that `parse` reads each of these texts for the first time.
    texts = [text for number, turn in enumerate(turns) for text in (f"word{number} {turn}", f"{turn} word{number}")]
    first = [repr(subject.method.parse(text)) for text in texts]
    same = replace(subject.method)
    for text, before in zip(reversed(texts), reversed(first), strict=True):
        if (again := repr(same.parse(text))) != before:
            raise fail(f"parse({text[:80]!r}) returned {before:.200}, and later", again, "keep nothing between turns")


@holds("grammar", requires=("parse_accepts_any_text",))
def parse_takes_linear_time(subject: Subject) -> None:
    """`parse` takes time in proportion to the text, because one repetitive turn would delay all rollouts."""
    turns = list(dict.fromkeys(subject.example_turns))[:8]
    tags = [tag for turn in turns for tag in _TAG.findall(turn)]
    for unit in dict.fromkeys([*turns, *tags, *_USUAL_TAGS]):
        small, large = (_parse_seconds(subject, (unit * (size // len(unit) + 1))[:size]) for size in (4_000, 32_000))
        if large > _SLOW_PARSE_SECONDS and large > 24 * small:
            seconds = f"{small:.3f} s for 4,000 characters and {large:.3f} s for 32,000"
            raise fail(f"parse of {unit[:40]!r} repeated", seconds, "find tags by str.find (`toolkit.find_blocks`)")


def _parse_seconds(subject: Subject, text: str) -> float:
    """CPU time of the fastest of three calls; a fast call is not repeated."""
    fastest = math.inf
    for _ in range(3):
        started = time.thread_time()
        subject.method.parse(text)
        fastest = min(fastest, time.thread_time() - started)
        if fastest < _SLOW_PARSE_SECONDS:
            break
    return fastest


@holds("grammar", requires=("parse_accepts_any_text",))
def thought_tag_matches_the_grammar(subject: Subject) -> None:
    """`parse` reads a thought between the tags that `thought_tag` names, because it marks native reasoning."""
    tag = subject.method.thought_tag
    if tag is None:
        raise NotApplicable("the grammar has no thoughts")
    text = f"<{tag}>an idea</{tag}>"
    if (thought := subject.method.parse(text).thought) != "an idea":
        raise fail(f"the thought of {text!r}", thought, "set `thought_tag` to the grammar's tag, or to None")


@holds("grammar", requires=("parse_is_stateless", "prompt_is_repeatable"))
def example_turns_work(subject: Subject) -> None:
    """The example turns include an executed call of each tool and an answer, because other properties need them."""
    advice = "give turns for a video of 95 s in the class attribute `check_examples`, or by --turns FILE (a JSON list)"
    missing = [name for name in subject.tool_names if name not in subject.example_calls]
    if missing and subject.method.max_turns > 1:
        calling = [turn for turn in subject.example_turns if (parsed := parse(subject.method, turn)) and parsed.calls]
        if calling and not any(subject.method.continues_after(subject.method.parse(turn)) for turn in calling):
            raise fail("continues_after each example turn that calls", False, "return bool(parsed.calls)")
        errors = [str(call.error) for turn in calling[:3] for call in subject.run([turn]).calls() if not call.ok]
        refused = f" (refused: {'; '.join(errors)[:200]})" if errors else ""
        raise Failed(f"no example turn has an executed call of {', '.join(missing)}{refused}; {advice}")
    if subject.answer_form is None:
        raise Failed(f"no example turn has an answer that can be replaced by another; {advice}")


@holds("grammar", requires=("example_turns_work",))
def stop_strings_end_a_call(subject: Subject) -> None:
    """A turn up to its first stop string holds the whole call, because the engine stops there."""
    subject.call_turn()
    stops = subject.method.stop
    if not stops:
        raise NotApplicable("the method has no stop strings")
    for turn, _ in subject.example_calls.values():
        ends = [turn.find(stop) + len(stop) for stop in stops if stop in turn]
        if ends and not any(call.error is None for call in subject.method.parse(turn[: min(ends)]).calls):
            raise fail("a call cut at its stop string is not read", turn[: min(ends)], "let a stop string end the call")


# --------------------------------------------------------------------------------------------------------------- tools


@holds("tools", requires=("example_turns_work",))
def plans_open_no_video(subject: Subject) -> None:
    """A tool plans a call without opening a file, and sees frames only through `context.decode`, because the loop
    checks budgets and deadlines."""
    subject.call_turn()
    for call in subject.plan(subject.example_arguments()):
        if call.error is not None:
            advice = "plan from context.info, and get frames from `context.decode`"
            raise fail(f"{call}, an executed call, fails without the file", call.error, advice) from call.error
        if not isinstance(call.plan, ToolPlan):
            raise fail(f"{call} plans", call.plan, "return a ToolPlan")


@holds("tools", requires=("plans_open_no_video",))
def bad_calls_are_rejected(subject: Subject) -> None:
    """A call that cannot be planned raises CallRejected, or the error of the missing service, because other errors end
    the rollout."""
    subject.call_turn()
    examples = subject.example_arguments()
    bad = [(name, changed) for name, arguments in examples for changed in _bad_arguments(arguments, subject.info)]
    bare = replace(subject.sample, subtitles=(), options=())
    for call in [*subject.plan(bad), *subject.plan(examples, sample=bare, with_services=False)]:
        error = call.error
        if error is None:
            continue
        if not isinstance(error, VideoToolsError) or isinstance(error, UsageError | SetupError):
            advice = "check each argument and service, and raise CallRejected, VideoError or ToolModelError"
            raise fail(f"{call} raises", error, advice) from error
        if isinstance(error, CallRejected) and (error.code in FAILURE_CODES or not error.message.strip()):
            advice = "choose a code that blames the call, and say what is accepted"
            raise fail(f"{call} is rejected with", error, advice)


def _bad_arguments(valid: Mapping[str, Any], info: VideoInfo) -> Iterator[dict[str, Any]]:
    """Arguments left out, of other types, out of range and out of order."""
    yield {}
    for parameter in valid:
        yield {key: value for key, value in valid.items() if key != parameter}
        yield from ({**valid, parameter: odd} for odd in _ODD_VALUES)
    yield {**valid, "no_such_argument": 1}
    yield from variations(valid, info)


@holds("tools", requires=("plans_open_no_video",))
def plans_ignore_the_truth(subject: Subject) -> None:
    """A call always plans the same, whatever the truth of its row, because the policy would be led to the answer."""
    subject.call_turn()
    other = with_other_truth(subject.sample)
    first, again, changed = (subject.plan(subject.example_arguments(), sample=each) for each in (None, None, other))
    for before, repeated, after in zip(first, again, changed, strict=True):
        if before.plan != repeated.plan:
            raise fail(f"{before} planned {before.plan!r:.160}, and then", repeated.plan, "use no random values")
        if before.plan != after.plan:
            got, advice = after.plan or after.error, "plan from the arguments and context.info"
            raise fail(f"{before} planned {before.plan!r:.160}, and with another truth", got, advice)


@holds("tools", requires=("plans_ignore_the_truth",))
def call_frames_are_valid(subject: Subject) -> None:
    """Frames of a call lie in the video, in order, at a size that the processor leaves unchanged, because a frame
    outside ends the rollout."""
    subject.call_turn()
    for what, info in {"the video": subject.info, **VIDEOS}.items():
        for envelope in (PixelEnvelope(), QWEN):
            for call in subject.accepted_calls(info, envelope):
                if fault := request_fault(call.frames, info, envelope):
                    advice = "reject the call (`out_of_range`), sort, or use `toolkit.frame_size`"
                    raise fail(f"{call} of {what}: {fault}", call.frames, advice)


@holds("tools", requires=("call_frames_are_valid",))
def call_frames_lie_in_the_requested_span(subject: Subject) -> None:
    """Frames of a call for a span lie in it, in seconds or in frames, and a reversed span is rejected, because the
    policy reads them as that span."""
    subject.call_turn()
    checked = 0
    for call in subject.accepted_calls():
        span = _span(call.arguments)
        if span is None or call.frames is None or not len(call.frames):
            continue
        checked += 1
        if span[0] > span[1]:
            raise fail(f"{call}, which ends before it starts, plans", call.frames, "reject it (`reversed_segment`)")
        seconds, indices = _places(call.frames, subject.info)
        if not (_within(seconds, span, _FRAME_SECONDS) or _within(indices, span, 1.0)):
            places = f"{seconds[0]:g} to {seconds[-1]:g} s, frames {indices[0]:g} to {indices[-1]:g}"
            raise fail(f"{call} shows frames outside its span", places, "plan from the arguments and context.info")
    if not checked:
        raise NotApplicable("no call with frames names the start and the end of a span")


def _span(arguments: Mapping[str, Any]) -> tuple[float, float] | None:
    """Start and end of the span that a call asks for, by the names of its arguments; None if it asks for none."""
    starts = [value for key, value in arguments.items() if "start" in key.casefold() and is_number(value)]
    ends = [value for key, value in arguments.items() if "end" in key.casefold() and is_number(value)]
    if len(starts) == len(ends) == 1:
        return float(starts[0]), float(ends[0])
    for key, value in arguments.items():
        # A pair under another name may be two frames, as `target_frames` of an example.
        named = any(word in key.casefold() for word in ("segment", "range", "interval", "window", "span"))
        if named and isinstance(value, list) and len(value) == 2 and all(map(is_number, value)):
            return float(value[0]), float(value[1])
    return None


def _places(request: FrameRequest, info: VideoInfo) -> tuple[list[float], list[float]]:
    """Times in seconds and indices of the requested frames of a video with evenly spaced frames."""
    if request.indices is not None:
        return [index / info.average_fps for index in request.indices], [float(index) for index in request.indices]
    times = list(request.seconds or ())
    return times, [time * info.average_fps for time in times]


def _within(places: list[float], span: tuple[float, float], slack: float) -> bool:
    return all(span[0] - slack <= place <= span[1] + slack for place in places)


@holds("tools", requires=("bad_calls_are_rejected",))
def tool_descriptions_match(subject: Subject) -> None:
    """A described tool exists, and takes and needs the described arguments, because models read the description."""
    described = {each.name: each for each in subject.method.tool_descriptions}
    if not described:
        raise NotApplicable("the method describes no tools for verl's own loop")
    if unknown := sorted(described.keys() - {*subject.tool_names, *subject.defaults.tools(subject.info)}):
        raise fail("descriptions of tools that the method does not have", unknown, "remove them, or add the tools")
    for name, valid in subject.example_arguments():
        if (about := described.get(name)) is None:
            continue
        if unknown := sorted(valid.keys() - about.parameters.keys()):
            raise fail(f"arguments of {name} without a description", unknown, "describe them")
        for parameter in about.parameters:
            (call,) = subject.plan([(name, {key: value for key, value in valid.items() if key != parameter})])
            rejected = isinstance(call.error, CallRejected)
            if rejected == (parameter in about.optional):
                got = "rejected" if rejected else "accepted"
                raise fail(f"{call} without its argument {parameter} is", got, "correct `optional` of the description")


# -------------------------------------------------------------------------------------------------------- observations


def _executed(subject: Subject) -> list[ToolOutcome]:
    """The example call of each tool, from its record, with images that are not decoded."""
    return [
        ToolOutcome(copy.deepcopy(record), tuple(map(ImagePart, record.frames)), subject.info, _made(record))
        for _, record in subject.example_calls.values()
        if record.ok
    ]


def _made(record: CallRecord) -> tuple[ImagePart, ...]:
    return tuple(
        ImagePart(FrameRecord(-1, 0.0, picture.width, picture.height, digest=picture.digest))
        for picture in record.pictures
    )


def _not_executed(subject: Subject, name: str, code: CallErrorCode, message: str) -> ToolOutcome:
    """A call that was not executed. A malformed call has only its text as arguments."""
    is_parsed = code not in (CallErrorCode.MALFORMED_CALL, CallErrorCode.UNKNOWN_TOOL)
    example = subject.example_calls.get(name) if is_parsed else None
    arguments = {"text": "x"} if example is None else dict(example[1].arguments)
    return ToolOutcome(CallRecord(name, arguments, ok=False, error=CallError(code, message)), video=subject.info)


@holds("tools", requires=("example_turns_work",))
def observe_answers_every_outcome(subject: Subject) -> None:
    """`observe` answers calls that were executed, rejected or failed, changes no record and repeats no path of a failed
    call, because all of them happen and a path may name the answer."""
    if not subject.tool_names:
        raise NotApplicable("the method has no tools")
    path = "/videos/the_answer_is_B.mp4"
    names = (*subject.tool_names, "unknown")
    outcomes = [_not_executed(subject, name, code, f"cannot open {path}") for name in names for code in CallErrorCode]
    for outcome in (*_executed(subject), *outcomes):
        record = copy.deepcopy(outcome.record)
        for turns_left in range(1, subject.method.max_turns):
            content: Any
            with no_error(f"observe with {turns_left} turns left for {outcome.record!r:.200}", "answer it"):
                content = subject.method.observe([outcome], turns_left)
            if not isinstance(content, tuple) or not all(isinstance(part, str | ImagePart) for part in content):
                raise fail("observe returns", content, "return a tuple of texts and ImageParts")
            with no_error("observe shows", "show the images of `outcomes` as they are"):
                with_pixels(content, (*outcome.images, *outcome.pictures))
            if record.error is not None and record.error.code in FAILURE_CODES and path in content_text(content):
                what = f"the observation of a failed call of {record.name} ({record.error.code}) names the file"
                raise fail(what, content_text(content), "use `toolkit.format_error`")
            if content != subject.method.observe([outcome], turns_left) or outcome.record != record:
                raise fail(
                    "observe differs from call to call, or changes the record", content, "read the outcomes only"
                )


@holds("tools", requires=("observe_answers_every_outcome", "call_frames_are_valid"))
def observations_show_what_is_recorded(subject: Subject) -> None:
    """An observation shows each frame of its calls once, in order and beside its true time, and the text of each call,
    because records and rewards count them as shown."""
    turn = subject.call_turn()
    executed = _executed(subject)
    cases = [[outcome] for outcome in executed]
    if sum(call.error is None for call in subject.method.parse(turn + turn).calls) >= 2:
        cases += [[first, copy.deepcopy(second)] for first in executed for second in executed]
    for outcomes in cases:
        content = subject.method.observe(outcomes, 1)
        names = " and ".join(outcome.record.name for outcome in outcomes)
        recorded = [frame for outcome in outcomes for frame in outcome.record.frames]
        observed = [image.record for image in content_images(content) if image.record.digest is None]
        made = [image.record for image in content_images(content) if image.record.digest is not None]
        if made != [image.record for outcome in outcomes for image in outcome.pictures]:
            raise fail(f"pictures in the observation of {names}", len(made), "add them by `toolkit.with_text`")
        if observed != recorded:
            what = f"frames in the observation of {names}, of the recorded {[frame.index for frame in recorded]}"
            advice = "answer each of `outcomes` in order, with each image once"
            raise fail(what, [frame.index for frame in observed], advice)
        for outcome in outcomes:
            if (text := (outcome.record.text or "").strip()) not in content_text(content):
                advice = "add the text by `toolkit.with_text`"
                raise fail(f"the observation of {names} lacks the text {text!r:.120}", content_text(content), advice)
        if len(outcomes) == 1 and (fault := false_label(content)):
            raise fail(
                f"a label in the observation of {names}: {fault}", recorded[:2], "write the time of image.record"
            )
