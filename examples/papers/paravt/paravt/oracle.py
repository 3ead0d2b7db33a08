"""Oracle of ParaVT in the synthetic world: in one turn it crops where the question points, and another part."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from verl_video_tools.methods.longvt.method import segment_seconds
from verl_video_tools.methods.toolkit.oracle import Script, ScriptedOracle, remind, video_info
from verl_video_tools.synthetic.questions import Question
from verl_video_tools.synthetic.seconds import evidence_seconds
from verl_video_tools.synthetic.world import VideoSpec, frames_at

CALL = '<tool_call>{{"name": "crop_video", "arguments": {{"start_time": {}, "end_time": {}}}}}</tool_call>'


@dataclass(frozen=True, kw_only=True)
class ParaVTOracle(ScriptedOracle):
    method: Any

    def script(self, spec: VideoSpec, question: Question) -> Script:
        rng = self._rng(spec, question)
        start = round(rng.uniform(0.0, spec.duration_seconds - 4.0), 1)
        crops = [evidence_seconds(spec, question), (start, round(start + 4.0, 1))]
        if rng.random() < self.imperfection and question.kind != "direct":  # whose answer the first frames may show
            crops = [] if rng.random() < self.skip_rate else crops[1:]
        info, method = video_info(spec), self.method
        seconds = [time for span in crops[:1] for time in segment_seconds(*span, info, method.fps, method.call_frames)]
        answer = self._conclusion(rng, spec, question, frames_at(spec, seconds))
        calls = "".join(CALL.format(*crop) for crop in crops)
        if not calls:
            return Script("A", (answer,))
        return Script("B", (*remind(question, [f"<think>look closer here</think>{calls}"]), answer))
