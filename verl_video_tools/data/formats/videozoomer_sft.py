"""The cold start of VideoZoomer (arXiv 2512.22315): the data set zsgvivo/videozoomer_sft on Hugging Face.

Format: a JSON list, JSON lines or parquet of `messages` (`system`, `user`, `assistant`) and `images` (paths of PNG
files), as LLaMA-Factory takes them. The first message of the user has a label and an `<image>` per frame,
`<frame0_time0.00s><image>`, then the question; it may follow examples that end with "Now answer the following
question:".
Read from scripts/video_eval/tool_call_infer.py of github.com/zsgvivo/VideoZoomer, which writes such files; the data
set itself was not read. What that script and reflection.py save beside is read, too: a list of `problem`, `solution`,
`videos`, with `detailed_rollout` and `reflection_rollout`, each of `accuracy` and `sft_messages`; those with accuracy 0
are left out.

The published files name no video (images lie in folders named by a hash). Rows of the questions do: convert the file
that reinforcement learning takes (`videozoomer-json`), and give it as `--questions`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from verl_video_tools.core.errors import RowError
from verl_video_tools.data.formats.dialogues import Dialogues
from verl_video_tools.data.formats.entries import ReadEntry, numbered, read_entries
from verl_video_tools.data.formats.fields import tagged_answer

_EXAMPLES = re.compile(r".*Now answer the following question:", re.DOTALL)
_FRAME = re.compile(r"<frame\d+_time(\d{1,9}(?:\.\d+)?)s>")
_BOX = re.compile(r"\\boxed\{(.*)\}", re.DOTALL)
_ROLLOUTS = ("detailed_rollout", "reflection_rollout")


class VideoZoomerSFT(Dialogues):
    """See the module."""

    name = "videozoomer-sft"
    frames_listed_by = "seconds"
    columns = ("messages", "conversations", "id", "videos", "video")

    def entries(self, annotations: Path) -> Iterator[ReadEntry]:
        """A dialogue each, of a file with several rollouts per question all that are right."""
        return numbered(
            (one for entry in read_entries(annotations, self.columns) for one in _rollouts(entry)), "number"
        )

    def frames_in(self, said: str) -> list[float]:
        return [float(seconds) for seconds in _FRAME.findall(_EXAMPLES.sub("", said))]

    def question_of(self, asked: str) -> str:
        return _FRAME.sub("", _EXAMPLES.sub("", asked)).strip()

    def answer_of(self, turn: str) -> str | None:
        if "<answer>" not in turn:
            return None
        answer = tagged_answer(turn)
        boxed = _BOX.search(answer)
        return boxed[1].strip() if boxed else answer


def _rollouts(entry: ReadEntry) -> Iterator[ReadEntry]:
    if not isinstance(entry, Mapping) or not any(name in entry for name in _ROLLOUTS):
        yield entry
        return
    for name in _ROLLOUTS:
        rollouts = entry.get(name) or []
        if not isinstance(rollouts, list):
            yield RowError(f"the field {name!r} must list rollouts, got {rollouts!r:.80}")
            continue
        for place, rollout in enumerate(rollouts):
            yield _dialogue(entry, rollout, f"{name} {place}")


def _dialogue(entry: Mapping[str, Any], rollout: Any, place: str) -> ReadEntry:
    saved = rollout.get("sft_messages") if isinstance(rollout, Mapping) else None
    if not isinstance(saved, Mapping):
        return RowError(f"{place} was not saved for fine-tuning: it has no sft_messages")
    if not rollout.get("accuracy"):
        return RowError(f"{place} is wrong (accuracy {rollout.get('accuracy')})")
    return {"messages": saved.get("messages"), "videos": entry.get("videos"), "id": None}
