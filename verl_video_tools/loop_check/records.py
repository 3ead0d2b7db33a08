"""What the taps of a conformance run write, as lines of JSON, and how the audit reads them together again.

FOLDER/images/<name>.png        every image that was given to the engine or stands in a row, once, by its content
FOLDER/generations-*.jsonl      a line for each request to the engine
FOLDER/rows-*.jsonl             a line for each sequence that a loop has handed over for training
FOLDER/trained-*.jsonl          a line for each sequence that a step has trained on
FOLDER/settings.json            the options of the run that the audit must know
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import numpy as np
import numpy.typing as npt
from PIL import Image

from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.pages import page

FOLDER_VARIABLE = "VVT_LOOP_CHECK_DIR"
"""Environment variable that names the folder of a conformance run."""
STALE_VARIABLE = "VVT_LOOP_CHECK_STALE_FROM"
"""Environment variable: from this step on the engine gets no new weights, and no other fault is planted."""
STALE_WEIGHTS = "stale_weights"


@dataclass(frozen=True, kw_only=True)
class Generation:
    """One request of a loop to the inference engine.

    Attributes:
        given_ids: the prompt that the engine was given.
        images: names of the images that it was given, in order.
        returned_ids: what it has sampled.
        log_probs: of these, as it has returned them; empty where it was not asked for them.
        version: of the weights that it says to have; None if it does not say, or if there were several.
        fault: of the row, planted or not; None in a clean row.
        planted: the fault has changed something in this very request.
    """

    uid: str
    session_id: int
    step: int
    loop: str
    fault: str | None
    planted: bool
    given_ids: list[int]
    images: list[str]
    returned_ids: list[int]
    log_probs: list[float]
    version: int | None


@dataclass(frozen=True, kw_only=True)
class Row:
    """One sequence that a loop has handed over for training.

    Attributes:
        sequence: its number in the rollout.
        lost: the rollout must not count; planted by the fault `lost_rollout`.
        images: names of its images, in order.
        grids_N3: patches of each image in time, height and width, as the row holds them.
        position_ids_CL: as the row holds them: C is 4 for the Qwen models, 1 for text.
        flags: of the rollout's record, where the loop is ours.
        error: why the worker could not make a row of it; positions are then missing.
    """

    uid: str
    session_id: int
    sequence: int
    step: int
    loop: str
    fault: str | None
    planted: bool
    lost: bool
    prompt_ids: list[int]
    response_ids: list[int]
    response_mask: list[int]
    log_probs: list[float] | None
    images: list[str]
    grids_N3: list[list[int]]
    position_ids_CL: list[list[int]]
    flags: list[str]
    error: str | None = None

    @property
    def ids(self) -> list[int]:
        return self.prompt_ids + self.response_ids


@dataclass(frozen=True, kw_only=True)
class Trained:
    """One sequence as a step has trained on it.

    Attributes:
        response_mask: the loss mask at last; a trainer may have taken tokens, or the whole sequence, out of the loss.
        log_probs: the engine's, as training has compared with them; None where it has not asked for any.
        actor_log_probs: the actor's before the update; None where verl has not computed them.
        advantage: of its first trained token; 0 if there is none.
        score: the rollout's reward.
    """

    uid: str
    session_id: int
    sequence: int
    step: int
    response_mask: list[int]
    log_probs: list[float] | None
    actor_log_probs: list[float] | None
    advantage: float
    score: float


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """Options of a run that decide what the audit expects.

    Attributes:
        estimator: `algorithm.adv_estimator`.
        divides_by_std: `algorithm.norm_adv_by_std_in_grpo`.
        kl_in_reward: `algorithm.use_kl_in_reward`.
        temperature: of sampling; `top_p` and `top_k` alike.
        logprobs_mode: of vLLM: which of its log-probabilities it returns.
        mm_processor_kwargs: `data.mm_processor_kwargs`.
    """

    estimator: str
    divides_by_std: bool
    kl_in_reward: bool
    temperature: float
    top_p: float
    top_k: int
    logprobs_mode: str | None
    mm_processor_kwargs: dict[str, Any] = field(default_factory=dict)


@dataclass
class Rollout:
    """All that the taps tell of one rollout.

    Attributes:
        trained: by the number of the sequence; empty if no step has trained on it.
    """

    uid: str
    session_id: int
    step: int
    loop: str
    fault: str | None
    generations: list[Generation] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    trained: dict[int, Trained] = field(default_factory=dict)

    @property
    def is_planted(self) -> bool:
        lines: list[Generation | Row] = [*self.generations, *self.rows]
        return self.fault == STALE_WEIGHTS or any(line.planted for line in lines)

    @property
    def is_lost(self) -> bool:
        return any(row.lost for row in self.rows)

    @property
    def has_failed(self) -> bool:
        """The engine or the worker has refused it, so that there is no row."""
        return not self.rows or any(row.error is not None for row in self.rows)


class TapFolder:
    """Writes into the folder of a run. Several processes, and threads of each, may do so at once.

    Raises:
        UsageError: the folder cannot be made.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._name = f"{os.getpid()}-{uuid4().hex[:8]}"
        self._lock = threading.Lock()
        try:
            (folder / "images").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"{FOLDER_VARIABLE}={folder}: {error.strerror}; name a folder that can be made") from error

    def write(self, line: Generation | Row | Trained) -> None:
        kind = _KINDS[type(line)]
        text = json.dumps(asdict(line))
        with self._lock, (self._folder / f"{kind}-{self._name}.jsonl").open("a", encoding="utf-8") as file:
            file.write(text + "\n")

    def write_settings(self, settings: RunSettings) -> None:
        _replace(self._folder / "settings.json", json.dumps(asdict(settings)).encode(), self._name)

    def keep_image(self, name: str, pixels_HWC: npt.NDArray[np.uint8]) -> None:
        path = image_path(self._folder, name)
        if not path.exists():
            with self._lock:
                part = path.with_suffix(f".{self._name}")
                Image.fromarray(pixels_HWC).save(part, format="PNG")
                part.replace(path)


