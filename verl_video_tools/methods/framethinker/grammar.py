"""FrameThinker's turn grammar (paper 3.1), and what a rollout's turns have to agree on (paper 3.3.2 and D.3).

A turn is one `<think>` block and one `<action>` block of plain words:

    choose frames between START and END      START, END: frame numbers
    get frame number at time MM:SS           hours folded into minutes: 65:20 is 1 h 5 min 20 s
    output answer: ANSWER

`parse_turn` is the strict reading: one action per turn, at the start of its block, and no answer beside another action.
`parse_turn_reference` reads as the published environment does: the last action block counts, a time is read at its
start, otherwise a segment anywhere in it. Both take any text and never raise.

Cognitive Consistency Verification (`verify_consistency`): a rollout is consistent if
    structure     every turn has one thought; the last answers, each other one carried out exactly one call
    redundancy    no call repeats an earlier one (same segment, or same time string)
    min_gap       a segment holds at least the frames that a call shows
    logical flow  a frame number that was asked for lies in the segment chosen next, and some segment is chosen
    fidelity      the last two whole numbers of the thought are the segment chosen, in order
The paper describes redundancy, logical flow and fidelity; structure, gap and every edge rule are those of the published
code, which has one set for training and another for inference (`Profile`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from verl_video_tools.methods import toolkit as vt

CHOOSE_FRAMES = "choose_frames"
GET_FRAME_NUMBER = "get_frame_number"
FRAME_NUMBER = "Frame number at time {time} is: {number}."
"""The published reply to a clock, which the published reward reads."""

_MAX_DIGITS = 18
"""Longer numbers name no frame, and Python refuses to read very long ones."""

# Words may follow an action, as in the published code; the numbers themselves must be whole ("200.5" and "8x" are not).
_CHOOSE = re.compile(r"choose frames between (\d+) and (\d+)(?!\w)(?![.,:]\d)")
_GET = re.compile(r"get frame number at time\s+(\d{1,3}:\d{2})(?!\S)")
_ANSWER = re.compile(r"output answer:\s*(\S.*)", re.DOTALL)
_CHOOSE_REFERENCE = re.compile(r"choose frames between (\d+) and (\d+)")
_GET_REFERENCE = re.compile(r"get frame number at time\s+(\S+)")


def parse_turn(text: str) -> vt.ParsedTurn:
    """Read one turn strictly.

    The order of the two blocks and text around them do not matter for what is read, only for `well_formed`. A thought
    is read only if the turn has exactly one. Of several actions none is carried out: each call is recorded with
    `multiple_calls`, and no answer is taken.
    """
    thoughts, actions = vt.find_blocks(text, "think"), vt.find_blocks(text, "action")
    thought = vt.first_text(thoughts) if len(thoughts) == 1 else None
    readings = [_read_action(action.inner.strip()) for action in actions]
    if len(readings) > 1:
        error = vt.multiple_calls(len(readings), "actions", "<action> block")
        calls = [replace(reading, error=error) for reading in readings if isinstance(reading, vt.ToolCall)]
        return vt.ParsedTurn(thought, tuple(calls) or (vt.ToolCall(vt.UNKNOWN, error=error),))
    if not readings:
        return vt.ParsedTurn(thought)
    return _acting(thought, readings[0], _is_to_the_letter(text, thoughts, actions))


def parse_turn_reference(text: str) -> vt.ParsedTurn:
    """Read one turn as the published environment does.

    Only the last action block counts. An action that begins as a clock is one, whatever follows (any word stands for
    the time; the tool says whether it reads as one); otherwise a segment is looked for anywhere in the block; what is
    neither ends the rollout, be it an answer or not.
    """
    thoughts, actions = vt.find_blocks(text, "think"), vt.find_blocks(text, "action")
    thought, action = vt.last_text(thoughts), vt.last_text(actions)
    if action is None:
        return vt.ParsedTurn(thought)
    reading: vt.ToolCall | str
    if time := _GET_REFERENCE.match(action):
        reading = vt.ToolCall(GET_FRAME_NUMBER, {"time": time[1]})
    elif segment := _CHOOSE_REFERENCE.search(action):
        start, end = (_bounded(number) for number in segment.groups())
        reading = vt.ToolCall(CHOOSE_FRAMES, {"start_frame": start, "end_frame": end})
    else:
        reading = _read_action(action)
    return _acting(thought, reading, _is_to_the_letter(text, thoughts, actions))


def _acting(thought: str | None, reading: vt.ToolCall | str, well_formed: bool) -> vt.ParsedTurn:
    """A turn with one action: a call, or the text of an answer."""
    if isinstance(reading, str):
        return vt.ParsedTurn(thought, answer=reading, well_formed=well_formed)
    return vt.ParsedTurn(thought, (reading,), well_formed=well_formed and reading.error is None)


def _read_action(action: str) -> vt.ToolCall | str:
    """A call, also a malformed one, or the text of an answer (never empty)."""
    if segment := _CHOOSE.match(action):
        start, end = segment.groups()
        if max(len(start), len(end)) > _MAX_DIGITS:
            return _malformed(CHOOSE_FRAMES, action, f"a frame number has at most {_MAX_DIGITS} digits")
        return vt.ToolCall(CHOOSE_FRAMES, {"start_frame": int(start), "end_frame": int(end)})
    if time := _GET.match(action):
        return vt.ToolCall(GET_FRAME_NUMBER, {"time": time[1]})
    if answer := _ANSWER.match(action):
        return answer[1]
    if action.startswith("choose frames"):
        return _malformed(CHOOSE_FRAMES, action, "write 'choose frames between START and END' with two frame numbers")
    if action.startswith("get frame number"):
        return _malformed(GET_FRAME_NUMBER, action, "write 'get frame number at time MM:SS'")
    return _malformed(vt.UNKNOWN, action, "an action is choose frames, get frame number or 'output answer: ANSWER'")


def _bounded(digits: str) -> int:
    """The number, or 10**18 for one beyond that, which lies as far outside of any video."""
    digits = digits.lstrip("0") or "0"  # int() of the remaining ones is cheap
    return int(digits) if len(digits) <= _MAX_DIGITS else 10**_MAX_DIGITS


def _malformed(name: str, action: str, advice: str) -> vt.ToolCall:
    error = vt.CallError(vt.CallErrorCode.MALFORMED_CALL, f"cannot read the action {action[:80]!r}; {advice}")
    return vt.ToolCall(name, {"action": action}, error)


def _is_to_the_letter(text: str, thoughts: Sequence[vt.Block], actions: Sequence[vt.Block]) -> bool:
    """One thought, then one action, and only white space around and between them."""
    in_order = len(thoughts) == len(actions) == 1 and thoughts[0].end <= actions[0].start
    return in_order and not vt.without_blocks(text, [*thoughts, *actions]).strip()


# ---------------------------------------------------------------------------------------------------------- consistency


Profile = Literal["train", "inference"]
"""Rules of the reward, or of the run-time safeguard. In training the initial frames count as having chosen the whole
video, (0, T - 1), and (start + 1, end - 1) of a chosen segment counts as chosen, since it is all that was seen. In
inference fidelity is not checked, and the call right after a frame number must choose a segment; in training another
call may come between, and the frame number is forgotten."""

Check = Literal["structure", "redundancy", "min_gap", "logical_flow", "fidelity"]

# A number next to a colon belongs to a time (00:34) and names no frame.
_WHOLE_NUMBER = re.compile(r"(?<!:)\b(\d+)\b(?!:)")

_MAX_READABLE_DIGITS = 4000
"""Longer numbers Python refuses to read, and the published scoring with it."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Outcome of a verification; `failed` and `reason` are set where `ok` is False.

    Attributes:
        num_consistent: calls before the first that failed; 0 where the structure is at fault.
    """

    ok: bool
    failed: Check | None = None
    reason: str = ""
    num_consistent: int = 0


@dataclass(frozen=True, slots=True)
class _Step:
    """A call that the verification looks at: a segment that was chosen, or else a time and its frame number."""

    thought: str
    segment: tuple[int, int] | None = None
    time: str = ""
    frame_number: int = 0


def verify_consistency(turns: Sequence[vt.Turn], profile: Profile, min_gap: int, num_video_frames: int) -> Verdict:
    """Verify a finished rollout from its records; the first check that fails is named.

    Only `thought`, `answer` and `calls` of a turn are read, never its text: what was not executed does not count.

    Args:
        min_gap: frames; a segment needs end - start > min_gap.
    """
    if not turns or turns[-1].answer is None:
        return _without_structure(len(turns), "the rollout does not end with an answer")
    steps = []
    for number, turn in enumerate(turns, start=1):
        if turn.thought is None:
            return _without_structure(number, "the turn does not have exactly one thought")
        calls_allowed = 0 if number == len(turns) else 1
        if len(turn.calls) != calls_allowed:
            return _without_structure(number, f"{len(turn.calls)} calls where {calls_allowed} belong")
        for call in turn.calls:
            arguments = call.arguments
            if not call.ok:
                return _without_structure(number, f"the call was not executed ({call.error})")
            if call.name == CHOOSE_FRAMES:
                segment = int(arguments["start_frame"]), int(arguments["end_frame"])
                steps.append(_Step(turn.thought, segment))
            elif call.name == GET_FRAME_NUMBER:
                frame_number = int(call.result["frame_number"])
                steps.append(_Step(turn.thought, time=str(arguments.get("time")), frame_number=frame_number))
            else:
                return _without_structure(number, f"{call.name!r} is not an action of FrameThinker")
    return _verify_steps(steps, profile, min_gap, num_video_frames)


def _verify_steps(steps: Sequence[_Step], profile: Profile, min_gap: int, num_video_frames: int) -> Verdict:
    """All checks but that of the structure."""
    is_training = profile == "train"
    seen_segments = {(0, num_video_frames - 1)} if is_training else set()
    seen_times: set[str] = set()
    pending_frame_number: int | None = None
    for number, step in enumerate(steps, start=1):
        if step.segment is None:
            if pending_frame_number is not None and not is_training:
                return _fault("logical_flow", number, f"frame number {pending_frame_number} was not used next")
            if step.time in seen_times:
                return _fault("redundancy", number, f"time {step.time} was asked for before")
            seen_times.add(step.time)
            pending_frame_number = step.frame_number
            continue
        start, end = step.segment
        if pending_frame_number is not None and not start <= pending_frame_number <= end:
            return _fault("logical_flow", number, f"segment {start}-{end} misses frame number {pending_frame_number}")
        pending_frame_number = None
        if step.segment in seen_segments:
            return _fault("redundancy", number, f"segment {start}-{end} was chosen before")
        if end - start <= min_gap:
            return _fault("min_gap", number, f"segment {start}-{end} is not longer than {min_gap} frames")
        if is_training and last_two_numbers(step.thought) != step.segment:
            return _fault("fidelity", number, f"the thought does not end on the numbers {start} and {end}")
        seen_segments.add(step.segment)
        if is_training:
            seen_segments.add((start + 1, end - 1))
    if pending_frame_number is not None:
        return _fault("logical_flow", len(steps) + 1, f"frame number {pending_frame_number} was never used")
    return Verdict(ok=True, num_consistent=len(steps))


def last_two_numbers(thought: str) -> tuple[int, int] | None:
    """The last two whole numbers of a thought, None if there are fewer or one has more than 4000 digits.

    Digits that touch a letter, an underscore or a colon are no number; "1,400" and "1.5" are two numbers each.
    """
    numbers = _WHOLE_NUMBER.findall(thought)[-2:]
    return _pair(*numbers) if len(numbers) == 2 else None


def _pair(start: str, end: str) -> tuple[int, int] | None:
    return None if max(len(start), len(end)) > _MAX_READABLE_DIGITS else (int(start), int(end))


def _without_structure(turn_number: int, reason: str) -> Verdict:
    return Verdict(False, "structure", f"turn {turn_number}: {reason}")


def _fault(check: Check, step_number: int, reason: str) -> Verdict:
    return Verdict(False, check, f"turn {step_number}: {reason}", num_consistent=step_number - 1)


# ------------------------------------------------------------------------------------------------ the published scoring
# Reward function "v11" of the repository, for `compat="reference"`. It reads the whole transcript as text and believes
# what it says: a turn that writes several actions, or makes up the environment's reply, is paid for calls that never
# ran. The method's page shows the inputs. Its constants are kept: a gap of 8 frames also where the environment shows
# 12, and (0, T - 1) as the segment seen first.

MIN_GAP_REFERENCE = 8
"""Frames; a segment needs end - start > MIN_GAP_REFERENCE, whatever the video's length (code)."""

