"""Properties of how a method reads what a policy wrote."""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Mapping
from dataclasses import replace
from itertools import islice
from typing import Any

from verl_video_tools.checks import candidates
from verl_video_tools.checks.outcome import Failed, NotApplicable, fail
from verl_video_tools.checks.registry import holds
from verl_video_tools.checks.subject import Subject
from verl_video_tools.checks.texts import hostile_texts
from verl_video_tools.core.types import ParsedTurn, ToolCall

_SECONDS_OF_A_SLOW_PARSE = 0.1
_TAG = re.compile(r"</?\w+>|\w+\(")
_USUAL_BEGINNINGS = ("<think>", "<answer>", "<tool_call>", "<tool_call>{", "<", "{", '"', " ", "a", "<answer>a</answer")
_ADVICE = "give turns that work: the class attribute `check_examples`, or --turns FILE (a JSON list of texts)"


@holds("grammar")
def parse_never_raises(subject: Subject) -> None:
    """`parse` reads any text, because a policy writes any text and one turn must not end the run."""
    for text in subject.hostile_texts:
        try:
            subject.method.parse(text)
        except Exception as error:
            raise fail(f"parse raises {type(error).__name__}: {error}", text, "return a turn without calls") from error


@holds("grammar", requires=("parse_never_raises",))
def parse_returns_a_parsed_turn(subject: Subject) -> None:
    """`parse` gives a ParsedTurn of calls with names and JSON arguments, because records are made of it."""
    for text in subject.hostile_texts:
        parsed: Any = subject.method.parse(text)
        if not isinstance(parsed, ParsedTurn) or not isinstance(parsed.calls, tuple):
            raise fail(f"parse({text[:80]!r})", parsed, "return a ParsedTurn whose calls are a tuple")
        call: Any
        for call in parsed.calls:
            if not isinstance(call, ToolCall) or not isinstance(call.name, str):
                raise fail(f"a call of parse({text[:80]!r})", call, "return ToolCalls that have a text as name")
            if not isinstance(call.arguments, Mapping):
                raise fail(f"arguments of a call of parse({text[:80]!r})", call.arguments, "return a mapping")
            try:
                json.dumps(dict(call.arguments), allow_nan=False, ensure_ascii=False).encode("utf-8", "surrogatepass")
            except (TypeError, ValueError) as error:
                raise fail(
                    f"arguments that no record can hold ({error})", call.arguments, "refuse such a call"
                ) from error


@holds("grammar", requires=("parse_returns_a_parsed_turn",))
def answers_are_stripped(subject: Subject) -> None:
    """An answer is a text without white space around it, because extractors and records compare it as it is."""
    for text in subject.hostile_texts:
        answer: Any = subject.method.parse(text).answer
        if answer is not None and (not isinstance(answer, str) or answer != answer.strip()):
            raise fail(f"the answer of parse({text[:80]!r})", answer, "strip it")


@holds("grammar", requires=("parse_returns_a_parsed_turn",))
def parse_depends_on_the_text_alone(subject: Subject) -> None:
    """`parse` gives the same for the same text, whatever it read before, because rollouts share one config."""
    copy = replace(subject.method)
    texts = [text for number, turn in enumerate(_turns_to_repeat(subject)) for text in _never_read(turn, number)]
    first = [repr(subject.method.parse(text)) for text in texts]
    for text, before in zip(reversed(texts), reversed(first), strict=True):
        if (again := repr(copy.parse(text))) != before:
            raise fail(f"parse({text[:80]!r}) gave {before:.200}, and later", again, "keep nothing between turns")


def _turns_to_repeat(subject: Subject) -> list[str]:
    guessed = candidates.guessed_calls(subject.method, subject.info, [])
    return [*subject.given, *subject.found_turns, *islice(guessed, 8), *list(hostile_texts(subject.given, 200, seed=1))]


def _never_read(turn: str, number: int) -> list[str]:
    """The turn with a word that no other has, before it and within its first tag."""
    return [f"word{number} {turn}", turn.replace(">", f">word{number} ", 1)]


