"""The queue port: rows and images of a run in TransferQueue. No other module of the package imports it.

A training row is a sequence. Its key is `{uid}_{session_id}_{index}`: group, rollout in the group, sequence in the
rollout (one, or one per turn).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import ray
import torch
import transfer_queue as tq
from tensordict import TensorDict
from transfer_queue import KVBatchMeta as KVBatchMeta
from verl.utils.tensordict_utils import list_of_dict_to_tensordict

from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.machine import page


def read(keys: Sequence[str], partition_id: str, *fields: str) -> Any:
    """Columns of rows, in the order of `keys`: tensors, jagged where lengths differ, and stacks of other objects.

    Raises:
        RuntimeError, ValueError: the queue does not hold a key or a field.
    """
    return tq.kv_batch_get(keys=list(keys), partition_id=partition_id, select_fields=list(fields))


def cell(column: Any, index: int) -> Any:
    """One row's value of a column."""
    value = column[index]
    return getattr(value, "data", value) if not isinstance(value, torch.Tensor) else value


def write(
    keys: Sequence[str], partition_id: str, fields: Mapping[str, Any], tags: Sequence[Mapping[str, Any]] | None = None
) -> None:
    """Write columns, each with a value for each key. Blocks the thread, not the queue's own event loop."""
    columns = TensorDict({}, batch_size=len(keys))
    for name, values in fields.items():
        columns[name] = values
    options = {} if tags is None else {"tags": list(tags)}
    tq.kv_batch_put(keys=list(keys), partition_id=partition_id, fields=columns, **options)


def write_rows(keys: Sequence[str], partition_id: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows that all have the same fields."""
    tq.kv_batch_put(keys=list(keys), partition_id=partition_id, fields=list_of_dict_to_tensordict(list(rows)))


async def write_rows_async(keys: Sequence[str], partition_id: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """As `write_rows`, in one request of the running event loop."""
    fields = list_of_dict_to_tensordict(list(rows))
    await tq.async_kv_batch_put(keys=list(keys), partition_id=partition_id, fields=fields)


def tags_by_key() -> dict[str, dict[str, dict[str, Any]]]:
    """The tags of all rows, by partition and key, listed at once."""
    return tq.kv_list() or {}


def remove(keys: Sequence[str], partition_id: str) -> None:
    tq.kv_clear(keys=list(keys), partition_id=partition_id)


async def remove_async(keys: Sequence[str], partition_id: str) -> None:
    await tq.async_kv_clear(keys=list(keys), partition_id=partition_id)


def storage_units(backend: Any) -> list[Any]:
    """Handles of TransferQueue's storage actors, which hold the batch; it has no function that gives them.

    Args:
        backend: verl's `transfer_queue.backend`. Other backends than SimpleStorage keep no actors of a known name.

    Raises:
        UsageError: they belong to another run. TransferQueue's controller has one name per cluster, and a second run
            silently takes that of the first.
    """
    if backend.storage_backend != "SimpleStorage":
        return []
    number = backend.SimpleStorage.num_data_storage_units
    try:
        return [ray.get_actor(f"TransferQueueStorageUnit#{unit}") for unit in range(number)]
    except ValueError as error:  # names of other actors than the controller are known within their own run only
        raise UsageError(
            "another run uses this Ray cluster, and the two would mix their rollouts in one TransferQueue: wait until "
            f"it has ended, or give each run a cluster of its own ({page('cluster')})"
        ) from error


def queue_controller() -> list[Any]:
    """Handle of TransferQueue's controller, which every put and get of a run asks first, and without a time limit; none
    where TransferQueue has not been started."""
    try:
        return [ray.get_actor("TransferQueueController", namespace="transfer_queue")]
    except ValueError:
        return []
