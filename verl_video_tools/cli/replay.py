"""`vvt replay`: reads the options, runs `verl_video_tools.replay.replay`, prints its dict as one JSON object.

Standard output carries the JSON and nothing else, and bad usage is one line on standard error and nothing else:
what libraries print meanwhile is held back, then shown on standard error unless the usage was bad.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from verl_video_tools.cli.output import hold_output
from verl_video_tools.core.assignments import read_assignments
from verl_video_tools.core.errors import UsageError


def run(
    *,
    method: str,
    video: str,
    question: str,
    answer: str,
    turns_file: Path,
    extra_json: str,
    assignments: Sequence[str],
    processor: str | None,
    judge_base_url: str | None,
    rung: int | None,
    retrieval: Sequence[str],
    html: Path | None,
) -> None:
    """Runs one replay and prints it.

    Raises:
        UsageError: an option cannot be read, or does not fit the method.
    """
    turns = read_turns(turns_file)
    extra = read_extra(extra_json)
    settings = read_assignments(assignments)
    if rung is not None:
        if "rung" in settings:
            raise UsageError("--rung and --set rung=... were both given: give one of them")
        settings["rung"] = rung
    retrieval_fields = read_assignments(retrieval, "--retrieval")

    with hold_output() as held:
        try:
            from verl_video_tools.replay import replay
            from verl_video_tools.services.retrieval import local_from_fields

            result = replay(
                method=method,
                video=video,
                question=question,
                answer=answer,
                turns=turns,
                extra=extra,
                settings=settings,
                processor=processor,
                judge_base_url=judge_base_url,
                retriever=local_from_fields(retrieval_fields),
                html=html,
            )
        except UsageError:
            held.discard()
            raise
    json.dump(result, sys.stdout, indent=2, allow_nan=False)
    sys.stdout.write("\n")


def read_turns(path: Path) -> list[str]:
    """The assistant texts in a JSON file.

    Raises:
        UsageError: the file cannot be read or is not a JSON list of strings.
    """
    try:
        turns = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise UsageError(f"--turns {path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:  # invalid JSON, invalid UTF-8, JSON nested too deep
        raise UsageError(f"--turns {path}: not a JSON file ({error})") from error
    if not isinstance(turns, list) or not all(isinstance(turn, str) for turn in turns):
        raise UsageError(f"--turns {path}: expected a JSON list of strings, one per assistant turn")
    return turns


def read_extra(text: str) -> dict[str, Any]:
    """The JSON object given as `--extra`.

    Raises:
        UsageError: the text is not a JSON object.
    """
    try:
        extra = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"--extra: not JSON ({error}), got {text!r}") from error
    if not isinstance(extra, dict):
        raise UsageError(f"--extra: expected a JSON object, got {text!r}")
    return extra
