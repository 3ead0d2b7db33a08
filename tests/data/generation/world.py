"""One synthetic video with questions, and experts that answer them over HTTP rightly or wrongly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from tests.judge_server import JudgeServer
from tests.verl_plugin.harness import processor, tokenizer
from verl_video_tools.cli.main import run
from verl_video_tools.data.sft import scripted_oracle
from verl_video_tools.data.synthetic_rows import load_rows, make_demo, question_from_row
from verl_video_tools.methods import get_method
from verl_video_tools.records.records import read_records
from verl_video_tools.verl_plugin.sft_dataset import TrajectorySFTDataset

END = "<|im_end|>"
SETTINGS: dict[str, dict[str, Any]] = {
    "videozoomer": {"initial_frames": 8},
    "longvt": {"initial_frames": 8, "call_frames": 16},
}
WRONG_LOOK = {
    "videozoomer": '<think>here</think><video_zoom>{"segment": [0.0, 2.0], "fps": 2}</video_zoom>',
    "longvt": '<think>here</think>\n<tool_call>\n{"name": "crop_video", "arguments": {"start_time": 0.0, '
    '"end_time": 2.0}}\n</tool_call>',
}


@dataclass(frozen=True)
class World:
    """One video with four questions, the expert's turns for each, and turns that look elsewhere and answer wrong."""

    method: str
    parquet: Path
    rows: list[dict[str, Any]]
    right: Mapping[str, tuple[str, ...]]
    wrong: Mapping[str, tuple[str, ...]]

    def command(self, name: str, source: Path, out: Path, server: JudgeServer, *options: str) -> list[str]:
        settings = [f"--set={field}={value}" for field, value in SETTINGS[self.method].items()]
        method = ["--method", self.method] if name == "generate" else ["--reflect"]
        return ["data", "generate", str(source), str(out), "--base-url", server.base_url, *method, *settings, *options]

    def generate(self, out: Path, server: JudgeServer, *options: str) -> int:
        return run(self.command("generate", self.parquet, out, server, *options))

    def dataset(self, parquet: Path) -> TrajectorySFTDataset:
        options = OmegaConf.create({"max_length": 8192, "video_tools": SETTINGS})
        return TrajectorySFTDataset(str(parquet), tokenizer(), options, processor())


def make_world(name: str, folder: Path) -> World:
    make_demo(folder, 1, 1, questions_per_video=4, seed=3, agent_names=[name], num_processes=1)
    rows = load_rows(folder / "train.parquet")
    expert = scripted_oracle(get_method(name, **SETTINGS[name]))
    right, wrong = {}, {}
    for row in rows:
        question, truth = row["extra_info"]["question"], row["reward_model"]["ground_truth"]
        right[question] = expert.script(*question_from_row(row)).turns
        letter = next(letter for letter in "AB" if letter != truth)
        wrong[question] = (WRONG_LOOK[name], f"<think>so</think><answer>{letter}</answer>")
    assert max(map(len, right.values())) > 1
    return World(name, folder / "train.parquet", rows, right, wrong)


def lines(path: Path) -> list[dict[str, Any]]:
    return list(read_records(path))
