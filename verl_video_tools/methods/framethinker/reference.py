"""FrameThinker's published scoring, which reads the whole transcript as text (reward function "v11" of its repository).

Only `compat="reference"` uses it. It believes what the text says, so a turn that writes several actions, or makes up
the environment's reply, is paid for calls that never ran; the method's page shows the inputs. Its constants are kept: a
gap of 8 frames also where the environment shows 12, and (0, T - 1) as the segment seen first.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from verl_video_tools.methods import toolkit as vt
from verl_video_tools.methods.framethinker.consistency import WHOLE_NUMBER

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
