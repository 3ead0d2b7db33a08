"""Where the options of the tools' model come from: verl's configuration and the command line, never a row."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from tests.judge_server import MODEL, JudgeServer, completion
from tests.talking_method import ANSWER, SUBTITLES, Talking, call
from tests.verl_plugin.harness import make_row, run_loop, video
from tests.videos.files import MakeVideo
from verl_video_tools import methods
from verl_video_tools.cli.main import run as vvt
from verl_video_tools.cli.options import Asking
from verl_video_tools.core.errors import UsageError
from verl_video_tools.methods.toolkit import AskModel
from verl_video_tools.replay import replay
from verl_video_tools.services.tool_model import ScriptedToolModel, ToolModelConfig
from verl_video_tools.verl_plugin.run_checks import check_services
from verl_video_tools.verl_plugin.settings import tool_model_config

TURNS = [call("ask_model", question="What is there?", time=3), ANSWER]


@pytest.fixture
def talking(monkeypatch: pytest.MonkeyPatch) -> str:
    """A method whose tool asks a model, by its name."""
    monkeypatch.setitem(methods.REGISTERED, "talking", "tests.talking_method:Talking")
    monkeypatch.setattr(Talking, "more", {AskModel.name: AskModel()})
    monkeypatch.setattr(Talking, "asks_model", True)
    return "talking"


def rollout(fields: dict[str, Any], num_workers: int = 1) -> Any:
    return OmegaConf.create({"custom": {"video_tools": {"tool_model": fields}}, "agent": {"num_workers": num_workers}})


def test_section_of_verls_configuration() -> None:
    assert tool_model_config(OmegaConf.create({})) is None
    assert tool_model_config(rollout({})) is None
    fields = {"base_url": "http://h/v1", "concurrency": 32}
    found = tool_model_config(rollout(fields, num_workers=5))
    assert found == ToolModelConfig(base_url="http://h/v1", concurrency=7)
    with pytest.raises(UsageError, match="has no field 'colour'"):
        tool_model_config(rollout({"base_url": "http://h/v1", "colour": "red"}))
    assert tool_model_config(rollout({"base_url": None, "calls_per_rollout": 3})) is None


def test_methods_whose_tools_ask_need_a_model(talking: str) -> None:
    check_services({"longvt"}, rollout({}))
    check_services({talking}, rollout({"base_url": "http://h/v1"}))
    with pytest.raises(UsageError, match=r"tools of talking ask a model, .*video_tools\.tool_model\.base_url"):
        check_services({"longvt", talking}, rollout({}))


def test_options_of_commands() -> None:
    assert Asking().tool_model() is None
    asking = Asking(tool_model_settings=["base_url=http://h/v1", "calls_per_rollout=2", "model=m"])
    assert asking.tool_model() == ToolModelConfig(base_url="http://h/v1", calls_per_rollout=2, model="m")
    with pytest.raises(UsageError, match="twice"):
        Asking(tool_model_settings=["base_url=http://h/v1", "base_url=http://g/v1"]).tool_model()
    with pytest.raises(UsageError, match="base_url must be the address"):
        Asking(tool_model_settings=["model=m"]).tool_model()


async def test_the_agent_loop_asks_the_model_of_its_configuration(talking: str) -> None:
    with JudgeServer(reply=lambda request: completion("a kettle")) as server:
        fields = {"base_url": server.base_url, "max_tokens": 20}
        options = {"custom": {"video_tools": {"tool_model": fields, talking: {"initial_frames": 2}}}}
        made = await run_loop(TURNS, method=talking, rollout_options=options)
    (record,) = made.trajectory.calls()
    assert (record.ok, record.text, record.model_calls[0].model) == (True, "a kettle", MODEL)
    assert [request["max_tokens"] for request in server.requests] == [20]
    observation = made.trajectory.turns[0].observation
    assert observation is not None and "a kettle" in observation


async def test_a_row_names_no_model(talking: str) -> None:
    """Whatever a row holds, the run's configuration alone says what is asked."""
    with JudgeServer(reply=lambda request: completion("a kettle")) as server:
        row = make_row(video())
        row["extra_info"] |= {"tool_model": {"base_url": server.base_url}}
        row["tool_model"] = {"base_url": server.base_url}
        options = {"custom": {"video_tools": {talking: {"initial_frames": 2}}}}
        made = await run_loop(TURNS, method=talking, row=row, rollout_options=options)
    assert made.trajectory.flags == ["model_error"] and server.requests == []


def test_replay_takes_a_stand_in(make_video: MakeVideo, talking: str) -> None:
    extra = {"question_type": "mc", "options": ["a hat", "a scarf"], "subtitles": [s.to_row() for s in SUBTITLES]}
    turns = [call("search_subtitles", words="kettle"), *TURNS]
    result = replay(
        talking,
        make_video(),
        "What?",
        "B",
        turns,
        extra,
        {"initial_frames": 2},
        tool_model=ScriptedToolModel(["a hob"]),
    )
    search, asked = (turn["calls"][0] for turn in result["turns"][:2])
    assert search["text"].startswith("[10.0-12.0 s]") and "model_calls" not in search
    assert (asked["text"], asked["model_calls"][0]["reply"]) == ("a hob", "a hob")
    assert result["reward"]["score"] > 0


def command(folder: Path, video: str, *more: str) -> list[str]:
    turns = folder / "turns.json"
    turns.write_text(json.dumps(TURNS))
    options = {"--method": "talking", "--video": video, "--question": "What?", "--answer": "B", "--turns": str(turns)}
    return ["replay", *(word for option in options.items() for word in option), "--set", "initial_frames=2", *more]


def test_the_command_line_replays_without_a_server(
    make_video: MakeVideo, tmp_path: Path, talking: str, capsys: pytest.CaptureFixture[str]
) -> None:
    replies = tmp_path / "replies.json"
    replies.write_text(json.dumps(["a hob"]))
    assert vvt(command(tmp_path, make_video(), "--tool-model-replies", str(replies))) == 0
    assert json.loads(capsys.readouterr().out)["turns"][0]["calls"][0]["text"] == "a hob"


def test_the_command_line_asks_an_endpoint(
    make_video: MakeVideo, tmp_path: Path, talking: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with JudgeServer(reply=lambda request: completion("a stove")) as server:
        assert vvt(command(tmp_path, make_video(), f"--tool-model=base_url={server.base_url}")) == 0
    assert json.loads(capsys.readouterr().out)["turns"][0]["calls"][0]["text"] == "a stove"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            lambda path: ["--tool-model-replies", path, "--tool-model", "base_url=http://h/v1"],
            "give either an endpoint",
        ),
        (lambda path: ["--tool-model-replies", path + "x"], "--tool-model-replies"),
        (lambda path: ["--tool-model=max_tokens=0", "--tool-model=base_url=http://h/v1"], "max_tokens must be"),
    ],
)
def test_bad_options_are_one_line(
    options: Callable[[str], list[str]], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    replies = tmp_path / "replies.json"
    replies.write_text("[]")
    assert vvt(command(tmp_path, "v.mp4", *options(str(replies)))) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line
