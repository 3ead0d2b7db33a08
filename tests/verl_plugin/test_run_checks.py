"""Rows that can never be paid in full are named before a run begins."""

from __future__ import annotations

import logging
from contextlib import nullcontext
from dataclasses import dataclass, replace
from importlib.metadata import EntryPoint
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
from omegaconf import DictConfig, OmegaConf

from tests.data.row_files import make_row
from verl_video_tools import methods
from verl_video_tools.core.errors import UsageError
from verl_video_tools.methods.direct import Direct
from verl_video_tools.services.config import JudgeConfig
from verl_video_tools.verl_plugin import run_checks
from verl_video_tools.verl_plugin.run_checks import check_family, check_rows
from verl_video_tools.verl_plugin.settings import max_images

ROLLOUT, CORRECTION = "actor_rollout_ref.rollout", "algorithm.rollout_correction"


def config(**video_tools: Any) -> DictConfig:
    agent = {"default_agent_loop": "single_turn_agent"}
    return OmegaConf.create({"agent": agent, "n": 4, "val_kwargs": {"n": 1}, "custom": {"video_tools": video_tools}})


def rows_of(truths: list[str], agent_name: str = "framethinker", **extra: Any) -> list[dict[str, Any]]:
    return [make_row("v.mp4", truth, agent_name, index=i, split="train", **extra) for i, truth in enumerate(truths)]


def test_bad_rows_are_named_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    rows = rows_of(["(A)", "B.", "b", "a chair", *["a foul"] * 7]) + rows_of(["B"], "longvt")
    check_rows(rows, config(), None, validate=False)
    (line,) = caplog.messages
    assert line.startswith("7 of 11 training rows of framethinker cannot earn what the method pays: row index=4 split=")
    assert line.count("got 'a foul' for options ['a lamp', 'a chair']") == 5 and "index=8 split=train" in line
    assert "; .... `vvt data validate --out` leaves such rows out" in line


def test_rows_of_which_none_can_earn_end_the_run() -> None:
    rows = rows_of(["B"], "longvt") + rows_of(["B", "A"], "videobrain")
    with pytest.raises(UsageError, match=r"2 of 2 training rows of videobrain cannot .*classification '' is no"):
        check_rows(rows, config(), None, validate=False)
    zeros = {f"{name}_behavior": [0, 0, 0, 0] for name in ("direct", "adaptive", "active")}
    check_rows(rows, config(videobrain=zeros), None, validate=False)


def test_validation_asks_only_for_what_can_be_graded(caplog: pytest.LogCaptureFixture) -> None:
    check_rows(rows_of(["B", "A"], "videobrain"), config(), None, validate=True)
    assert not caplog.messages
    check_rows(rows_of(["a foul"], "videobrain"), config(), None, validate=True)
    assert caplog.messages[0].startswith("1 of 1 validation rows of videobrain cannot earn")


def test_open_rows_need_the_runs_judge() -> None:
    rows = rows_of(["he left"], question_type="open", options=None)
    with pytest.raises(UsageError, match="needs a judge and none is configured"):
        check_rows(rows, config(), None, validate=False)
    check_rows(rows, config(), JudgeConfig(), validate=False)


def test_rows_of_other_loops_and_without_a_name() -> None:
    other = {name: value for name, value in rows_of(["a foul"])[0].items() if name != "agent_name"}
    check_rows([other, {**other, "agent_name": "tool_agent"}], config(), None, validate=False)
    configuration = config()
    configuration.agent.default_agent_loop = "framethinker"
    with pytest.raises(UsageError, match="1 of 1 training rows of framethinker"):
        check_rows([other], configuration, None, validate=False)
    with pytest.raises(UsageError, match=r"1 of 1 .* row index=\? split=\?: extra_info.question is missing"):
        check_rows([{"agent_name": "framethinker"}], configuration, None, validate=False)


def test_a_name_that_is_no_text_names_no_method(caplog: pytest.LogCaptureFixture) -> None:
    """Lists come as NumPy's, which are neither true nor false."""
    row = {**rows_of(["a foul"])[0], "agent_name": np.array(["framethinker", "longvt"])}
    check_rows([row], config(), None, validate=False)
    assert not caplog.messages


@dataclass(frozen=True, kw_only=True)
class OwnFiles(Direct):
    """Gives each rollout of a group a file of its own."""

    name: ClassVar[str] = "own_files"
    lexicon: str = "words.txt"

    def for_session(self, session_id: int, group_size: int, validate: bool) -> OwnFiles:
        return replace(self, lexicon=f"words_{session_id}.txt")


def test_a_group_that_differs_in_files_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("own_files", f"{__name__}:OwnFiles", methods.ENTRY_POINT_GROUP)
    monkeypatch.setattr(methods, "installed_methods", lambda: {"own_files": point})
    with pytest.raises(UsageError, match="may not set lexicon of OwnFiles"):
        check_rows(rows_of(["B"], "own_files"), config(), None, validate=False)


@pytest.mark.timeout(60)
def test_many_rows_are_checked(caplog: pytest.LogCaptureFixture) -> None:
    """5 seconds for 100,000 rows. A row that were compared with every other, or checked anew, would not end in time."""
    rows = rows_of(["A", "B"] * 10_000) + rows_of(
        [f"{i / 4}" for i in range(20_000)], question_type="numeric", options=None
    )
    with caplog.at_level(logging.WARNING):
        check_rows(rows, config(), None, validate=False)


