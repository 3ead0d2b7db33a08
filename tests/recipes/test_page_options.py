"""Options of runs on pages: `name=` where a run has the key, `+name=` where it lacks it, `++name=` for either."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

pytest.importorskip("verl", reason="its configuration has the keys")

from omegaconf import DictConfig, OmegaConf

from tests.page_commands import PAGES, REPO
from tests.recipes.options import Composed

OPTION = re.compile(
    r"(?<![\w.+/])(\+{0,2})((?:actor_rollout_ref|algorithm|critic|data|reward|trainer|video_tools)(?:\.[a-zA-Z_0-9]+)+)="
)


@pytest.fixture
def configs(composed: Composed) -> list[DictConfig]:
    """Of reinforcement learning and of fine-tuning, with and without the synthetic world."""
    runs = [
        ("mixed_grpo", "gpu"),
        ("mixed_grpo", "cpu"),
        ("compose_grpo", "gpu"),
        ("mixed_sft", "cpu"),
        ("longvt_rft", "gpu"),
    ]
    return [composed(*run) for run in runs]


def named_options() -> Iterator[tuple[str, str, str]]:
    for path in PAGES:
        for prefix, key in OPTION.findall(path.read_text(encoding="utf-8")):
            yield str(path.relative_to(REPO)), prefix, key


def holds(config: DictConfig, key: str) -> bool:
    parent, _, name = key.rpartition(".")
    node = OmegaConf.select(config, parent)
    return isinstance(node, DictConfig) and (name in node or OmegaConf.is_missing(node, name))


@pytest.mark.slow
def test_prefixes_fit_the_configuration(configs: list[DictConfig]) -> None:
    options = set(named_options())
    assert options
    wrong = [
        f"{page}: {prefix}{key}"
        for page, prefix, key in sorted(options)
        if prefix != "++" and (prefix == "") != any(holds(config, key) for config in configs)
    ]
    assert wrong == []


@pytest.mark.slow
def test_a_wrong_prefix_is_found(configs: list[DictConfig]) -> None:
    text = "trainer.nnodes=2 +trainer.nnodes=2 data.mm_processor_kwargs.min_pixels=1 ++a.b=1 x.trainer.c=1"
    assert OPTION.findall(text) == [
        ("", "trainer.nnodes"),
        ("+", "trainer.nnodes"),
        ("", "data.mm_processor_kwargs.min_pixels"),
    ]
    assert holds(configs[0], "trainer.nnodes") and not holds(configs[0], "data.mm_processor_kwargs.fps")
