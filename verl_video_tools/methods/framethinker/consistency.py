"""Cognitive Consistency Verification (CCV) of FrameThinker, over executed calls (paper 3.3.2 and D.3).

A rollout is consistent if
    structure     every turn has one thought; the last answers, each other one carried out exactly one call
    redundancy    no call repeats an earlier one (same segment, or same time string)
    min_gap       a segment holds at least the frames that a call shows
    logical flow  a frame number that was asked for lies in the segment chosen next, and some segment is chosen
    fidelity      the last two whole numbers of the thought are the segment chosen, in order
The paper describes redundancy, logical flow and fidelity; structure, gap and every edge rule are those of the published
code, which has one set for training and another for inference (`ConsistencyRules.training`, `.inference`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from verl_video_tools.methods import toolkit as vt

Check = Literal["structure", "redundancy", "min_gap", "logical_flow", "fidelity"]

# A number next to a colon belongs to a time (00:34) and names no frame.
WHOLE_NUMBER = re.compile(r"(?<!:)\b(\d+)\b(?!:)")


@dataclass(frozen=True, slots=True)
class Verdict:
    """Outcome of a verification; `failed` and `reason` are set where `ok` is False."""

    ok: bool
    failed: Check | None = None
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class ConsistencyRules:
    """Where the two published profiles differ.

    Attributes:
        min_gap: frames; a segment needs end - start > min_gap.
        seeded_segments: segments that count as chosen before the rollout starts.
        inner_segment_is_repeat: (start + 1, end - 1) of a chosen segment counts as chosen: it is all that was seen.
        check_fidelity: compare the thought's numbers with the chosen segment.
        frame_number_needs_next_segment: the call right after a frame number must choose a segment; otherwise another
            call may come between, and the frame number is forgotten.
    """

    min_gap: int
    seeded_segments: tuple[tuple[int, int], ...] = ()
    inner_segment_is_repeat: bool = True
    check_fidelity: bool = True
    frame_number_needs_next_segment: bool = False

    @classmethod
    def training(cls, min_gap: int, num_video_frames: int) -> ConsistencyRules:
        """The reward's profile: the initial frames count as having chosen the whole video, (0, T - 1)."""
        return cls(min_gap=min_gap, seeded_segments=((0, num_video_frames - 1),))

    @classmethod
    def inference(cls, min_gap: int) -> ConsistencyRules:
        """The run-time safeguard's profile: no fidelity, nothing seeded, stricter flow."""
        return cls(
            min_gap=min_gap,
            inner_segment_is_repeat=False,
            check_fidelity=False,
            frame_number_needs_next_segment=True,
        )


def verify_consistency(turns: Sequence[vt.Turn], rules: ConsistencyRules) -> Verdict:
    """Verify a finished rollout from its records; the first check that fails is named.

    Only `thought`, `answer` and `calls` of a turn are read, never its text: what was not executed does not count.
    """
    if verdict := _structure_fault(turns):
        return verdict
    seen_segments = set(rules.seeded_segments)
    seen_times: set[str] = set()
    pending_frame_number: int | None = None
    for number, turn in enumerate(turns[:-1], start=1):
        call = turn.calls[0]
        if call.name == "get_frame_number":
            if pending_frame_number is not None and rules.frame_number_needs_next_segment:
                return _fault("logical_flow", number, f"frame number {pending_frame_number} was not used next")
            time = str(call.arguments.get("time"))
            if time in seen_times:
                return _fault("redundancy", number, f"time {time} was asked for before")
            seen_times.add(time)
            pending_frame_number = int(call.result["frame_number"])
            continue
        start, end = _segment(call)
        if pending_frame_number is not None and not start <= pending_frame_number <= end:
            return _fault("logical_flow", number, f"segment {start}-{end} misses frame number {pending_frame_number}")
        pending_frame_number = None
        if (start, end) in seen_segments:
            return _fault("redundancy", number, f"segment {start}-{end} was chosen before")
        if end - start <= rules.min_gap:
            return _fault("min_gap", number, f"segment {start}-{end} is not longer than {rules.min_gap} frames")
        if rules.check_fidelity and last_two_numbers(turn.thought or "") != (start, end):
            return _fault("fidelity", number, f"the thought does not end on the numbers {start} and {end}")
        seen_segments.add((start, end))
        if rules.inner_segment_is_repeat:
            seen_segments.add((start + 1, end - 1))
    if pending_frame_number is not None:
        return _fault("logical_flow", len(turns), f"frame number {pending_frame_number} was never used")
    return Verdict(ok=True)


def last_two_numbers(thought: str) -> tuple[int, int] | None:
    """The last two whole numbers of a thought, None if there are fewer.

    Digits that touch a letter, an underscore or a colon are no number; "1,400" and "1.5" are two numbers each.
    """
    numbers = WHOLE_NUMBER.findall(thought)[-2:]
    # Python refuses to read numbers of thousands of digits; 18 hold any frame number.
    if len(numbers) < 2 or any(len(number) > 18 for number in numbers):
        return None
    return int(numbers[0]), int(numbers[1])


def _structure_fault(turns: Sequence[vt.Turn]) -> Verdict | None:
    if not turns or turns[-1].answer is None:
        return _fault("structure", len(turns), "the rollout does not end with an answer")
    for number, turn in enumerate(turns, start=1):
        if turn.thought is None:
            return _fault("structure", number, "the turn does not have exactly one thought")
        is_last = number == len(turns)
        calls_allowed = 0 if is_last else 1
        if len(turn.calls) != calls_allowed:
            return _fault("structure", number, f"{len(turn.calls)} calls where {calls_allowed} belong")
        if any(not call.ok for call in turn.calls):
            return _fault("structure", number, f"the call was not executed ({turn.calls[0].error})")
        if turn.calls and turn.calls[0].name not in ("choose_frames", "get_frame_number"):
            return _fault("structure", number, f"{turn.calls[0].name!r} is not an action of FrameThinker")
    return None


def _segment(call: vt.CallRecord) -> tuple[int, int]:
    return int(call.arguments["start_frame"]), int(call.arguments["end_frame"])


def _fault(check: Check, turn_number: int, reason: str) -> Verdict:
    return Verdict(ok=False, failed=check, reason=f"turn {turn_number}: {reason}")
