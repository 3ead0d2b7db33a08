"""Where the options of retrieval come from: verl's configuration, and the command line."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf

import verl_video_tools.replay
import verl_video_tools.services.retrieval
from verl_video_tools.cli.main import run
from verl_video_tools.core.errors import SetupError, UsageError
from verl_video_tools.services import encoders
from verl_video_tools.services.encoders import load_encoder
from verl_video_tools.services.retrieval import RetrievalConfig
from verl_video_tools.verl_plugin.retrieval_actor import connect
from verl_video_tools.verl_plugin.run_checks import check_services
from verl_video_tools.verl_plugin.settings import retrieval_config


def _rollout(fields: dict[str, Any]) -> Any:
    return OmegaConf.create({"custom": {"video_tools": {"retrieval": fields}}})


def test_section_of_verls_configuration() -> None:
    assert retrieval_config(OmegaConf.create({})) is None
    assert retrieval_config(_rollout({})) is None
    assert retrieval_config(_rollout({"model": "x", "num_gpus": 1})) == RetrievalConfig(model="x", num_gpus=1.0)
    with pytest.raises(UsageError, match=r"RetrievalConfig\.backend takes"):
        retrieval_config(_rollout({"model": "x", "backend": "nearest"}))
    assert retrieval_config(_rollout({"model": None, "num_gpus": 1})) is None


def test_methods_that_search_ask_for_a_retriever() -> None:
    check_services({"longvt", "a loop of a user"}, _rollout({}))
    check_services({"longvt", "videobrain"}, _rollout({"model": "x"}))
    with pytest.raises(UsageError, match=r"rows of videobrain search .* video_tools\.retrieval\.model="):
        check_services({"longvt", "videobrain"}, _rollout({}))


def test_a_config_that_does_not_search_needs_no_retriever() -> None:
    def rollout(*tool_names: str) -> Any:
        return OmegaConf.create({"custom": {"video_tools": {"videobrain": {"tool_names": list(tool_names)}}}})

    check_services({"videobrain"}, rollout("uniform_sample"))
    with pytest.raises(UsageError, match="rows of videobrain search"):
        check_services({"videobrain"}, rollout("clip_sample"))


def test_threads_of_the_encoder_reach_the_thread_that_runs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoders, "TransformersEncoder", lambda model, device: device)
    before = torch.get_num_threads()
    try:
        assert load_encoder(RetrievalConfig(num_threads=3)) == "cpu"
        with ThreadPoolExecutor(1) as threads:
            assert threads.submit(torch.get_num_threads).result() == 3
    finally:
        torch.set_num_threads(before)
    with pytest.raises(UsageError, match=r"RetrievalConfig\.num_threads must be at least 1, or None, got 0"):
        RetrievalConfig(num_threads=0)


def test_connecting_needs_ray() -> None:
    with pytest.raises(SetupError, match=r"retrieval_actor\.connect needs Ray"):
        connect(RetrievalConfig(model="never loaded"))


def _replay(turns: Path, *more: str) -> int:
    options = {"--method": "m", "--video": "v.mp4", "--question": "q?", "--answer": "B", "--turns": str(turns)}
    return run(["replay", *(word for option in options.items() for word in option), *more])


def test_replay_loads_the_encoder_that_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    turns = tmp_path / "turns.json"
    turns.write_text(json.dumps(["B"]))
    given: list[Any] = []

    def replay(**options: Any) -> dict[str, Any]:
        given.append(options["retriever"])
        return {}

    monkeypatch.setattr(verl_video_tools.replay, "replay", replay)
    monkeypatch.setattr(verl_video_tools.services.retrieval, "local", lambda config: config)
    assert _replay(turns) == 0
    assert _replay(turns, "--retrieval", "model=/m", "--retrieval", "num_threads=8") == 0
    assert given == [None, RetrievalConfig(model="/m", num_threads=8)]
    capsys.readouterr()
    assert _replay(turns, "--retrieval", "modell=/m") == 2
    assert "RetrievalConfig has no field 'modell'" in capsys.readouterr().err
    assert _replay(turns, "--retrieval", "model") == 2
    assert "--retrieval: expected field=value" in capsys.readouterr().err
