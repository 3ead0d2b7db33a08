"""Options of our trainers: every name and value is checked before a run starts."""

from __future__ import annotations

from typing import Any

import pytest
from omegaconf import OmegaConf

from verl_video_tools.core.errors import UsageError
from verl_video_tools.verl_plugin.settings import TrainerOptions, trainer_options


def of(**options: Any) -> TrainerOptions:
    return trainer_options(OmegaConf.create({"trainer": {"video_tools": options}}))


def test_a_run_without_any_has_the_defaults() -> None:
    assert trainer_options(OmegaConf.create({"trainer": {"nnodes": 1}})) == of() == TrainerOptions()


def test_values_are_the_run_s() -> None:
    options = of(watchdog_grace_seconds=15, record_tokens=True, alarms={"patience_steps": 2})
    assert (options.watchdog_grace_seconds, options.record_tokens) == (15.0, True)
    assert options.make_alarms() is not options.make_alarms()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"record_token": True}, r"video_tools\.trainer has no field 'record_token'; .*did you mean 'record_tokens'\?"),
        ({"max_refill_batch": 3}, "did you mean 'max_refill_batches'"),
        ({"colour": "red"}, r"no field 'colour'; its fields are: alarms, .*, watchdog_grace_seconds$"),
        ({"record_tokens": "yes"}, r"video_tools\.trainer\.record_tokens takes bool, got 'yes'"),
        ({"tracked_rollouts_every": -1}, r"video_tools\.trainer\.tracked_rollouts_every=-1: give 0 or more"),
        ({"tracked_rollouts_every": 2.5}, r"video_tools\.trainer\.tracked_rollouts_every takes int"),
        ({"alarms": {"engine_gap": "mail"}}, r"video_tools\.trainer\.alarms\.engine_gap=mail"),
        ({"alarms": {"patience_steps": "long"}}, r"alarms\.patience_steps=long: give 1 or more"),
        ({"alarms": "off"}, r"video_tools\.trainer\.alarms takes dict, got 'off'"),
    ],
)
def test_what_makes_no_sense_is_named(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        of(**options)
