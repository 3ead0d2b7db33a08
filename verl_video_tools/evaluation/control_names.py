"""Names of the controls. Import-light: the command line reads them."""

from __future__ import annotations

from enum import StrEnum


class Control(StrEnum):
    """What is changed of an evaluation to see what its accuracy rests on (LongVT, table 4)."""

    NO_VISUAL = "no-visual"
    """The question without a frame of its video."""
    SHUFFLED_OPTIONS = "shuffled-options"
    """The options in another order, the truth with them."""
