"""Which validation rows a trainer measures: all of them before and after training, fewer in between where so many cost
too much time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch.utils.data import DataLoader, Subset


@contextmanager
def fewer_rows(trainer: Any, num_rows: int) -> Iterator[None]:
    """Within it, a trainer of verl that is between its first step and its last validates on `num_rows` rows. One that
    only measures a checkpoint (`trainer.val_only`) validates on all.

    Args:
        num_rows: the first of its validation rows; 0 are all.
    """
    is_between = 0 < trainer.global_steps < trainer.total_training_steps
    if not num_rows or not is_between or trainer.config.trainer.get("val_only", False):
        yield
        return
    every_row = trainer.val_dataloader
    trainer.val_dataloader = first_rows(every_row, num_rows)
    try:
        yield
    finally:
        trainer.val_dataloader = every_row


def first_rows(loader: DataLoader, num_rows: int) -> DataLoader:
    """A loader of the first `num_rows` rows of another's data set, in their order; of all, if there are no more.

    It is of the other's class: verl's loaders have a state.
    """
    rows = Subset(loader.dataset, range(min(num_rows, len(loader.dataset))))
    return type(loader)(
        rows,
        batch_size=min(loader.batch_size or 1, len(rows)),
        num_workers=loader.num_workers,
        collate_fn=loader.collate_fn,
    )