_KINDS: Mapping[type, str] = {Generation: "generations", Row: "rows", Trained: "trained"}
T = TypeVar("T", Generation, Row, Trained)


def image_path(folder: Path, name: str) -> Path:
    return folder / "images" / f"{name}.png"


def read_image(folder: Path, name: str) -> Image.Image:
    with Image.open(image_path(folder, name)) as image:
        image.load()
        return image


def read_settings(folder: Path) -> RunSettings | None:
    """None if the run had no callback (`callback.py`)."""
    path = folder / "settings.json"
    return RunSettings(**json.loads(path.read_text(encoding="utf-8"))) if path.exists() else None


def read_rollouts(folder: Path) -> list[Rollout]:
    """The rollouts of a run, in order of steps, groups and numbers.

    Raises:
        UsageError: the folder holds no lines of a conformance run, or one that is damaged.
    """
    generations, rows = list(_lines(folder, Generation)), list(_lines(folder, Row))
    found: dict[tuple[str, int], Rollout] = {}
    lines: list[Generation | Row] = [*generations, *rows]
    for line in lines:
        key = line.uid, line.session_id
        if key not in found:
            found[key] = Rollout(line.uid, line.session_id, line.step, line.loop, line.fault)
    if not found:
        raise UsageError(
            f"{folder} holds no lines of a conformance run; {page('loop-conformance')} shows how to make them"
        )
    for generation in generations:
        found[generation.uid, generation.session_id].generations.append(generation)
    for row in rows:
        found[row.uid, row.session_id].rows.append(row)
    for each in _lines(folder, Trained):
        if (rollout := found.get((each.uid, each.session_id))) is not None:
            rollout.trained[each.sequence] = each
    for rollout in found.values():
        rollout.generations.sort(key=lambda generation: len(generation.given_ids))
        rollout.rows.sort(key=lambda row: row.sequence)
    return sorted(found.values(), key=lambda rollout: (rollout.step, rollout.uid, rollout.session_id))


def groups_of(rollouts: Iterable[Rollout]) -> list[list[Rollout]]:
    """Rollouts of one question and step belong to one group."""
    groups: dict[tuple[int, str], list[Rollout]] = {}
    for rollout in rollouts:
        groups.setdefault((rollout.step, rollout.uid), []).append(rollout)
    return list(groups.values())


def _lines(folder: Path, kind: type[T]) -> Iterator[T]:
    for path in sorted(folder.glob(f"{_KINDS[kind]}-*.jsonl")):
        for number, text in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            try:
                yield kind(**json.loads(text))
            except (ValueError, TypeError) as error:
                raise UsageError(f"{path}, line {number}: no line of a conformance run ({error})") from error


def _replace(path: Path, content: bytes, unique: str) -> None:
    part = path.with_suffix(f".{unique}")
    part.write_bytes(content)
    part.replace(path)


def trained_tokens(rollout: Rollout, row: Row, steps_with_trained: Container[int]) -> list[int]:
    """The loss mask of a row's response at last: of zeros where the step has left the row out.

    Args:
        steps_with_trained: steps of which it was tapped what they have trained on; of others the row's own mask counts.
    """
    if rollout.step not in steps_with_trained:
        return row.response_mask
    trained = rollout.trained.get(row.sequence)
    return [0] * len(row.response_mask) if trained is None else trained.response_mask[: len(row.response_mask)]
