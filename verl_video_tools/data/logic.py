"""Whether the reasoning of recorded dialogues is sound, as another model sees it (FrameThinker, paper F.2).

The paper keeps what led to the right answer, and lets a second model filter out illogical reasoning paths. Only right
dialogues are asked about. A file of checked records grows by whole lines, and goes on where it stopped.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from verl_video_tools.core.errors import EndpointError, UsageError
from verl_video_tools.core.json_text import json_objects
from verl_video_tools.core.prompts import read_prompt
from verl_video_tools.core.reasoning import without_reasoning
from verl_video_tools.core.types import StopReason, Trajectory
from verl_video_tools.data.append import Progress, append_record, appended, no_progress, work_through
from verl_video_tools.records.records import read_records
from verl_video_tools.services.chat import Completion, UnusableReply, usable_reply
from verl_video_tools.services.config import EndpointConfig
from verl_video_tools.services.endpoint import EndpointClient

Key = tuple[int, str, int]
"""What a record is known by: `step`, `uid` and `session_id`."""


@dataclass
class LogicSummary:
    """What became of the records of a file.

    Attributes:
        consistent: dialogues that the model found sound.
        rejected: those that it did not, with its reason.
        failed: those without a verdict, with the failure; the next run asks again.
        left_out: dialogues that were not asked about: flagged, unanswered, wrong, or of another form than was asked.
    """

    consistent: set[Key] = field(default_factory=set)
    rejected: dict[Key, str] = field(default_factory=dict)
    failed: dict[Key, str] = field(default_factory=dict)
    left_out: int = 0

    def add(self, record: Mapping[str, Any]) -> None:
        verdict, key = record["logic"], key_of(record)
        if verdict["consistent"]:
            self.consistent.add(key)
        else:
            self.rejected[key] = str(verdict["reason"])

    def __str__(self) -> str:
        return (
            f"{len(self.consistent)} dialogues sound, {len(self.rejected)} rejected, {len(self.failed)} without a "
            f"verdict; {self.left_out} others not asked about"
        )


def key_of(record: Mapping[str, Any]) -> Key:
    return int(record["step"]), str(record["uid"]), int(record["session_id"])


async def check_logic(
    records: str | Path,
    out: str | Path,
    config: EndpointConfig,
    *,
    progress: Progress = no_progress,
) -> LogicSummary:
    """Ask about each right dialogue of `records` that `out` does not hold yet, and append it with the verdict.

    A line of `out` is the record with an entry `logic`: `consistent`, `reason` and `model`.

    Args:
        records: a file of records, or the folder of a training run.
        progress: called before the first dialogue and after each, with the number done and wanted.

    Raises:
        UsageError: the records cannot be read, or `out` is no such file.
        EndpointError: the endpoint cannot be reached, or lists no model where none was named.
    """
    prompt = read_prompt(__package__, "logic_prompt.txt", None)
    lines = {
        key_of(line): line for line in read_records(Path(records), must_exist=True)
    }  # of one made again the last counts
    asked = {key: line for key, line in lines.items() if _is_candidate(line)}
    summary = LogicSummary(left_out=len(lines) - len(asked))
    models = set[str]()
    with appended(Path(out)) as file:
        for line in read_records(Path(out)):
            _check_kept(line, lines, Path(out))
            models.add(line["logic"]["model"])
            summary.add(line)
        left = [line for key, line in asked.items() if key not in summary.consistent | summary.rejected.keys()]
        num_done = len(asked) - len(left)
        progress(num_done, len(asked))
        if not left:
            return summary
        async with EndpointClient(config) as client:
            await client.check_reachable()
            model = config.model or (await client.served_models())[0]
            if others := models - {model}:
                raise UsageError(
                    f"{out} holds verdicts of {min(others)!r}, not of {model!r}; give another file to write"
                )

            async def check(line: dict[str, Any]) -> None:
                try:
                    verdict = await _verdict(client, prompt, line["trajectory"])
                except EndpointError as error:
                    summary.failed[key_of(line)] = str(error)
                    return
                trajectory = line["trajectory"].to_dict()
                checked = {**line, "trajectory": trajectory, "logic": verdict}
                append_record(file, checked)
                summary.add(checked)

            await work_through(left, check, config.concurrency, progress, num_done=num_done)
    return summary


def _check_kept(line: Mapping[str, Any], lines: Mapping[Key, Mapping[str, Any]], out: Path) -> None:
    """Raises UsageError for a line of `out` that says nothing about the records now asked about."""
    if "logic" not in line:
        raise UsageError(f"{out} holds records without a verdict; give another file to write")
    asked = lines.get(key_of(line))
    if asked is not None and asked["trajectory"].to_dict() != line["trajectory"].to_dict():
        raise UsageError(
            f"{out} holds a verdict on another dialogue as {key_of(line)}; give the records that it was made from, or "
            "another file to write"
        )


def _is_candidate(record: Mapping[str, Any]) -> bool:
    trajectory: Trajectory = record["trajectory"]
    is_right = trajectory.stop_reason is StopReason.ANSWER and record["reward"]["acc"] > 0.0
    return is_right and not trajectory.flags and not record.get("template_fault")


async def _verdict(client: EndpointClient, prompt: str, trajectory: Trajectory) -> dict[str, Any]:
    """The model's verdict on one dialogue. Raises EndpointError if there is none."""
    dialogue = {
        "question": trajectory.question,
        "frames_shown_first": trajectory.initial_frame_indices(),
        "turns": [{"said": turn.text, "reply": turn.observation} for turn in trajectory.turns],
    }
    messages = [
        {"role": "system", "content": prompt},
        {"role": "user", "content": json.dumps(dialogue, ensure_ascii=False)},
    ]
    verdict, model = await usable_reply(client, messages, _read_verdict)
    return {**verdict, "model": model}


def _read_verdict(completion: Completion) -> dict[str, Any]:
    found = [
        entry for entry in json_objects(without_reasoning(completion.text)) if isinstance(entry.get("consistent"), bool)
    ]
    if len({entry["consistent"] for entry in found}) != 1:
        raise UnusableReply(
            f"the reply holds no verdict: {completion.text[:200]!r}",
            'That cannot be read. Reply with one JSON object: {"consistent": true or false, "reason": "..."}',
        )
    return {"consistent": found[-1]["consistent"], "reason": str(found[-1].get("reason", ""))}
