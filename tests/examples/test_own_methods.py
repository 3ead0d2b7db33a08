"""examples/add_a_method and add_a_tool: found by name once installed, replayed, and run by the loop that verl makes."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hydra.utils import get_class
from omegaconf import OmegaConf

from tests.examples.conftest import EXAMPLES
from tests.verl_plugin.harness import run_loop, tokenizer
from tests.videos.files import MakeVideo
from verl_video_tools.cli.main import run
from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.types import StopReason
from verl_video_tools.methods import get_method, method_names
from verl_video_tools.methods.breakdown import all_components
from verl_video_tools.replay import areplay
from verl_video_tools.verl_plugin.agent_loop import VideoAgentLoop

Install = Callable[[str], Path]
QUESTION = "What is shown?\nA. a cat\nB. a dog"


def turns_of(folder: Path) -> list[str]:
    return json.loads((folder / "turns.json").read_text())


async def roll_out(folder: Path, turns: list[str], **options: Any) -> Any:
    """One rollout of the loop that the example's file registers, built as verl builds it."""
    (entry,) = OmegaConf.load(folder / "agent_loops.yaml")
    assert get_class(entry._target_) is VideoAgentLoop
    return await run_loop(turns, method=entry.method, question=QUESTION, **options)


# ------------------------------------------------------------------------------------------------------------- a method


