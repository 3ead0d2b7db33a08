"""Turns of a method that work: calls that are carried out, one that is refused, and a form to answer in."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from verl_video_tools.core.errors import CallErrorCode
from verl_video_tools.core.types import CallRecord, Method, ParsedTurn, Trajectory

_PER_TOOL = 3
_NUMBER = re.compile(r"\d+(?:\.\d+)?")

Run = Callable[[Sequence[str]], Trajectory]
"""Runs turns as one rollout."""


@dataclass(frozen=True)
class Answering:
    """A turn that answers, cut where its answer stands."""

    before: str
    after: str

    def turn(self, answer: str) -> str:
        return f"{self.before}{answer}{self.after}"


@dataclass
class Calls:
    """Turns that call a tool and are carried out, by the tool's name, and what was recorded of the calls."""

    turns: dict[str, list[str]] = field(default_factory=dict)
    records: dict[str, list[CallRecord]] = field(default_factory=dict)
    trouble: str | None = None
    """What became of the first turn that called, and whose calls were not carried out."""

    def any_turn(self) -> str | None:
        """The first turn found."""
        return next((turns[0] for turns in self.turns.values()), None)

    def add(self, turn: str, records: Sequence[CallRecord]) -> None:
        for record in records:
            if len(self.turns.setdefault(record.name, [])) < _PER_TOOL and turn not in self.turns[record.name]:
                self.turns[record.name].append(turn)
                self.records.setdefault(record.name, []).append(record)


def read(method: Method, text: str) -> ParsedTurn | None:
    """A turn as the method reads it; None where it cannot."""
    try:
        return method.parse(text)
    except Exception:  # `parse_never_raises` tells of it
        return None


def find_answering(method: Method, candidates: Iterable[str]) -> Answering | None:
    """The form of the first candidate that answers, and whose answer can be replaced."""
    for text in candidates:
        parsed = read(method, text)
        if parsed is None or not parsed.answer:
            continue
        place = text.rfind(parsed.answer)
        if place < 0:
            continue
        form = Answering(text[:place], text[place + len(parsed.answer) :])
        if all(_answers(method, form.turn(answer), answer) for answer in ("A", "C", "some words")):
            return form
    return None


def _answers(method: Method, text: str, answer: str) -> bool:
    parsed = read(method, text)
    return parsed is not None and parsed.answer == answer


def find_calls(method: Method, candidates: Iterable[str], names: Sequence[str], run: Run) -> Calls:
    """Those of the candidates that call and are carried out, until each tool has one."""
    calls = Calls()
    seen: set[str] = set()
    for text in candidates:
        if all(map(calls.turns.get, names)):
            break
        parsed = read(method, text)
        if text in seen or parsed is None or parsed.answer is not None or not parsed.calls:
            continue
        seen.add(text)
        try:
            trajectory = run([text])
        except Exception as error:
            calls.trouble = calls.trouble or f"{text[:200]!r} raises {error!r:.200}"
            continue
        # Frames that cannot be decoded were planned: `plans_lie_in_the_video` looks at them.
        planned = [call for call in trajectory.calls() if call.ok or _could_not_be_decoded(call)]
        calls.add(text, planned)
        if not planned and calls.trouble is None:
            refused = [str(call.error) for call in trajectory.calls()]
            calls.trouble = f"{text[:200]!r} ends with {trajectory.stop_reason}, calls: {'; '.join(refused)[:200]}"
    return calls


def _could_not_be_decoded(call: CallRecord) -> bool:
    return call.error is not None and call.error.code == CallErrorCode.VIDEO_ERROR


def find_refused(method: Method, valid: str, run: Run) -> str | None:
    """A turn that calls like the valid one, and is refused: with numbers that no video has."""
    for number in ("99999999", "-1"):
        text = _NUMBER.sub(number, valid)
        parsed = read(method, text)
        if text == valid or parsed is None or not parsed.calls or parsed.answer is not None:
            continue
        calls = run([text]).calls()
        if calls and all(call.error is not None and not call.failed() for call in calls):
            return text
    return None
