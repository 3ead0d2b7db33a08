"""Oracle of Video-MTR in the synthetic world."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from verl_video_tools.methods.longvt.method import segment_seconds
from verl_video_tools.methods.toolkit.oracle import Script, ScriptedOracle, remind, video_info
from verl_video_tools.synthetic.seconds import evidence_seconds
from verl_video_tools.synthetic.world import frames_at

CALL = '<tool_call>{{"name": "crop_video", "arguments": {{"start_time": {}, "end_time": {}}}}}</tool_call>'


@dataclass(frozen=True, kw_only=True)
class VideoMTROracle(ScriptedOracle):
    """Crops where the question points, if it does not guess."""

    method: Any

    def script(self, spec: Any, question: Any) -> Script:
        rng, info, method = self._rng(spec, question), video_info(spec), self.method
        span = evidence_seconds(spec, question)
        if question.kind == "direct" or rng.random() < self.imperfection:
            return Script("guess", (self._conclusion(rng, spec, question, []),))
        shown = frames_at(spec, segment_seconds(*span, info, method.fps, method.call_frames))
        call = f"<think>look closer here</think>{CALL.format(*span)}"
        return Script("look", (*remind(question, [call]), self._conclusion(rng, spec, question, shown)))
