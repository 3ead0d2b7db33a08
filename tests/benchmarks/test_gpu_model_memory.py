"""What an update holds on a CPU, against the plan: small models of both families in the proportions of real ones."""

from __future__ import annotations

import pytest
import torch

from benchmarks.gpu_model.memory import PUBLISHED, Sizes, measure, scaled_configuration
from benchmarks.gpu_model.meter import Meter

SMALL = Sizes(hidden=256, head_dim=64, intermediate=1024, vocabulary=4096, vision_hidden=256)
LATE = Sizes(hidden=256, head_dim=64, intermediate=1024, vocabulary=16_384, vision_hidden=256)


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.filterwarnings("ignore:TF32 acceleration on top of oneDNN")  # by `mkldnn.flags`
@pytest.mark.parametrize(
    ("family", "sizes"),
    [*((family, SMALL) for family in PUBLISHED), ("qwen2_5_vl", LATE)],
    ids=[*PUBLISHED, "logits take most"],
)
def test_bytes_of_an_update_are_those_planned(family: str, sizes: Sizes) -> None:
    # Which buffers oneDNN takes depends on the processor (with AMX 21 % less in Qwen3-VL's tower). Without it the
    # logits of the last case would take minutes.
    with torch.backends.mkldnn.flags(enabled=sizes is LATE):
        lines = measure(Meter("cpu"), family, scaled_configuration(family, sizes), 256, 3)
    errors = {part: round(1 / (line.ratio or 1e-9) - 1, 3) for part, line in lines.items()}
    assert set(errors) == {"language model", "vision tower", "whole"}
    assert all(abs(error) <= 0.15 for error in errors.values()), errors
