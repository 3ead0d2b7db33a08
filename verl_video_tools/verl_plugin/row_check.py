"""Rows that can never be paid in full are named before a run spends anything on them."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Set
from typing import Any

from omegaconf import DictConfig
from verl.experimental.agent_loop.agent_loop import _agent_loop_registry
from verl.utils.import_utils import resolve_config_path

from verl_video_tools.config import agent_loop_targets
from verl_video_tools.core.errors import RowError, UsageError
from verl_video_tools.core.pages import page
from verl_video_tools.core.types import Method, Sample
from verl_video_tools.methods import method_names
from verl_video_tools.rollout.session_sampling import session_sampling
from verl_video_tools.services.config import JudgeConfig
from verl_video_tools.verl_plugin.settings import (
    check_media,
    check_retriever,
    check_tool_model,
    group_methods,
    judge_config,
    method_from_config,
)
from verl_video_tools.verl_plugin.trainer_defaults import check_pixel_bounds

logger = logging.getLogger(__name__)

CHECKED_COLUMNS = ("agent_name", "reward_model", "extra_info")
_NUM_NAMED = 5


def check_datasets(train: Any, validation: Any, config: DictConfig, processor: Any) -> None:
    """Check the rows that verl has read, before it starts a worker: their agent loops, then what they can earn.

    Args:
        train: verl's data set; one without a `dataframe` is left alone.
        validation: likewise.
        config: of the run.
        processor: the model's.

    Raises:
        UsageError: rows name an agent loop that is not registered, need a retriever or a tool model that is not
            configured or images of an area that none has, or see `check_rows`.
    """
    rollout_config = config.actor_rollout_ref.rollout
    for dataset in (train, validation):
        rows = getattr(dataset, "dataframe", None)
        if rows is None:
            continue
        names = set(rows["agent_name"]) if "agent_name" in rows.column_names else set()
        check_agent_names(names, config)
        check_pixel_bounds(names, config, processor)
        columns = [name for name in CHECKED_COLUMNS if name in rows.column_names]
        judge = judge_config(config)
        check_rows(rows.select_columns(columns), rollout_config, judge, validate=dataset is validation)


def check_agent_names(names: Set[str], config: DictConfig) -> None:
    """Whether verl finds the agent loops that rows name, and the run has the services that these ask.

    Raises:
        UsageError: one is not registered, or needs a retriever or a tool model that is not configured.
    """
    rollout_config = config.actor_rollout_ref.rollout
    registered = set(_agent_loop_registry)
    if path := rollout_config.agent.agent_loop_config_path:
        registered |= set(agent_loop_targets(resolve_config_path(path)))
    if unknown := sorted(names - registered):
        raise UsageError(
            f"rows name agent loops that are not registered: {', '.join(unknown)}; registered are "
            f"{', '.join(sorted(registered))}. Correct the column agent_name, or set "
            "actor_rollout_ref.rollout.agent.agent_loop_config_path: to the output of `vvt path agent-loops`, or for a "
            f"method of your own to a file with its entry ({page('write-a-method')})"
        )
    check_retriever(names, rollout_config)
    check_tool_model(names, rollout_config)


def check_rows(
    rows: Iterable[Mapping[str, Any]],
    rollout_config: DictConfig,
    judge: JudgeConfig | None,
    *,
    validate: bool,
) -> None:
    """Ask the method of every row, as the run configures it, whether the row can earn what the method pays.

    Rows that cannot are counted in a warning for each method, with the first of them by name. Rows of other agent loops
    are left alone. 100,000 rows take about 5 seconds.

    Args:
        rows: with `agent_name` (if missing, `rollout.agent.default_agent_loop`), `reward_model` and `extra_info`.
        rollout_config: `actor_rollout_ref.rollout`.
        judge: the run's.
        validate: the rows are for validation: their answers must be gradeable; they need not earn all that training
            pays.

    Raises:
        UsageError: all rows of a method cannot, so that training on them teaches nothing; or a method gives a rollout
            fields, or options of sampling, that must not be its own.
    """
    default = rollout_config.agent.get("default_agent_loop")
    methods: dict[str, Method] = {}
    faults: dict[str, list[str]] = {}
    num_rows, num_bad = Counter[str](), Counter[str]()
    for row in rows:
        given = row.get("agent_name")
        name = given if isinstance(given, str) and given else default
        if name not in method_names():
            continue
        if name not in methods:
            methods[name] = _checked_method(name, rollout_config, validate)
        num_rows[name] += 1
        try:
            sample = Sample.from_row(row)
            check_media(methods[name], sample)
            ask = methods[name].check_sample if validate else methods[name].check_earnable
            ask(sample, judge)
        except (RowError, UsageError) as error:
            num_bad[name] += 1
            if num_bad[name] <= _NUM_NAMED:
                faults.setdefault(name, []).append(_in_words(row, error))
    for name, told in faults.items():
        of_rows = f"{num_bad[name]} of {num_rows[name]} {'validation' if validate else 'training'} rows of {name}"
        more = ["..."] if num_bad[name] > len(told) else []
        message = f"{of_rows} cannot earn what the method pays: {'; '.join([*told, *more])}"
        if num_bad[name] == num_rows[name] and not validate:
            raise UsageError(f"{message}. `vvt data validate` tells all of them")
        logger.warning("%s. `vvt data validate --out` leaves such rows out", message)


def _checked_method(name: str, rollout_config: DictConfig, validate: bool) -> Method:
    method = method_from_config(name, rollout_config)
    group = group_methods(method, rollout_config, validate)
    for session_id, own in enumerate(group):
        own.own_settings(method)
        session_sampling(method, session_id, len(group), validate, {})
    return method


def _in_words(row: Mapping[str, Any], error: Exception) -> str:
    if isinstance(error, RowError):  # which names its row
        return str(error)
    extra_info = row["extra_info"]
    return f"row index={extra_info.get('index', '?')} split={extra_info.get('split', '?')}: {error}"
