"""A run before it spends anything: its configuration as verl composes it, its options and its rows.

The trainer checks options and rows when it starts, and so does `vvt train` (`launch.checks`) before it starts Ray.
"""

from __future__ import annotations

import logging
import os
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from contextlib import redirect_stdout
from io import StringIO
from typing import Any, Literal

from hydra import compose, initialize_config_module
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from verl_video_tools.config import agent_loop_targets
from verl_video_tools.core.errors import RowError, UsageError
from verl_video_tools.core.machine import module_exists, page
from verl_video_tools.core.method import rollout_overrides
from verl_video_tools.core.sample import row_name
from verl_video_tools.core.types import Method, Sample
from verl_video_tools.methods import method_names
from verl_video_tools.services.config import JudgeConfig
from verl_video_tools.verl_plugin.hydra_groups import register
from verl_video_tools.verl_plugin.settings import (
    check_media,
    check_sections,
    configured_methods,
    group_methods,
    honour_freeze_vision_tower,
    judge_config,
    method_from_config,
    plain_dict,
    retrieval_config,
    tool_model_config,
    trainer_options,
)
from verl_video_tools.video import envelope_of

logger = logging.getLogger(__name__)

CHECKED_COLUMNS = ("agent_name", "reward_model", "extra_info")
_NUM_NAMED = 5


# ------------------------------------------------------------------------------------------------------- configuration


Kind = Literal["grpo", "sft"]
_CONFIG_NAMES: dict[Kind, str] = {"grpo": "ppo_trainer", "sft": "sft_trainer_engine"}


def compose_run(kind: Kind, overrides: Sequence[str]) -> DictConfig:
    """The configuration that verl's trainer makes of its command line.

    Raises:
        UsageError: an override is malformed, or names an option that does not exist.
    """
    register()  # a process that only composes may not have imported verl
    try:
        with initialize_config_module("verl.trainer.config", version_base=None):
            config = compose(_CONFIG_NAMES[kind], overrides=list(overrides))
        OmegaConf.resolve(config)
        check_sections(plain_dict(config.get("video_tools")))
    except (HydraException, OmegaConfBaseException) as error:
        raise UsageError(f"verl's configuration cannot be composed: {' '.join(str(error).split())}") from error
    return config


def check_grpo_options(config: DictConfig) -> None:
    """What verl and our trainer check of the options before they start a worker, in the same order.

    Raises:
        UsageError: they refuse them, with their reason.
    """
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import validate_config

    try:
        with warnings.catch_warnings(), redirect_stdout(StringIO()):
            warnings.simplefilter("ignore")  # it warns of every run without a critic, and says that all is well
            validate_config(config, need_reference_policy(config), need_critic(config))
    except (AssertionError, ArithmeticError, ValueError, TypeError, OmegaConfBaseException, HydraException) as error:
        raise UsageError(f"verl refuses the options: {' '.join(str(error).split()) or repr(error)}") from error
    check_run_options(config)
    honour_freeze_vision_tower(config.copy())


def supported_loggers() -> tuple[str, ...]:
    """What `trainer.logger` may name; verl refuses others when all workers are up."""
    from verl.utils.tracking import Tracking

    return (*Tracking.supported_backend, "tracking")


PROVEN_FAMILIES = ("qwen2_5_vl", "qwen3_vl")
"""Families whose fine-tuning and GRPO the tests run from rows to exported weights, by `model_type`."""
FAMILIES_IN_PARTS = ("qwen2_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe")
"""Families of which the tests run parts."""


