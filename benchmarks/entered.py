"""How much of the package a call, a reward and a training step go through: functions entered, and their files.

    python -m benchmarks.entered [--list]

A call is FrameThinker's `choose_frames`, from `Episode.step(text)` to the observation that answers it. A reward is the
score of that rollout, from its record. A step of GRPO is what the trainer does with a batch of rollouts in an in-memory
queue: balancing, advantages, records and metrics, without the workers, engine and hooks of a run. Lambdas and
comprehensions count, and so do threads that decode.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType

import pytest

from tests.videos.files import write_video
from verl_video_tools.core.types import Sample, Trajectory
from verl_video_tools.methods import get_method
from verl_video_tools.rollout.episode import Episode

PACKAGE = Path(__file__).parent.parent / "verl_video_tools"
CALL = "<think>between 100 and 200</think><action>choose frames between 100 and 200</action>"
ANSWER = "<think>a cat</think><action>output answer: B</action>"


class Recorder:
    """Collects the code of the package's functions that are entered inside a `with` block, in whatever thread.

    Only threads that start after it was made are watched, and the one that made it.
    """

    def __init__(self) -> None:
        self.entered: set[CodeType] = set()
        self._is_recording = False
        threading.setprofile(self._note)
        sys.setprofile(self._note)

    def __enter__(self) -> set[CodeType]:
        self.entered, self._is_recording = set(), True
        return self.entered

    def __exit__(self, *error: object) -> None:
        self._is_recording = False

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if (
            self._is_recording
            and event == "call"
            and code.co_filename.startswith(str(PACKAGE))
            and code.co_name != "<module>"
        ):
            self.entered.add(code)


def training_step(folder: Path) -> dict[str, set[CodeType]]:
    """What is entered by the trainer of a step, by its name."""
    from tests.verl_plugin.test_run_logging import Told  # imports verl

    recorder = Recorder()
    with pytest.MonkeyPatch.context() as patch, recorder as entered:
        Told(patch, folder).metrics()
    return {"a step of GRPO, in the trainer": entered}


async def call_and_reward(video: str) -> dict[str, set[CodeType]]:
    """What is entered by each, by its name."""
    method = get_method("framethinker")
    sample = Sample("What is shown?\nA. a dog\nB. a cat", "B", video, "mc", options=("a dog", "a cat"))
    recorder = Recorder()
    episode = Episode(method, sample)
    await episode.start()
    with recorder as by_call:
        observation = await episode.step(CALL)
    assert observation is not None, episode.trajectory.error
    await episode.step(ANSWER)
    record = episode.trajectory.to_dict()
    with recorder as by_reward:
        reward = await method.score(Trajectory.from_dict(record), sample)
    assert reward["accuracy"] == 1.0, reward
    return {"an executed call of choose_frames": by_call, "a reward, from its record": by_reward}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="name every file and function")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        video = str(write_video(Path(folder) / "video.mp4", num_frames=300, fps=30, width=96, height=64))
        measured = asyncio.run(call_and_reward(video)) | training_step(Path(folder))
    for name, entered in measured.items():
        files = Counter(code.co_filename for code in entered)
        print(f"{name}: {len(entered)} functions in {len(files)} files")
        for file in sorted(files) if options.list else ():
            names = sorted(code.co_qualname for code in entered if code.co_filename == file)
            print(f"  {Path(file).relative_to(PACKAGE)} ({len(names)}): {', '.join(names)}")


if __name__ == "__main__":
    main()
