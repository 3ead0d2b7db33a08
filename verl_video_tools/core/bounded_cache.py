"""Values that a process keeps for the next time, bounded in bytes."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class BoundedCache(Generic[Key, Value]):
    """The values used last, within a number of bytes; a value that is larger is not kept. Thread-safe.

    Args:
        capacity_bytes: 0 keeps none.
        size_of: bytes of a value.
    """

    def __init__(self, capacity_bytes: int, size_of: Callable[[Value], int]) -> None:
        self.capacity_bytes = capacity_bytes
        self.stored_bytes = 0
        self._size_of = size_of
        self._lock = threading.Lock()
        self._values: OrderedDict[Key, Value] = OrderedDict()

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy, for one in another process, is empty."""
        return BoundedCache, (self.capacity_bytes, self._size_of)

    def get(self, key: Key) -> Value | None:
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
            return self._values.get(key)

    def put(self, key: Key, value: Value) -> None:
        """Keep a value, and drop those that were used longest ago if need be. A key keeps its first value."""
        num_bytes = self._size_of(value)
        if num_bytes > self.capacity_bytes:
            return
        with self._lock:
            if key not in self._values:
                self._values[key] = value
                self.stored_bytes += num_bytes
            while self.stored_bytes > self.capacity_bytes:
                _, dropped = self._values.popitem(last=False)
                self.stored_bytes -= self._size_of(dropped)
