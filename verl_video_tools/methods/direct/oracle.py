"""Oracle policy without tools: it answers from the initial frames, and guesses where they do not tell."""

from __future__ import annotations

from dataclasses import dataclass

from verl_video_tools.methods.direct.method import Direct
from verl_video_tools.methods.toolkit.oracle import Script, ScriptedOracle
from verl_video_tools.synthetic.questions import Question
from verl_video_tools.synthetic.world import VideoSpec
from verl_video_tools.video.sampling import linspace_indices


@dataclass(frozen=True, kw_only=True)
class DirectOracle(ScriptedOracle):
    """Uses the frame that the question names, if the method shows it; there is no tool to call by mistake."""

    method: Direct

    def script(self, spec: VideoSpec, question: Question) -> Script:
        frame = question.evidence[0][0]
        initial_frames = linspace_indices(0, spec.num_frames - 1, self.method.initial_frames)
        shown = [frame] if question.kind == "direct" and frame in initial_frames else []
        return Script("direct", (self._conclusion(self._rng(spec, question), spec, question, shown),))
