"""Marks warnings of this package for the user who reads a recipe's output.

verl's format of log lines does not name the logger, so that `launch.console` cannot tell our warnings from those of
frameworks. With VVT_MARK_WARNINGS=1, which `vvt train` sets unless VERBOSE=1, the first line of each is also written
with our mark; it stays in the log as it is, with its traceback.
"""

from __future__ import annotations

import logging
import os
import sys

MARK = "[verl_video_tools]"
"""Begins every line that this package prints for the user."""
VARIABLE = "VVT_MARK_WARNINGS"


class _MarkedLines(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        try:
            first, *_ = record.getMessage().splitlines() or [""]
            print(f"{MARK} {record.levelname.lower()}: {first}", file=sys.stderr, flush=True)
        except Exception:
            self.handleError(record)


def activate_if_enabled() -> None:
    """Once per process, where the variable is set."""
    ours = logging.getLogger("verl_video_tools")
    if os.environ.get(VARIABLE) == "1" and not any(isinstance(each, _MarkedLines) for each in ours.handlers):
        ours.addHandler(_MarkedLines(logging.WARNING))