@holds("grammar", requires=("parse_never_raises",))
def parse_takes_linear_time(subject: Subject) -> None:
    """`parse` takes time in proportion to the text, because a policy that repeats itself would stop all rollouts."""
    turns = [*subject.found_turns, *subject.given[:4]]
    tags = [tag for turn in turns for tag in _TAG.findall(turn)]
    for unit in dict.fromkeys([*turns[:6], *tags, *_USUAL_BEGINNINGS]):
        repeated = [(unit * (size // len(unit) + 1))[:size] for size in (4_000, 32_000)]
        small, large = (_parse_seconds(subject, text) for text in repeated)
        if large > _SECONDS_OF_A_SLOW_PARSE and large > 24 * small:
            took = f"{small:.3f} s for 4,000 characters and {large:.3f} s for 32,000"
            raise fail(f"parse of {unit[:40]!r} repeated", took, "find tags by str.find (`toolkit.find_blocks`)")


def _parse_seconds(subject: Subject, text: str) -> float:
    """Of the fastest of three; a fast one is not repeated."""
    fastest = math.inf
    for _ in range(3):
        started = time.thread_time()
        subject.method.parse(text)
        fastest = min(fastest, time.thread_time() - started)
        if fastest < _SECONDS_OF_A_SLOW_PARSE:
            break
    return fastest


@holds("grammar", requires=("parse_depends_on_the_text_alone", "tools_of_any_video", "prompt_is_messages"))
def a_call_asks_for_another_turn(subject: Subject) -> None:
    """A turn that only calls goes on, because else its call would never be carried out."""
    if subject.method.max_turns == 1 or not subject.tool_names:
        raise NotApplicable("the method has no tools, or a single turn")
    guessed = candidates.guessed_calls(subject.method, subject.info, subject.prompt())
    read = [subject.method.parse(text) for text in (*subject.given, *guessed)]
    calling = [turn for turn in read if turn.answer is None and any(call.error is None for call in turn.calls)]
    if calling and not any(map(subject.method.goes_on_after, calling)):
        raise fail("goes_on_after each turn that calls", False, "return bool(parsed.calls)")


@holds(
    "grammar",
    requires=(
        "parse_depends_on_the_text_alone",
        "tools_of_any_video",
        "prompt_is_messages",
        "initial_frames_lie_in_the_video",
        "a_call_asks_for_another_turn",
    ),
)
def a_valid_call_of_each_tool_is_found(subject: Subject) -> None:
    """A turn is known that calls each tool and is carried out, because most other properties are asked by calling."""
    if not subject.tool_names:
        raise NotApplicable("the method has no tools")
    missing = [name for name in subject.tool_names if name not in subject.calls.turns]
    if missing:
        raise Failed(
            f"no turn was found whose call of {', '.join(missing)} is carried out on a video of 95 s; {_ADVICE}"
        )


@holds("grammar", requires=("parse_depends_on_the_text_alone", "answers_are_stripped", "prompt_is_messages"))
def a_valid_answer_is_found(subject: Subject) -> None:
    """A turn is known that answers with any text, because without it no rollout ends by itself."""
    if subject.answering is None:
        raise Failed(f"no turn was found that answers, and answers otherwise when its answer is replaced; {_ADVICE}")


@holds("grammar", requires=("parse_depends_on_the_text_alone",))
def thought_tag_is_that_of_the_grammar(subject: Subject) -> None:
    """`parse` reads a thought between the tags that `thought_tag` names, because that marks native reasoning."""
    tag = subject.method.thought_tag
    if tag is None:
        raise NotApplicable("the grammar knows no thought")
    text = f"<{tag}>an idea</{tag}>"
    if (thought := subject.method.parse(text).thought) != "an idea":
        advice = "set `thought_tag` to the tag of the grammar's thoughts, or to None where it has none"
        raise fail(f"the thought of {text!r}", thought, advice)


@holds("grammar", requires=("a_valid_call_of_each_tool_is_found", "parse_depends_on_the_text_alone"))
def a_cut_call_is_no_other_call(subject: Subject) -> None:
    """A call that is cut anywhere is not read as another valid call, because its arguments would be half written."""
    turn = subject.call_turn()
    whole = [(call.name, dict(call.arguments)) for call in subject.method.parse(turn).calls]
    for length in range(len(turn)):
        for call in subject.method.parse(turn[:length]).calls:
            if call.error is None and (call.name, dict(call.arguments)) not in whole:
                raise fail(
                    f"{turn[:length]!r}, a turn that was cut, is read as a call", call, "ask for the closing tag"
                )


@holds("grammar", requires=("a_valid_call_of_each_tool_is_found",))
def stop_strings_end_a_call(subject: Subject) -> None:
    """What stands up to the first stop string is the whole call, because the engine cuts the turn behind it."""
    stops = subject.method.stop
    if not stops:
        raise NotApplicable("the method has no stop strings")
    if not all(stops):
        raise fail("`stop`", stops, "write texts that are not empty")
    for turns in subject.calls.turns.values():
        for turn in turns:
            ends = [turn.find(stop) + len(stop) for stop in stops if stop in turn]
            if ends and not any(call.error is None for call in subject.method.parse(turn[: min(ends)]).calls):
                raise fail(
                    "a valid call, cut behind its stop string, is none",
                    turn[: min(ends)],
                    "let the stop string end the call",
                )
