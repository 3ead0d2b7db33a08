"""The last step of a run whose epochs are over before `trainer.total_training_steps`.

verl ends with whichever comes first, and knows a last step, which it saves and validates, by the latter alone.
"""

from __future__ import annotations

from omegaconf import DictConfig


def end_with_epochs(trainer: DictConfig, steps_per_epoch: int, *, tells: bool = True) -> int | None:
    """Lower `total_training_steps` to the steps that the epochs have, where it is more.

    Args:
        trainer: the section of a run's configuration; changed in place.
        tells: say so.

    Returns:
        The new number; None where nothing had to change.
    """
    asked, most = trainer.total_training_steps, steps_per_epoch * trainer.total_epochs
    if asked is None or asked <= most:
        return None
    trainer.total_training_steps = most
    if tells:
        print(
            f"[verl_video_tools] {trainer.total_epochs} epochs of {steps_per_epoch} steps end before "
            f"total_training_steps={asked}: step {most} is the last; a larger trainer.total_epochs allows more",
            flush=True,
        )
    return most
