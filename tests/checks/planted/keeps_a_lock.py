"""A config that holds what cannot be pickled."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any, ClassVar

from verl_video_tools.methods.direct import Direct

CAUGHT_BY = "config_survives_pickling"


@dataclass(frozen=True, kw_only=True)
class Planted(Direct):
    name: ClassVar[str] = "planted"

    guard: int | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return (Planted, (), {"guard": threading.Lock()})
