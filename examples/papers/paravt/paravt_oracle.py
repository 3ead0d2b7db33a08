"""Oracle of ParaVT in the synthetic world: in one turn it crops where the question points, and another part."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from verl_video_tools.methods.longvt.crop_video import segment_seconds
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
        if rng.random() < self.imperfection:
            crops = [] if rng.random() < self.skip_rate else crops[1:]
        limits = video_info(spec), self.method.fps, self.method.call_frames
        seconds = segment_seconds(*crops[0], *limits) if crops else ()
        answer = self._conclusion(rng, spec, question, frames_at(spec, seconds))
        calls = "".join(CALL.format(*crop) for crop in crops)
        if not calls:
            return Script("A", (answer,))
        return Script("B", (*remind(question, [f"<think>look closer here</think>{calls}"]), answer))
