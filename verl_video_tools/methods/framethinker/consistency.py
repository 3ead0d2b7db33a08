"""Cognitive Consistency Verification (CCV) of FrameThinker, over executed calls (paper 3.3.2 and D.3).

A rollout is consistent if
    structure     every turn has one thought; the last answers, each other one carried out exactly one call
    redundancy    no call repeats an earlier one (same segment, or same time string)
    min_gap       a segment holds at least the frames that a call shows
    logical flow  a frame number that was asked for lies in the segment chosen next, and some segment is chosen
    fidelity      the last two whole numbers of the thought are the segment chosen, in order
The paper describes redundancy, logical flow and fidelity; structure, gap and every edge rule are those of the published
code, which has one set for training and another for inference (`Profile`).

With `compat="reference"` the published scoring reads the whole transcript as text instead (`read_transcript`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
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


Profile = Literal["train", "inference"]
"""Rules of the reward, or of the run-time safeguard. In training the initial frames count as having chosen the whole
video, (0, T - 1), and (start + 1, end - 1) of a chosen segment counts as chosen, since it is all that was seen. In
inference fidelity is not checked, and the call right after a frame number must choose a segment; in training another
call may come between, and the frame number is forgotten."""


def verify_consistency(turns: Sequence[vt.Turn], profile: Profile, min_gap: int, num_video_frames: int) -> Verdict:
    """Verify a finished rollout from its records; the first check that fails is named.

    Only `thought`, `answer` and `calls` of a turn are read, never its text: what was not executed does not count.

    Args:
        min_gap: frames; a segment needs end - start > min_gap.
    """
    if verdict := _structure_fault(turns):
        return verdict
    is_training = profile == "train"
    seen_segments = {(0, num_video_frames - 1)} if is_training else set()
    seen_times: set[str] = set()
    pending_frame_number: int | None = None
    for number, turn in enumerate(turns[:-1], start=1):
        call = turn.calls[0]
        if call.name == "get_frame_number":
            if pending_frame_number is not None and not is_training:
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
        if end - start <= min_gap:
            return _fault("min_gap", number, f"segment {start}-{end} is not longer than {min_gap} frames")
        if is_training and last_two_numbers(turn.thought or "") != (start, end):
            return _fault("fidelity", number, f"the thought does not end on the numbers {start} and {end}")
        seen_segments.add((start, end))
        if is_training:
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


# ------------------------------------------------------------------------------------------------ the published scoring
# Reward function "v11" of the repository. It believes what the text says: a turn that writes several actions, or makes
# up the environment's reply, is paid for calls that never ran. The method's page shows the inputs. Its constants are
# kept: a gap of 8 frames also where the environment shows 12, and (0, T - 1) as the segment seen first.

MIN_GAP = 8
"""Frames; a segment needs end - start > MIN_GAP, whatever the video's length (code)."""

_ANSWER = re.compile(r"output answer:\s*(\S+)")
_CHOOSE = re.compile(r"choose frames between (\d+) and (\d+)")
_GET = re.compile(r"get frame number at time\s+(\d{1,3}:\d{2})")
_REPLY = re.compile(r"is:\s*(\d+)")

_MAX_DIGITS = 4000
"""Longer numbers Python refuses to read, and the published scoring with it."""


@dataclass(frozen=True, slots=True)
class TranscriptFindings:
    """What the published scoring sees in a transcript.

    Attributes:
        consistent: the verification passed.
        answer: first word after "output answer:", None where the last action is no answer.
        chose_frames: a segment was accepted.
        times: those whose frame number was accepted and is above 0, as the policy wrote them.
        reason: why it is not consistent.
    """

    consistent: bool = False
    answer: str | None = None
    chose_frames: bool = False
    times: tuple[str, ...] = ()
    reason: str = ""


def read_transcript(transcript: str, num_video_frames: int) -> TranscriptFindings:
    """Read assistant turns and observations, joined in order, as the published scoring does.

    The reply to the n-th action is the n-th text between a ``</action>`` and the next ``<think>``, wherever it stands.
    A transcript on which the published scoring raises (no such text, a number of thousands of digits) is inconsistent.

    Args:
        num_video_frames: frames in the video (T).
    """
    thoughts, actions = vt.find_blocks(transcript, "think"), vt.find_blocks(transcript, "action")
    if not thoughts or len(thoughts) != len(actions):
        return TranscriptFindings(reason=f"{len(thoughts)} thoughts and {len(actions)} actions")
    answer = _ANSWER.match(actions[-1].inner.strip())
    if answer is None:
        return TranscriptFindings(reason="the last action is no answer")

    findings = TranscriptFindings(answer=answer[1])
    replies = vt.find_between(transcript, "</action>", "<think>")
    seen_segments = {(0, num_video_frames - 1)}
    seen_times: set[str] = set()
    pending: int | None = None
    for number, (thought, action) in enumerate(zip(thoughts[:-1], actions[:-1], strict=True)):
        words = action.inner.strip()
        previous, pending = pending, None
        if segment := _CHOOSE.match(words):
            pair = _pair(*segment.groups())
            if pair is None:
                return replace(findings, reason="a frame number of thousands of digits")
            start, end = pair
            if previous is not None and not start <= previous <= end:
                return replace(findings, reason=f"segment {start}-{end} misses frame number {previous}")
            if pair in seen_segments or start >= end - MIN_GAP:
                return replace(findings, reason=f"segment {start}-{end} is a repeat or too short")
            named = WHOLE_NUMBER.findall(thought.inner)[-2:]
            if len(named) < 2 or _pair(*named) != pair:
                return replace(findings, reason=f"the thought does not end on {start} and {end}")
            seen_segments |= {pair, (start + 1, end - 1)}
            findings = replace(findings, chose_frames=True)
        elif time := _GET.match(words):
            reply = _REPLY.search(replies[number].inner) if number < len(replies) else None
            if time[1] in seen_times or reply is None or len(reply[1]) > _MAX_DIGITS:
                return replace(findings, reason=f"time {time[1]} is a repeat or got no reply")
            seen_times.add(time[1])
            pending = int(reply[1])
            if pending > 0:
                findings = replace(findings, times=(*findings.times, time[1]))
        else:
            return replace(findings, reason=f"cannot read the action {words[:40]!r}")
    if pending is not None:
        return replace(findings, reason=f"frame number {pending} was never used")
    return replace(findings, consistent=True)


def _pair(start: str, end: str) -> tuple[int, int] | None:
    return None if max(len(start), len(end)) > _MAX_DIGITS else (int(start), int(end))
