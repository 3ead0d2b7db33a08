"""Faults of a soak: what goes wrong around a run, at random, and is repaired some steps later."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random

import psutil

from benchmarks.soak.sampler import process_kind

REPO = Path(__file__).parents[2]
FAULT_PROBABILITY = 0.1
"""Of a new fault after a step in which nothing is broken."""
KILL_PROBABILITY = 0.001
"""Of a process being killed after a step. It ends the segment, and the next one resumes, with a warm-up of its own."""
_REPAIR_STEPS = 3, 10
KILLED_KINDS = (
    "agent loop worker",
    "reward worker",
    "vLLM server",
    "vLLM engine",
    "FSDP worker",
    "storage unit",
    "queue controller",
)


class Judge:
    """The judge of the tests as a process that can go away and come back at the same address."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self.base_url = ""
        self.start()

    def start(self) -> None:
        port = self.base_url.removesuffix("/v1").rpartition(":")[2] or "0"
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.judge_server", "--port", port], cwd=REPO, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the judge could not be started on port {port}; is it taken?")
        self.base_url = line.split()[-1]

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._process = None


class Files:
    """Videos and cache files that are taken away or damaged, and put back whole.

    Args:
        videos: that the rows name.
        cache: folder of cache files; what is damaged there has to be noticed and replaced by its owner.
        displaced: folder that holds the whole videos meanwhile, so that a later sitting finds them.
    """

    def __init__(self, videos: Path, cache: Path, displaced: Path) -> None:
        self._videos, self._cache, self._displaced = videos, cache, displaced
        displaced.mkdir(parents=True, exist_ok=True)
        self.put_back()

    def put_back(self) -> None:
        for whole in self._displaced.iterdir():
            shutil.move(whole, self._videos / whole.name)

    def take_video(self, random: Random) -> None:
        video = self._random_file(random, self._videos)
        if video is not None:
            shutil.move(video, self._displaced / video.name)

    def damage_video(self, random: Random) -> None:
        video = self._random_file(random, self._videos)
        if video is not None:
            shutil.move(video, self._displaced / video.name)
            content = (self._displaced / video.name).read_bytes()
            video.write_bytes(_damaged(content, random))

    def damage_cache(self, random: Random) -> None:
        file = self._random_file(random, self._cache)
        if file is not None:
            with suppress(FileNotFoundError), file.open("r+b") as opened:  # a cache drops files at any time
                content = opened.read()
                opened.seek(0)
                opened.write(_damaged(content, random))

    @staticmethod
    def _random_file(random: Random, folder: Path) -> Path | None:
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        return random.choice(files) if files else None


class Faults:
    """Plants a fault at random after a step, and repairs it some steps later.

    Args:
        processes: what the run consists of at the moment.
        tell: called with the step and the name of each fault.
    """

    def __init__(
        self,
        random: Random,
        judge: Judge,
        files: Files,
        processes: Callable[[], Sequence[psutil.Process]],
        tell: Callable[[int, str], None],
    ) -> None:
        self._random, self._judge, self._processes, self._tell = random, judge, processes, tell
        self._repair: Callable[[], None] | None = None
        self._repair_step = 0
        self._faults: dict[str, tuple[Callable[[], None], Callable[[], None]]] = {
            "judge away": (judge.stop, judge.start),
            "video missing": (lambda: files.take_video(random), files.put_back),
            "video damaged": (lambda: files.damage_video(random), files.put_back),
            "cache file damaged": (lambda: files.damage_cache(random), lambda: None),
        }

    def after(self, step: int) -> None:
        """Plant or repair what is due after this step."""
        if self._random.random() < KILL_PROBABILITY and self._kill(step):
            return
        if self._repair is not None:
            if step >= self._repair_step:
                self.repair()
        elif self._random.random() < FAULT_PROBABILITY:
            name = self._random.choice(sorted(self._faults))
            plant, self._repair = self._faults[name]
            self._repair_step = step + self._random.randint(*_REPAIR_STEPS)
            self._tell(step, name)
            plant()

    def repair(self) -> None:
        if self._repair is not None:
            self._repair()
            self._repair = None

    def _kill(self, step: int) -> bool:
        kinds: dict[str, psutil.Process] = {}
        for process in self._processes():
            with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                kinds[process_kind(process.cmdline())] = process
        found = sorted(kinds.keys() & set(KILLED_KINDS))
        if found:
            kind = self._random.choice(found)
            self._tell(step, f"{kind} killed")
            with suppress(psutil.NoSuchProcess):
                kinds[kind].kill()
        return bool(found)


@contextmanager
def planted(
    random: Random,
    files: Files,
    processes: Callable[[], Sequence[psutil.Process]],
    tell: Callable[[int, str], None],
) -> Iterator[tuple[Faults, str]]:
    """Faults, and the address of the judge; in the end everything is whole again."""
    judge = Judge()
    try:
        yield Faults(random, judge, files, processes, tell), judge.base_url
    finally:
        judge.stop()
        files.put_back()


def _damaged(content: bytes, random: Random) -> bytes:
    """The same, as long, with noise in place of its second quarter."""
    start, end = len(content) // 4, len(content) // 2
    return content[:start] + random.randbytes(end - start) + content[end:]
