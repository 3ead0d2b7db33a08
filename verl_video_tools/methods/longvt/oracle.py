"""Oracle policy for LongVT: what a competent policy would write for a question of the synthetic world.

Templates, by the letters of `methods.toolkit.oracle`:
    A  answer at once, from the initial frames
    B  crop the part that the question names, then answer
It concludes only from frames that it was shown, so its thoughts are true.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import ClassVar

from verl_video_tools.methods.longvt.method import LongVT
from verl_video_tools.methods.toolkit.oracle import Script, ScriptedOracle, initial_frames_tell, remind, video_info
from verl_video_tools.synthetic.questions import Question
from verl_video_tools.synthetic.seconds import evidence_seconds
from verl_video_tools.synthetic.world import VideoSpec


@dataclass(frozen=True, kw_only=True)
class LongVTOracle(ScriptedOracle):
    """An oracle policy in LongVT's grammar. Questions without options want one that answers in words."""

    takes_open_questions: ClassVar[bool] = True
    answer_turn: ClassVar[str] = "<think>{thought}. {answer}</think>\n<answer>{answer}</answer>"

    method: LongVT

    def script(self, spec: VideoSpec, question: Question) -> Script:
        rng = self._rng(spec, question)
        segment: tuple[float, float] | None = evidence_seconds(spec, question)
        is_told_at_once = initial_frames_tell(self.method, spec, question)
        if rng.random() < self.imperfection:
            start = round(rng.uniform(0.0, spec.duration_seconds - 6.0), 1)
            segment = None if rng.random() < self.skip_rate else (start, round(start + rng.uniform(2.0, 6.0), 1))
        elif is_told_at_once:
            segment = None
        if segment is None:
            shown = [question.evidence[0][0]] if is_told_at_once else []
        else:
            shown = self._shown(spec, *segment)
        answer = self._conclusion(rng, spec, question, shown)
        if segment is None:
            return Script("A", (answer,))
        return Script("B", (*remind(question, [_crop(*segment)]), answer))

    def frame_name(self, spec: VideoSpec, frame: int) -> str:
        return f"{frame / spec.fps:.1f}s"

    def _shown(self, spec: VideoSpec, start: float, end: float) -> list[int]:
        """Frames that the tool shows of a segment."""
        return self.method.crop_video().frame_numbers(start, end, video_info(spec))


def _crop(start: float, end: float) -> str:
    call = {"name": "crop_video", "arguments": {"start_time": round(start, 1), "end_time": round(end, 1)}}
    window = f"between {start:.1f}s and {end:.1f}s"
    return f"<think>{window}</think>\n<tool_call>\n{json.dumps(call)}\n</tool_call>"
