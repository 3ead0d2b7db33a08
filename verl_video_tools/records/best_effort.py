"""Work such as logging that must not end a run: failures are counted, logged once, and tried again."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

logger = logging.getLogger(__name__)


class BestEffort:
    """Calls a function and never raises. May be used from several threads.

    A failed call is repeated with the next call. If calls keep failing, the oldest are dropped.

    Args:
        work: the function that may fail.
        what: its name in the warning, such as "records in /runs/1".
        counter: the metric that counts failures, for the warning.
        max_pending: failed calls that are repeated later.
    """

    def __init__(self, work: Callable[..., object], what: str, counter: str, max_pending: int = 2) -> None:
        self._work, self._what, self._counter, self._max_pending = work, what, counter, max_pending
        self._pending: deque[tuple[tuple[Any, ...], Mapping[str, Any]]] = deque()
        self._lock = threading.Lock()
        self.num_failures = 0
        """Attempts that failed."""

    def __call__(self, *arguments: Any, **options: Any) -> None:
        with self._lock:
            self._pending.append((arguments, options))
            self._try_all()
            while len(self._pending) > self._max_pending:
                self._pending.popleft()

    def try_again(self) -> None:
        """Repeat the failed calls, after the last call."""
        with self._lock:
            self._try_all()

    def _try_all(self) -> None:
        for _ in range(len(self._pending)):
            call = self._pending.popleft()
            try:
                self._work(*call[0], **call[1])
            except Exception:
                self._pending.append(call)  # all are attempted in turn, so that they stay in order
                self.num_failures += 1
                if self.num_failures == 1:
                    then = ", and the next call repeats this one" if self._max_pending else ""
                    logger.warning(
                        "failed: %s; training goes on%s (logged once, counted in %s)",
                        self._what,
                        then,
                        self._counter,
                        exc_info=True,
                    )