def check_family(family: Any, model: DictConfig, engine_dtype: str | None = None) -> str:
    """What is known of the family of a run's model.

    Args:
        family: the model's configuration, of transformers.
        model: the section `model` of the run's configuration.
        engine_dtype: `rollout.dtype`; None in fine-tuning, which has no engine.

    Returns:
        A warning; empty for a family of which all is proven.

    Raises:
        UsageError: a run with these options would compute something else than the model, or fail in its engine.
    """
    name = family.model_type
    has_linear_attention = "linear_attention" in (getattr(family.get_text_config(), "layer_types", None) or ())
    on_cpu = os.environ.get("VERL_PLATFORM") == "cpu"
    separates_sequences = not on_cpu and module_exists("fla")
    if has_linear_attention and model.use_remove_padding and not separates_sequences:
        raise UsageError(
            f"use_remove_padding=True and model_type={name}: linear attention would carry its state from one packed "
            "sequence into the next one, because flash-linear-attention, which separates them on GPUs, is missing; "
            f"set [actor_rollout_ref.]model.use_remove_padding=False, or install it ({page('models')})"
        )
    if has_linear_attention and on_cpu and engine_dtype not in (None, "bfloat16"):
        raise UsageError(
            f"rollout.dtype={engine_dtype} and model_type={name}: vLLM's linear attention on CPUs takes only bfloat16; "
            f"set actor_rollout_ref.rollout.dtype=bfloat16 ({page('models')})"
        )
    if name == "qwen3_vl_moe" and model.get("lora_rank") and (model.get("lora") or {}).get("merge"):
        raise UsageError(
            f"lora.merge=True and model_type={name}: verl would send experts in another layout than vLLM reads; set "
            f"actor_rollout_ref.model.lora.merge=False ({page('models')})"
        )
    if name in PROVEN_FAMILIES:
        return ""
    known = "only parts of it have been tried" if name in FAMILIES_IN_PARTS else "nobody has tried it"
    return f"model_type={name}: {known} with this package ({page('models')})"


# ------------------------------------------------------------------------------------------------------------- options


def check_run_options(config: DictConfig) -> None:
    """Check what verl does not check of the options of a GRPO run.

    Args:
        config: verl's whole configuration.

    Raises:
        UsageError: an option is wrong, or contradicts another.
    """
    check_reward_function(config)
    judge_config(config)
    check_engine_length(config)
    check_image_limits(config)
    check_bypass(config)
    check_switching(config)
    trainer_options(config)
    check_validation_rows(config)
    configured_methods(config.actor_rollout_ref.rollout)


def check_reward_function(config: DictConfig) -> None:
    """Our reward manager scores by a row's method and calls no function; verl would accept one silently.

    Raises:
        UsageError: one is configured. `scored_by_manager` is none, and verl's reward model needs it.
    """
    name = OmegaConf.select(config, "reward.custom_reward_function.name")
    has_function = OmegaConf.select(config, "reward.custom_reward_function.path") is not None
    manager = OmegaConf.select(config, "reward.reward_manager.name")
    if has_function and name != "scored_by_manager" and manager == "VideoToolsRewardManager":
        raise UsageError(
            f"reward.custom_reward_function.name={name} would never be called: {manager} scores a rollout by its "
            f"method; leave the function out, and override the method's `components` ({page('rewards')})"
        )


def check_engine_length(config: DictConfig) -> None:
    """verl's server would silently cut turns of the longest rollouts, and fail their next ones.

    Raises:
        UsageError: the inference engine's sequences are shorter than a rollout may be.
    """
    rollout = config.actor_rollout_ref.rollout
    if rollout.max_model_len is None:
        return
    needed = int(rollout.prompt_length) + int(rollout.response_length)
    if needed > int(rollout.max_model_len):
        raise UsageError(
            f"rollout.max_model_len={rollout.max_model_len} is {needed - int(rollout.max_model_len)} short of "
            f"prompt_length={rollout.prompt_length} and response_length={rollout.response_length}; set "
            f"actor_rollout_ref.rollout.max_model_len={needed}, or smaller lengths"
        )


def check_image_limits(config: DictConfig) -> None:
    """verl's own limit replaces those of the engine, which then processes a long video when it starts.

    Raises:
        UsageError: the run has both.
    """
    rollout = config.actor_rollout_ref.rollout
    limit = rollout.get("limit_images")
    if limit is not None and OmegaConf.select(rollout, "custom.video_tools.max_images") is not None:
        raise UsageError(
            f"rollout.limit_images={limit} is verl's, and the limit of this run is video_tools.max_images; set "
            f"video_tools.max_images={limit}, and leave rollout.limit_images out"
        )