_ANSWER_REFERENCE = re.compile(r"output answer:\s*(\S+)")
_CLOCK_REFERENCE = re.compile(r"get frame number at time\s+(\d{1,3}:\d{2})")
_REPLY_REFERENCE = re.compile(r"is:\s*(\d+)")


@dataclass(frozen=True, slots=True)
class Findings:
    """What a rollout is paid for: by its executed calls, or (reference) by its transcript.

    Attributes:
        answer: in the transcript the first word after "output answer:"; None where the last action is no answer.
        consistent: the verification passed.
        chose_frames: a segment was chosen; in the transcript one that the verification accepts.
        times: those whose frame number, above 0, was reported, as the policy wrote them; in the transcript likewise.
    """

    answer: str | None = None
    consistent: bool = False
    chose_frames: bool = False
    times: tuple[str, ...] = ()


def read_transcript(transcript: str, num_video_frames: int) -> Findings:
    """Read assistant turns and observations, joined in order, as the published scoring does.

    The reply to the n-th action is the n-th text between a ``</action>`` and the next ``<think>``, wherever it stands.
    A transcript on which the published scoring raises (no such text, a number of thousands of digits) is inconsistent.

    Args:
        num_video_frames: frames in the video (T).
    """
    thoughts, actions = vt.find_blocks(transcript, "think"), vt.find_blocks(transcript, "action")
    if not thoughts or len(thoughts) != len(actions):
        return Findings()
    *calling, last = (action.inner.strip() for action in actions)
    answer = _ANSWER_REFERENCE.match(last)
    if answer is None:
        return Findings()
    replies = [block.inner for block in vt.find_between(transcript, "</action>", "<think>")]
    steps = []
    for number, action in enumerate(calling):
        step = _read_step(thoughts[number].inner, action, "".join(replies[number : number + 1]))
        if step is None:
            break
        steps.append(step)
    verdict = _verify_steps(steps, "train", MIN_GAP_REFERENCE, num_video_frames)
    consistent = steps[: verdict.num_consistent]
    return Findings(
        answer=answer[1],
        consistent=verdict.ok and len(steps) == len(calling),
        chose_frames=any(step.segment is not None for step in consistent),
        times=tuple(step.time for step in consistent if step.frame_number > 0),
    )


def _read_step(thought: str, action: str, reply: str) -> _Step | None:
    """An action and its reply as the published scoring reads them; None where it cannot."""
    if segment := _CHOOSE_REFERENCE.match(action):
        pair = _pair(*segment.groups())
        return None if pair is None else _Step(thought, pair)
    time, frame_number = _CLOCK_REFERENCE.match(action), _REPLY_REFERENCE.search(reply)
    if time is None or frame_number is None or len(frame_number[1]) > _MAX_READABLE_DIGITS:
        return None
    return _Step(thought, time=time[1], frame_number=int(frame_number[1]))
