"""Work such as logging that must not end a run: failures are counted, logged once, and tried again."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

logger = logging.getLogger(__name__)


class BestEffort:
    """Calls something, and never raises what it raises.

    A call that failed is kept and tried again with the next one; of calls that go on failing the oldest are lost. May
    be used from several threads.

    Args:
        work: what may fail.
        what: it is, for the warning: "records in /runs/1".
        counter: the metric in which failures are counted, for the warning.
        max_kept: calls that are kept for another try.
    """

    def __init__(self, work: Callable[..., object], what: str, counter: str, max_kept: int = 2) -> None:
        self._work, self._what, self._counter, self._max_kept = work, what, counter, max_kept
        self._waiting: deque[tuple[tuple[Any, ...], Mapping[str, Any]]] = deque()
        self._lock = threading.Lock()
        self.num_failures = 0
        """Tries that have failed."""

    def __call__(self, *arguments: Any, **options: Any) -> None:
        with self._lock:
            self._waiting.append((arguments, options))
            self._try_all()
            while len(self._waiting) > self._max_kept:
                self._waiting.popleft()

    def try_again(self) -> None:
        """Once more what is kept, where no further call will come."""
        with self._lock:
            self._try_all()

    def _try_all(self) -> None:
        for _ in range(len(self._waiting)):
            call = self._waiting.popleft()
            try:
                self._work(*call[0], **call[1])
            except Exception:
                self._waiting.append(call)  # all are tried in turn, so that they stay in order
                self.num_failures += 1
                if self.num_failures == 1:
                    then = ", and this is tried again with the next" if self._max_kept else ""
                    logger.warning(
                        "failed: %s; training goes on%s (logged once, counted in %s)",
                        self._what,
                        then,
                        self._counter,
                        exc_info=True,
                    )