def check_bypass(config: DictConfig) -> None:
    """With `bypass_mode` the ratio of an update compares the actor with the engine, so both need one distribution.

    Raises:
        UsageError: the engine samples from a part of the vocabulary, and its probabilities are that part's; or a
            correction is set, which verl's trainer skips then.
    """
    correction, rollout = config.algorithm.get("rollout_correction") or {}, config.actor_rollout_ref.rollout
    if not correction.get("bypass_mode"):
        return
    wrong = "algorithm.rollout_correction.bypass_mode=True"
    if rollout.top_p != 1 or rollout.top_k > 0:
        raise UsageError(
            f"{wrong} with rollout.top_p={rollout.top_p} and top_k={rollout.top_k}: the engine gives the probabilities "
            "of the tokens that it may sample, the actor of the whole vocabulary, and the update would take "
            "this difference for a change of the policy; set actor_rollout_ref.rollout.top_p=1 and top_k=-1, or "
            "algorithm.rollout_correction.bypass_mode=False"
        )
    for name in ("rollout_is", "rollout_rs"):
        if correction.get(name):
            raise UsageError(
                f"{wrong} with {name}={correction[name]}: verl computes no correction then; set "
                f"algorithm.rollout_correction.{name}=null, or algorithm.rollout_correction.bypass_mode=False"
            )


def check_switching(config: DictConfig) -> None:
    """verl waits for groups and refills between two steps where it lends devices: without our bound, and unseen by the
    watch on the judge.

    Raises:
        UsageError: the run does that with dynamic sampling.
    """
    switches = OmegaConf.select(config, "trainer.v1.separate_async.hybrid_rollout.enable_switch")
    if switches and OmegaConf.select(config, "algorithm.filter_groups.enable"):
        raise UsageError(
            "trainer.v1.separate_async.hybrid_rollout.enable_switch=True and algorithm.filter_groups.enable=True: a "
            "step that dynamic sampling cannot fill would never end; switch one off"
        )


def validates(config: DictConfig) -> bool:
    """Whether the run validates at all; verl reads `data.val_files` in any case."""
    trainer = config.trainer
    return bool(trainer.test_freq > 0 or trainer.get("val_before_train") or trainer.get("val_only"))


def check_validation_rows(config: DictConfig) -> None:
    """verl makes a data set of `data.val_files` in every run, so recipes give it the training rows if there are none.

    Raises:
        UsageError: the run would measure itself on these.
    """
    trainer = config.trainer
    if validates(config) and config.data.val_files == config.data.train_files:
        raise UsageError(
            f"this run validates (trainer.test_freq={trainer.test_freq}, val_before_train={trainer.val_before_train}) "
            f"on the rows that it trains on, {config.data.train_files}; set VAL_FILES, or data.val_files"
        )


# ---------------------------------------------------------------------------------------------------------------- rows


def check_datasets(train: Any, validation: Any, config: DictConfig, processor: Any) -> None:
    """Check the rows that verl has read, before it starts a worker: their agent loops, then what they can earn.

    Args:
        train: verl's data set; one without a `dataframe` is left alone.
        validation: likewise.
        config: of the run.
        processor: the model's.

    Raises:
        UsageError: rows name an agent loop that is not registered, need a retriever or a tool model that is not
            configured or images of an area that none has, or see `check_family` and `check_rows`.
    """
    rollout_config = config.actor_rollout_ref.rollout
    if processor is not None:
        model, dtype = config.actor_rollout_ref.model, rollout_config.get("dtype")
        if warning := check_family(processor.config, model, dtype):
            logger.warning(warning)
    for dataset in (train, validation):
        rows = getattr(dataset, "dataframe", None)
        if rows is None:
            continue
        names = set(rows["agent_name"]) if "agent_name" in rows.column_names else set()
        check_agent_names(names, config)
        if processor is not None and names & set(method_names()):  # a loop would say so, too: in every rollout
            envelope_of(processor, plain_dict(OmegaConf.select(config, "data.mm_processor_kwargs")))
        columns = [name for name in CHECKED_COLUMNS if name in rows.column_names]
        judge = judge_config(config)
        check_rows(rows.select_columns(columns), rollout_config, judge, validate=dataset is validation)


def check_batch(num_rows: int, batch_size: int) -> None:
    """verl leaves incomplete batches out.

    Raises:
        UsageError: the training rows do not fill one.
    """
    if num_rows < batch_size:
        raise UsageError(
            f"{num_rows} training rows do not fill one batch of {batch_size}; give more rows, or set "
            f"data.train_batch_size={num_rows} or less"
        )


