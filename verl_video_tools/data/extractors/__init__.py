"""Published extractors: how a benchmark's own scripts, or lmms-eval's, read an answer, beside our grader.

Each is our own code for a rule that is published as code; where it was read stands beside its name. Quirks are kept:
two evaluations compare only if they err alike.

letters.py       the letter of an option, by its form and place in the text
mmmu.py          the rules of MMMU's script and of those that go back to it
mvbench.py       MVBench's
open.py          Video-MMMU's for open questions
temp_compass.py  TempCompass's, by its three tasks
times.py         the segment of a video
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.resolve import resolve
from verl_video_tools.core.types import Sample

__all__ = ["EXTRACTORS", "Extractor", "Reading", "get_extractor"]

_HERE = "verl_video_tools.data.extractors"

EXTRACTORS = {
    "framethinker/exact": f"{_HERE}.letters:EXACT",
    "lmms-eval/cgbench": f"{_HERE}.letters:CG_BENCH",
    "lmms-eval/charades_sta": f"{_HERE}.times:CHARADES_STA",
    "lmms-eval/egoschema": f"{_HERE}.mmmu:EGO_SCHEMA",
    "lmms-eval/longvideobench": f"{_HERE}.letters:LONG_VIDEO_BENCH",
    "lmms-eval/lsdbench": f"{_HERE}.letters:LSD_BENCH",
    "lmms-eval/lvbench": f"{_HERE}.letters:RANKED_OF_FOUR",
    "lmms-eval/mlvu": f"{_HERE}.letters:RANKED_OF_FOUR",
    "lmms-eval/mvbench": f"{_HERE}.mvbench:MVBENCH",
    "lmms-eval/nextqa": f"{_HERE}.mmmu:MMMU",
    "lmms-eval/perceptiontest": f"{_HERE}.letters:PERCEPTION_TEST",
    "lmms-eval/tempcompass": f"{_HERE}.temp_compass:TEMP_COMPASS",
    "lmms-eval/temporalbench": f"{_HERE}.letters:TEMPORAL_BENCH",
    "lmms-eval/video_holmes": f"{_HERE}.mmmu:MMMU",
    "lmms-eval/videomme": f"{_HERE}.letters:RANKED_OF_FOUR",
    "lmms-eval/videommmu": f"{_HERE}.open:VIDEO_MMMU",
    "lmms-eval-2025/lvbench": f"{_HERE}.letters:FIRST_OF_FOUR",
    "lmms-eval-2025/mlvu": f"{_HERE}.letters:BEFORE_BRACKET",
    "lmms-eval-2025/videomme": f"{_HERE}.letters:FIRST_OF_FOUR",
    "lmms-eval-2025/videommmu": f"{_HERE}.open:VIDEO_MMMU_2025",
    "lvbench/letter": f"{_HERE}.letters:LV_BENCH",
    "videozoomer/letter": f"{_HERE}.letters:VIDEO_ZOOMER",
}
"""`framethinker` and `videozoomer` are the scripts of their authors, infer.py of github.com/lcqysl/FrameThinker and the
scorer of github.com/zsgvivo/VideoZoomer; `lvbench` is that of the benchmark's, github.com/THUDM/LVBench. `lmms-eval` is
commit 75571cfe (August 2026) of github.com/EvolvingLMMs-Lab/lmms-eval, `lmms-eval-2025` what that had until April 2026,
when several tasks got a new rule: papers of 2025 were measured with the former one."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What an extractor makes of an answer.

    Attributes:
        text: the letter, or ``[start, end]`` in seconds, that it reads; of an open question the answer itself. None
            where it reads nothing.
        is_correct: its verdict, which may be right without a reading: some scripts draw an option then.
    """

    text: str | None
    is_correct: bool


@dataclass(frozen=True)
class Extractor:
    """A published rule.

    Attributes:
        read: the reading of an answer (empty where the model gave none) to a question; None for a question of another
            type than the rule is made for.
        rule: what it does, in a line.
    """

    read: Callable[[str, Sample], Reading | None]
    rule: str


def get_extractor(spec: str) -> Extractor:
    """The extractor of a registered name, or at a Python path such as `my_module:MY_EXTRACTOR`.

    Raises:
        UsageError: there is none, or what is there is no `Extractor`.
    """
    found = resolve(spec, EXTRACTORS, "extractor")
    if not isinstance(found, Extractor):
        raise UsageError(f"the extractor {spec!r} must be an Extractor, got {found!r:.80}")
    return found
