"""The queue port: rows and images of a run in TransferQueue. No other module of the package imports it.

A training row is a sequence. Its key is `{uid}_{session_id}_{index}`: group, rollout in the group, sequence in the
rollout (one, or several under a context policy).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import ray
import torch
import transfer_queue as tq
from transfer_queue import KVBatchMeta as KVBatchMeta
from verl.utils.tensordict_utils import list_of_dict_to_tensordict

from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.machine import page


def read(keys: Sequence[str], partition_id: str, *fields: str) -> list[dict[str, Any]]:
    """Rows in the order of `keys`, each with these fields.

    Raises:
        RuntimeError, ValueError: the queue does not hold a key or a field.
    """
    columns = tq.kv_batch_get(keys=list(keys), partition_id=partition_id, select_fields=list(fields))
    values = {name: _values(columns[name]) for name in fields}
    return [{name: values[name][number] for name in fields} for number in range(len(keys))]


def _values(column: Any) -> list[Any]:
    """Those of a tensor, jagged where lengths differ, or of a stack of other objects."""
    if isinstance(column, torch.Tensor):
        return list(column.unbind())
    return [getattr(column[number], "data", column[number]) for number in range(len(column))]


def write(keys: Sequence[str], partition_id: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows that all have the same fields. Blocks the thread, not the queue's own event loop."""
    tq.kv_batch_put(keys=list(keys), partition_id=partition_id, fields=list_of_dict_to_tensordict(list(rows)))


async def write_async(keys: Sequence[str], partition_id: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """As `write`, in one request of the running event loop."""
    fields = list_of_dict_to_tensordict(list(rows))
    await tq.async_kv_batch_put(keys=list(keys), partition_id=partition_id, fields=fields)


def write_tagged(key: str, partition_id: str, row: Mapping[str, torch.Tensor], tag: Mapping[str, Any]) -> None:
    """Write one row and its tag, without a copy of its tensors, which may hold the pixels of hundreds of images."""
    tq.kv_put(key=key, partition_id=partition_id, fields=dict(row), tag=dict(tag))


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