def check_agent_names(names: Set[str], config: DictConfig) -> None:
    """Whether verl finds the agent loops that rows name, and the run has the services that these ask.

    Raises:
        UsageError: one is not registered, or needs a retriever or a tool model that is not configured.
    """
    from verl.experimental.agent_loop.agent_loop import _agent_loop_registry
    from verl.utils.import_utils import resolve_config_path

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
    check_services(names, rollout_config)


def check_services(agent_names: Set[str], rollout_config: DictConfig) -> None:
    """Whether the run has the retriever and the tool model that methods ask, as they are configured; without one every
    search, or every question, would flag its rollout.

    Raises:
        UsageError: one is missing; names the methods and the option.
    """
    methods = [method_from_config(name, rollout_config) for name in sorted(agent_names & set(method_names()))]
    searching = [method.name for method in methods if method.searches]
    if searching and retrieval_config(rollout_config) is None:
        raise UsageError(
            f"rows of {', '.join(searching)} search for frames by text, and the run has no retriever; set "
            f"video_tools.retrieval.model=<folder or name> ({page('retrieval')})"
        )
    with_tool_model = [method.name for method in methods if method.asks_model]
    if with_tool_model and tool_model_config(rollout_config) is None:
        raise UsageError(
            f"tools of {', '.join(with_tool_model)} ask a model, and the run has none; set "
            f"video_tools.tool_model.base_url=http://host:8000/v1 ({page('tools')})"
        )


def check_rows(
    rows: Iterable[Mapping[str, Any]],
    rollout_config: DictConfig,
    judge: JudgeConfig | None,
    *,
    validate: bool,
) -> None:
    """Check by the method of every row, as the run configures it, whether the row can earn what the method pays.

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
            fields that must not be its own.
    """
    methods: dict[str, Method] = {}
    faults: dict[str, list[str]] = {}
    num_rows, num_bad = Counter[str](), Counter[str]()
    for row in rows:
        name = row_method_name(row, rollout_config)
        if name is None:
            continue
        if name not in methods:
            methods[name] = checked_method(name, rollout_config, validate)
        num_rows[name] += 1
        if fault := row_fault(row, methods[name], judge, validate=validate):
            num_bad[name] += 1
            if num_bad[name] <= _NUM_NAMED:
                faults.setdefault(name, []).append(fault)
    for name, named in faults.items():
        of_rows = f"{num_bad[name]} of {num_rows[name]} {'validation' if validate else 'training'} rows of {name}"
        more = ["..."] if num_bad[name] > len(named) else []
        message = f"{of_rows} cannot earn what the method pays: {'; '.join([*named, *more])}"
        if num_bad[name] == num_rows[name] and not validate:
            raise UsageError(f"{message}. `vvt data validate` names all of them")
        logger.warning("%s. `vvt data validate --out` leaves such rows out", message)


def row_method_name(row: Mapping[str, Any], rollout_config: DictConfig) -> str | None:
    """Name of the row's method; None where another agent loop than ours takes the row."""
    name = row.get("agent_name")
    if not (isinstance(name, str) and name):
        name = rollout_config.agent.get("default_agent_loop")
    return name if name in method_names() else None


def checked_method(name: str, rollout_config: DictConfig, validate: bool) -> Method:
    """A method as the run configures it.

    Raises:
        UsageError: it gives a rollout of a group fields that must not be its own.
    """
    method = method_from_config(name, rollout_config)
    for method_of_rollout in group_methods(method, rollout_config, validate):
        rollout_overrides(method_of_rollout, method)
    return method


def row_fault(row: Mapping[str, Any], method: Method, judge: JudgeConfig | None, *, validate: bool) -> str:
    """Why no rollout on a row can earn all that its method pays; empty where one can.

    Args:
        validate: the row is for validation: its answer must be gradeable, no more.
    """
    try:
        sample = Sample.from_row(row)
        check_media(method, sample)
        check = method.check_sample if validate else method.check_gradable
        check(sample, judge)
    except RowError as error:  # which names its row
        return str(error)
    except UsageError as error:
        return f"{row_name(row['extra_info'])}: {error}"
    return ""
