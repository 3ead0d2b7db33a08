"""The cold start of VideoZoomer (arXiv 2512.22315): the data set zsgvivo/videozoomer_sft on Hugging Face.

Format: a JSON list, JSON lines or parquet of `messages` (`system`, `user`, `assistant`) and `images` (paths of PNG
files), as LLaMA-Factory takes them. The first message of the user has a label and an `<image>` per frame,
`<frame0_time0.00s><image>`, then the question; it may follow examples that end with "Now answer the following
question:".
Read from scripts/video_eval/tool_call_infer.py of github.com/zsgvivo/VideoZoomer, which writes such files; the data
set itself was not read.

The published files name no video (images lie in folders named by a hash). Rows of the questions do: convert the file
that reinforcement learning takes (`videozoomer-json`), and give it as `--questions`.
"""

from __future__ import annotations

import re

from verl_video_tools.data.formats.dialogues import Dialogues
from verl_video_tools.data.formats.fields import tagged_answer

_EXAMPLES = re.compile(r".*Now answer the following question:", re.DOTALL)
_FRAME = re.compile(r"<frame\d+_time(\d{1,9}(?:\.\d+)?)s>")
_BOX = re.compile(r"\\boxed\{(.*)\}", re.DOTALL)


class VideoZoomerSFT(Dialogues):
    """See the module."""

    name = "videozoomer-sft"
    columns = ("messages", "conversations", "id", "videos", "video")

    def question_of(self, asked: str) -> str:
        return _FRAME.sub("", _EXAMPLES.sub("", asked)).strip()

    def answer_of(self, turn: str) -> str | None:
        if "<answer>" not in turn:
            return None
        answer = tagged_answer(turn)
        boxed = _BOX.search(answer)
        return boxed[1].strip() if boxed else answer
