"""The cold start of FrameThinker (arXiv 2509.24304): `SFT.json` in examples/agent.

Format: a JSON list of `messages` (`user` and `assistant`), `images` (paths of the frames) and `system`. The first
message of the user is the question, an option per line (`A: text`), then a line per frame, `frame 159: <image>`; later
ones are such lines, or `Frame number at time 1:30 is: 2700.` The assistant writes the method's own grammar. The file
itself is kept by Git LFS and could not be read: fields are second-hand, from a walk-through in a public repository, and
the lines of frames from examples/agent/infer.py of github.com/lcqysl/FrameThinker-RL.

No video is named. It is looked for by the folder of the first image, and by the image's name without its number, which
is how infer.py names frames (`VIDEO/frame_159.jpg`, `VIDEO_159.jpg`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath

from verl_video_tools.data.formats.dialogues import Dialogues, named_videos
from verl_video_tools.data.formats.entries import Entry

_FRAMES = re.compile(r"^\s*frame \d+:.*", re.IGNORECASE | re.MULTILINE | re.DOTALL)
_ANSWER = re.compile(r"<action>\s*output answer:\s*(\S.*?)\s*</action>", re.DOTALL)
_NUMBER = re.compile(r"(?:^|[_-])(?:frame[_-]?)?\d+$", re.IGNORECASE)
_ROUND = re.compile(r"_iter_\d+$")


class FrameThinkerSFT(Dialogues):
    """See the module."""

    name = "framethinker-sft"
    columns = ("messages", "images", "id", "video")

    def question_of(self, asked: str) -> str:
        return _FRAMES.sub("", asked).strip()

    def answer_of(self, turn: str) -> str | None:
        found = _ANSWER.search(turn)
        return found[1] if found else None

    def video_names(self, entry: Entry) -> Iterator[str]:
        yield from named_videos(entry)
        images = entry.get("images") or ()
        for image in images[:1]:
            path = PurePosixPath(str(image.get("path") if isinstance(image, Mapping) else image).replace("\\", "/"))
            if stem := _NUMBER.sub("", path.stem):
                yield str(path.with_name(stem))
            if path.parent.name:
                yield str(path.parent.with_name(_ROUND.sub("", path.parent.name)))