def test_the_methods_command_prints_its_reward(
    install: Install, make_video: MakeVideo, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = install("add_a_method")
    arguments = ["replay", "--method", "frugal", "--video", make_video(300), "--question", QUESTION, "--answer", "B"]
    assert run([*arguments, "--turns", str(folder / "turns.json")]) == 0
    result = json.loads(capfd.readouterr().out)
    assert result["reward"] == {"score": 0.9, "accuracy": 1.0, "price": -0.1}
    assert result["counts"] == {"assistant_turns": 2, "executed_calls": 1, "initial_frames": 8, "tool_frames": 4}
    assert result["turns"][0]["observation"].startswith("\n4.0 s: <image>\n")
    assert result["turns"][0]["observation"].endswith("\nTurns left: 3")


async def test_a_method_needs_no_installation(make_video: MakeVideo) -> None:
    """A Python path names it, as it names a benchmark or a selector."""
    turns = turns_of(EXAMPLES / "add_a_method")
    result = await areplay("examples.add_a_method.frugal:Frugal", make_video(300), QUESTION, "B", turns)
    assert result["method"] == "frugal"
    assert result["reward"] == {"score": 0.9, "accuracy": 1.0, "price": -0.1}


def test_examples_import_documented_names_alone() -> None:
    for example in (
        EXAMPLES / "add_a_method" / "frugal.py",
        EXAMPLES / "add_a_tool" / "look_around.py",
        EXAMPLES / "frame_selector" / "most_different.py",
    ):
        assert undocumented(example) == []


def undocumented(path: Path) -> list[str]:
    """Names of ours that a file imports, or takes from the toolkit, and that no page of docs/api gives."""
    pages = "\n".join(page.read_text() for page in (EXAMPLES.parent / "docs" / "api").glob("*.md"))
    shown = set(re.findall(r"^::: (\S+)", pages, re.MULTILINE))
    listed = {f"verl_video_tools.methods.toolkit.{name}" for name in re.findall(r"`(\w+)`", pages)}
    tree = ast.parse(path.read_text())
    imported = {
        f"{node.module}.{alias.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("verl_video_tools")
        for alias in node.names
    }
    toolkit = "verl_video_tools.methods.toolkit"
    if toolkit in imported:
        of_toolkit = {
            f"{toolkit}.{node.attr}"
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "vt"
        }
        imported = imported - {toolkit} | of_toolkit
    return sorted(imported - shown - listed)


async def test_every_look_costs(install: Install, make_video: MakeVideo) -> None:
    look = turns_of(install("add_a_method"))[0]
    refused = '<look>{"start_time": 8, "end_time": 4}</look>'
    for turns, expected in (
        (["<answer>B</answer>"], 1.0),
        ([look, look, "<answer>B</answer>"], 0.5),
        ([look, "<answer>A</answer>"], -0.25),
        ([refused, "<look>4 to 8</look>", "<answer>B</answer>"], 1.0),
    ):
        result = await areplay("frugal", make_video(300), QUESTION, "B", turns, settings={"look_price": 0.25})
        assert result["reward"]["score"] == pytest.approx(expected), turns
    assert [turn["calls"][0]["error"].split(":")[0] for turn in result["turns"][:2]] == [
        "reversed_segment",
        "malformed_call",
    ]
    gone = await areplay("frugal", "/no/such/file.mp4", QUESTION, "B", ["<answer>B</answer>"])
    assert gone["reward"] == {"score": 0.0, "accuracy": 0.0, "price": 0.0}


async def test_the_method_runs_in_verls_loop(install: Install) -> None:
    folder = install("add_a_method")
    result = await roll_out(folder, turns_of(folder), method_fields={"initial_frames": 4, "call_frames": 4})
    assert (result.trajectory.method, result.trajectory.stop_reason) == ("frugal", StopReason.ANSWER)
    assert (len(result.images), result.trajectory.flags) == (8, [])
    assert "<look>" in result.text_of(1) and "Turns left" in result.text_of(0)


def test_rows_of_other_methods_carry_its_reward_keys(install: Install) -> None:
    """verl stacks a batch's rows, so all have the same keys."""
    install("add_a_method")
    assert "frugal" in method_names()
    assert "price" in all_components()


def test_rows_may_be_made_for_it(install: Install, make_video: MakeVideo, tmp_path: Path) -> None:
    install("add_a_method")
    (tmp_path / "rows.csv").write_text(
        f"video,question,answer,options\n{make_video(300)},what is shown,dog,cat|dog|cow\n"
    )
    target = tmp_path / "rows.parquet"
    convert = ["data", "convert", str(tmp_path / "rows.csv"), str(target), "--from", "table", "--yes"]
    assert run([*convert, "--method", "frugal"]) == 0
    assert run(["data", "validate", str(target)]) == 0


# --------------------------------------------------------------------------------------------------------------- a tool


async def test_a_tool_beside_those_of_a_method(install: Install, make_video: MakeVideo) -> None:
    folder = install("add_a_tool")
    result = await areplay(
        "longvt_look_around",
        make_video(300),
        QUESTION,
        "B",
        turns_of(folder),
        extra={"video_segment": [4, 8]},
        settings={"reach_seconds": 1},
    )
    around, crop = (turn["calls"][0] for turn in result["turns"][:2])
    assert (around["name"], around["ok"], len(around["frames"])) == ("look_around", True, 8)
    assert around["frames"][0]["timestamp_seconds"] == 4.0 and around["frames"][-1]["timestamp_seconds"] == 6.0
    assert (crop["name"], crop["ok"]) == ("crop_video", True)
    assert result["reward"] == {"score": 3.0, "accuracy": 1.0, "format": 1.0, "temporal_iou": 1.0}


async def test_the_rewards_segment_may_be_the_tools(install: Install, make_video: MakeVideo) -> None:
    around, _, answer = turns_of(install("add_a_tool"))
    result = await areplay(
        "longvt_look_around", make_video(300), QUESTION, "B", [around, answer], extra={"video_segment": [3, 5]}
    )
    assert result["reward"]["temporal_iou"] == pytest.approx(0.5)


@pytest.mark.parametrize(("time", "code"), [("-1", "out_of_range"), ("99", "out_of_range"), ('"5"', "malformed_call")])
async def test_the_tool_refuses(install: Install, make_video: MakeVideo, time: str, code: str) -> None:
    around, _, answer = turns_of(install("add_a_tool"))
    turns = [around.replace('"time": 5', f'"time": {time}'), answer]
    result = await areplay("longvt_look_around", make_video(300), QUESTION, "B", turns)
    assert result["turns"][0]["calls"][0]["error"].startswith(code)
    assert result["answer"] == "B"


async def test_the_tool_runs_in_verls_loop(install: Install) -> None:
    folder = install("add_a_tool")
    result = await roll_out(folder, turns_of(folder), method_fields={"call_frames": 4, "max_pixels": 3136})
    assert [call.name for call in result.trajectory.executed_calls()] == ["look_around", "crop_video"]
    assert result.trajectory.flags == []
    prompt = tokenizer().decode(result.output.prompt_ids)
    assert '"name": "crop_video"' in prompt and '"name": "look_around"' in prompt, "a policy calls what it is told of"


# ------------------------------------------------------------------------------------------------------------- mistakes


def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    from verl_video_tools import methods

    metadata = tmp_path / "theirs-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text(f"[verl_video_tools.methods]\n{line}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    methods.installed_methods.cache_clear()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("theirs = no_such_module:Theirs", "the method 'theirs' \\(no_such_module:Theirs\\) cannot be imported"),
        ("theirs = json:JSONDecoder", "must be a subclass of Method"),
        ("theirs = verl_video_tools.methods.longvt:LongVT", "`name` is the entry point's, 'theirs'"),
        ("longvt = json:JSONDecoder", "the distribution 'theirs' brings a method 'longvt', and there is one already"),
    ],
)
def test_mistakes_are_told(
    install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, message: str
) -> None:
    installed(tmp_path, monkeypatch, line)
    with pytest.raises(UsageError, match=message):
        get_method("theirs")
