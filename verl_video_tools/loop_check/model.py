"""The policies of a run as its audit sees them: the first model, and the checkpoints of later steps."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from verl_video_tools.core.errors import UsageError
from verl_video_tools.loop_check import reference
from verl_video_tools.loop_check.records import RunSettings, read_image


class RunModel:
    """The model of a run in each version that the audit can find.

    Args:
        folder: of the taps; holds the images.
        model: folder of the model that the run has started from, which is version 0.
        checkpoints: the run's `trainer.default_local_dir`, with the weights of version n in
            `global_step_n/actor/huggingface` (`hf_model` in `actor.checkpoint.save_contents`); None if there are none.
        settings: of the run, if it was tapped.

    Raises:
        UsageError: `model` holds no model.
    """

    def __init__(self, folder: Path, model: Path, checkpoints: Path | None, settings: RunSettings | None) -> None:
        self._folder, self._model, self._checkpoints, self._settings = folder, model, checkpoints, settings
        self._processor: Any = reference.load(model)[1]
        self.image_id: int = self._processor.image_token_id
        self.video_id: int | None = getattr(self._processor, "video_token_id", None)
        self.merge_size: int = self._processor.image_processor.merge_size

    def positions(self, ids: Sequence[int], grids_N3: Sequence[Sequence[int]]) -> list[list[int]]:
        return reference.position_ids_CL(self._model, ids, grids_N3)

    def log_probs(
        self, version: int, ids: Sequence[int], images: Sequence[str], *, banned: bool
    ) -> npt.NDArray[np.float32] | None:
        policy = self.policy(version)
        if policy is None:
            return None
        settings = self._settings
        is_raw = banned and settings is not None and settings.logprobs_mode == "raw_logprobs"
        return reference.token_log_probs(
            policy,
            ids,
            [read_image(self._folder, name) for name in images],
            banned=banned and not is_raw,
            temperature=1.0 if settings is None or is_raw else settings.temperature,
            mm_processor_kwargs=None if settings is None else settings.mm_processor_kwargs,
        )

    def policy(self, version: int) -> Path | None:
        """The folder of a version, if it is there."""
        if version == 0:
            return self._model
        if self._checkpoints is None:
            return None
        folder = self._checkpoints / f"global_step_{version}" / "actor" / "huggingface"
        return folder if (folder / "config.json").exists() else None


def check_checkpoints(checkpoints: Path | None) -> None:
    """Raises UsageError for a folder without a checkpoint in it."""
    if checkpoints is not None and not any(checkpoints.glob("global_step_*")):
        raise UsageError(f"{checkpoints} holds no checkpoint (global_step_*); name the run's trainer.default_local_dir")
