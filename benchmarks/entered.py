"""How much of the package one rollout goes through: functions entered, and files they stand in.

    python -m benchmarks.entered

One replay of VideoZoomer with one zoom, in a fresh process; threads that decode are counted too.
"""

from __future__ import annotations

import sys
import tempfile
import threading
from pathlib import Path
from types import CodeType, FrameType

from tests.videos.files import write_video
from verl_video_tools.replay import replay

PACKAGE = str(Path(__file__).parent.parent / "verl_video_tools")
TURNS = (
    '<think>Closer.</think><video_zoom>{"segment": [4, 6], "fps": 2}</video_zoom>',
    "<think>Seen.</think><answer>B</answer>",
)


def entered(video: str) -> set[CodeType]:
    """Code of the package's functions that a replay enters; lambdas, comprehensions and modules are not counted."""
    found: set[CodeType] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(PACKAGE) and not code.co_name.startswith("<"):
            found.add(code)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        replay("videozoomer", video, "What is shown at 0:05?\nA. a dog\nB. a cat", "B", TURNS)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return found


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        video = str(write_video(Path(folder) / "video.mp4", num_frames=300, fps=30, width=96, height=64))
        found = entered(video)
    print(f"{len(found)} functions in {len({code.co_filename for code in found})} files")


if __name__ == "__main__":
    main()
