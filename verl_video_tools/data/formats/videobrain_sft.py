"""Dialogues of VideoBrain (arXiv 2602.04094), which is fine-tuned on 1,600 of them before reinforcement learning.

They are not published. Read is the form in which its published inference code talks to a model, as the `messages` or
`conversations` that LLaMA-Factory takes: the user says `Question: ...`, then a section `# Video Information:` with
numbers of frames and rate, a section `# Output Format:`, and `frame 120: <image>` per frame; each observation lists
such frames. Read from examples/agent/infer.py and examples/agent/prompt of github.com/junbo-zou/VideoBrain, at a commit
that still has them. A field `video`, `video_path` or `videos` names the video.

Frames that `clip_sample` has found are taken from the observation that follows, so that no encoder is needed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise

from verl_video_tools.data.formats.dialogues import Dialogues
from verl_video_tools.data.formats.fields import tagged_answer

_SECTIONS = re.compile(r"^#\s*(?:Video Information|Output Format):.*", re.DOTALL | re.MULTILINE)
_FRAME = re.compile(r"^\s*frame (\d{1,9}):", re.IGNORECASE | re.MULTILINE)
_FRAMES = re.compile(r"^\s*frame \d+:.*", re.IGNORECASE | re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^\s*Question:\s*")
_CALL = re.compile(r"<tool_call>\s*(\{.*\})\s*</tool_call>", re.DOTALL)
_SEARCH = "clip_sample"


class VideoBrainSFT(Dialogues):
    """See the module."""

    name = "videobrain-sft"
    columns = ("messages", "conversations", "id", "video", "video_path", "videos")
    has_found_frames = True

    def question_of(self, asked: str) -> str:
        return _HEADING.sub("", _FRAMES.sub("", _SECTIONS.sub("", asked))).strip()

    def answer_of(self, turn: str) -> str | None:
        return tagged_answer(turn) if "<answer>" in turn else None

    def found_frames(self, messages: Sequence[Mapping[str, str]]) -> list[list[int]]:
        found = []
        for message, reply in pairwise(messages):
            if message["role"] == "assistant" and _called(message["content"]) == _SEARCH:
                found.append([int(number) for number in _FRAME.findall(reply["content"])])
        return found


def _called(turn: str) -> str | None:
    """The name of the tool that a turn calls; None where it calls none, or not as JSON."""
    found = _CALL.search(turn)
    try:
        return str(json.loads(found[1])["name"]) if found else None
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