def test_rows_without_a_video_are_for_methods_that_ask_on_such(caplog: pytest.LogCaptureFixture) -> None:
    """Images for those with a prompt for them; a text alone for none, since verl cannot train on it."""
    (about_images,) = rows_of(["B"], "longvt")
    del about_images["extra_info"]["video_path"]
    text = {**about_images, "extra_info": {**about_images["extra_info"], "visuals": "none"}}
    about_images["extra_info"]["image_paths"] = ["a.png"]
    check_rows([about_images], config(), None, validate=False)
    assert not caplog.messages
    with pytest.raises(UsageError, match="framethinker does not ask about pictures"):
        check_rows([{**about_images, "agent_name": "framethinker"}], config(), None, validate=False)
    check_rows([about_images, text], config(), None, validate=False)
    assert "1 of 2 training rows of longvt" in caplog.text and "is a text alone" in caplog.text


# -------------------------------------------------------------------------------------------------- families of models


def family(model_type: str, *layer_types: str) -> Any:
    """As much of transformers' configuration of a model as is read."""
    text = SimpleNamespace(layer_types=list(layer_types))
    return SimpleNamespace(model_type=model_type, get_text_config=lambda: text)


def model_section(**options: Any) -> DictConfig:
    return OmegaConf.create({"use_remove_padding": True, "lora_rank": 0, "lora": {"merge": False}, **options})


@pytest.mark.parametrize(
    ("model_type", "warning"),
    [
        ("qwen2_5_vl", ""),
        ("qwen3_vl", ""),
        ("qwen3_vl_moe", "model_type=qwen3_vl_moe: only parts of it have been tried with this package"),
        ("glm4v", "model_type=glm4v: nobody has tried it with this package"),
    ],
)
def test_families_that_are_not_proven_are_named(model_type: str, warning: str) -> None:
    found = check_family(family(model_type, "full_attention"), model_section())
    assert found.startswith(warning) and bool(found) == bool(warning)


@pytest.mark.parametrize(("platform", "has_kernels"), [("cpu", True), ("cpu", False), ("", False), ("", True)])
def test_packed_linear_attention_needs_kernels_that_only_gpus_have(
    platform: str, has_kernels: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VERL_PLATFORM", platform)
    monkeypatch.setattr(run_checks, "module_exists", lambda name: has_kernels)
    hybrid = family("qwen3_5", "linear_attention", "full_attention")
    assert "only parts" in check_family(hybrid, model_section(use_remove_padding=False))
    if has_kernels and not platform:
        assert "only parts" in check_family(hybrid, model_section())
    else:
        with pytest.raises(
            UsageError, match=r"model_type=qwen3_5: .*set \[actor_rollout_ref\.\]model\.use_remove_padd"
        ):
            check_family(hybrid, model_section())


def test_vllm_computes_linear_attention_on_cpus_in_bfloat16_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VERL_PLATFORM", "cpu")
    hybrid, padded = family("qwen3_5", "linear_attention"), model_section(use_remove_padding=False)
    with pytest.raises(UsageError, match=r"rollout\.dtype=float32 .*set actor_rollout_ref\.rollout\.dtype=bfloat16"):
        check_family(hybrid, padded, "float32")
    assert "only parts" in check_family(hybrid, padded, "bfloat16")
    assert check_family(family("qwen3_vl", "full_attention"), padded, "float32") == ""
    monkeypatch.delenv("VERL_PLATFORM")
    assert "only parts" in check_family(hybrid, padded, "float32")


def test_merged_adapters_of_a_mixture_of_experts_are_refused() -> None:
    merged = {"lora_rank": 8, "lora": {"merge": True}}
    with pytest.raises(UsageError, match=r"set actor_rollout_ref\.model\.lora\.merge=False"):
        check_family(family("qwen3_vl_moe"), model_section(**merged))
    for model_type, options in (("qwen3_vl_moe", {"lora_rank": 8}), ("qwen3_5_moe", merged), ("qwen3_vl_moe", {})):
        assert "only parts" in check_family(family(model_type), model_section(**options))


GRPO = ("+video_tools=longvt_grpo", "+video_tools/machine=8x80gb_grpo")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["+actor_rollout_ref.rollout.limit_images=9"], r"limit_images=9 is verl's.*set video_tools\.max_images=9"),
        (["+video_tools/correction=bypass", f"{ROLLOUT}.top_p=0.9"], r"top_p=0\.9 and top_k=-1.*top_p=1 and top_k=-1"),
        (["+video_tools/correction=bypass", f"{ROLLOUT}.top_k=50"], "top_p=1 and top_k=50"),
        (["+video_tools/correction=bypass", f"{CORRECTION}.rollout_is=token"], "rollout_is=token.*rollout_is=null"),
        (["+video_tools/correction=bypass"], None),
        ([f"{ROLLOUT}.top_p=0.9"], None),
    ],
)
def test_options_that_contradict_each_other_are_refused(options: list[str], message: str | None) -> None:
    run = run_checks.compose_run("grpo", [*GRPO, *options])
    with pytest.raises(UsageError, match=message) if message else nullcontext():
        run_checks.check_run_options(run)


def test_a_configuration_without_our_groups_has_verls_limit_of_images() -> None:
    rollout = run_checks.compose_run("grpo", [f"+{ROLLOUT}.limit_images=9"]).actor_rollout_ref.rollout
    assert max_images(rollout) == 9
    assert max_images(run_checks.compose_run("grpo", [*GRPO]).actor_rollout_ref.rollout) == 1152
