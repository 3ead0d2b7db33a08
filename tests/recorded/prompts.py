"""What a rollout is first shown, as text: system prompt and question of every method, in both modes."""

from __future__ import annotations

import json
from collections.abc import Iterator

from tests.recorded.scripts import CHOICE, CHOICE_EXTRA, MODES
from verl_video_tools.core.types import FrameRecord, ImagePart, Sample, VideoInfo, content_text
from verl_video_tools.methods import get_method

INFO = VideoInfo(duration_seconds=60.0, num_frames=600, average_fps=10.0, width=64, height=36)
QUESTIONS = {
    "mc": (CHOICE, "B", CHOICE_EXTRA),
    "open": ("What is shot?", "a goal", {"question_type": "open"}),
    "segment": ("When is the goal?", "[10, 20]", {"question_type": "segment"}),
}


def prompt_lines() -> Iterator[str]:
    """One line of JSON per prompt: its `id` and its messages, `<image>` for each of two frames."""
    images = [ImagePart(FrameRecord(index, index / 10, 64, 36)) for index in (0, 599)]
    for method, modes in MODES.items():
        for mode in modes:
            configured = get_method(method, **({"compat": mode} if mode != "strict" else {}))
            for name, (question, truth, extra) in QUESTIONS.items():
                extra_info = {"question": question, "video_path": "video.mp4", **extra}
                sample = Sample.from_row({"extra_info": extra_info, "reward_model": {"ground_truth": truth}})
                messages = [
                    {"role": message.role, "text": content_text(message.content)}
                    for message in configured.prompt(sample, INFO, images)
                ]
                line = {"id": f"{method}/{mode}/{name}", "messages": messages}
                yield json.dumps(line, ensure_ascii=False, separators=(",", ":"))
