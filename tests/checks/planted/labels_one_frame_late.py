"""Each initial frame stands under the time of the next one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from verl_video_tools.methods import toolkit as vt
from verl_video_tools.methods.direct import Direct

CAUGHT_BY = "prompt_tells_true_times"


@dataclass(frozen=True, kw_only=True)
class Planted(Direct):
    name: ClassVar[str] = "planted"

    def prompt(self, sample: vt.Sample, info: vt.VideoInfo, images: Sequence[vt.ImagePart]) -> list[vt.Message]:
        content: list[str | vt.ImagePart] = [sample.question]
        for image, labelled in zip(images, [*images[1:], images[-1]], strict=True):
            content += [f"\n{labelled.record.timestamp_seconds:.1f} s: ", image]
        return [super().prompt(sample, info, images)[0], vt.Message("user", tuple(content))]
