"""Record of a policy that was asked once more from frames alone (`core.verification_rules`)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from verl_video_tools.core.frames import FrameRecord


@dataclass
class Verification:
    """What came of asking the policy once more.

    Attributes:
        frames: that it was shown, in this order.
        text: its reply; None where there was none.
        error: why there was none, in words: it did not fit, or the policy has no more to say.
    """

    frames: list[FrameRecord] = field(default_factory=list)
    text: str | None = None
    error: str | None = None

    def to_dict(self) -> dict[str, Any]:
        return {"frames": [frame.to_dict() for frame in self.frames], "text": self.text, "error": self.error}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Verification:
        return cls([FrameRecord.from_dict(frame) for frame in data["frames"]], data["text"], data["error"])
