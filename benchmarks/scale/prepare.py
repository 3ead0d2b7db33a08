"""What a measurement reads: a video and the tiny models, able to take long prompts."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from benchmarks.scale.cases import VIDEO_FPS, VIDEO_SECONDS, VIDEO_SIZE, WARM_UP_SECONDS, WARM_UP_SIZE
from tests.videos.files import write_video
from verl_video_tools.synthetic import FAMILIES, base_model_dir

_MAX_POSITIONS = 131_072


def prepare(folder: Path) -> None:
    """Write them into a folder, unless they are there."""
    folder.mkdir(parents=True, exist_ok=True)
    # Pixels of the warm-up's frames are others, so that no cache holds what is measured.
    videos = (("video.mp4", VIDEO_SECONDS, VIDEO_SIZE), ("short.mp4", WARM_UP_SECONDS, WARM_UP_SIZE))
    for name, seconds, (width, height) in videos:
        if not (video := folder / name).exists():
            partial = folder / "partial.mp4"
            write_video(partial, num_frames=seconds * VIDEO_FPS, fps=VIDEO_FPS, width=width, height=height)
            partial.rename(video)
    for family in FAMILIES:
        if (target := folder / family).exists():
            continue
        shutil.copytree(base_model_dir(family), partial := folder / f"partial_{family}", dirs_exist_ok=True)
        path = partial / "config.json"
        config = json.loads(path.read_text())
        config["text_config"]["max_position_embeddings"] = _MAX_POSITIONS
        path.write_text(json.dumps(config, indent=2))
        partial.rename(target)
