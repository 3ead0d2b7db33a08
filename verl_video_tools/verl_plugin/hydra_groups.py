"""Makes our config groups known to Hydra, and the resolvers that they use to OmegaConf.

The plugin calls `register` in every process that imports verl: the one that composes a run's configuration, and verl's
task runner, which resolves it. Programs that compose before they import verl call it themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.resources import files
from math import ceil, prod
from pathlib import Path

from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.plugins import Plugins
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf import DictConfig, OmegaConf

from verl_video_tools import config
from verl_video_tools.core.machine import module_exists
from verl_video_tools.verl_plugin.checkpoints import LAST_CHECKPOINT

_VERLS_BUCKET_MEGABYTES = 2048
"""`update_weights_bucket_megabytes` in verl's `rollout.yaml`."""
_SMALLEST_BUCKET_MEGABYTES = 16
"""Takes all weights of a tiny model in one message."""


class VideoToolsSearchPath(SearchPathPlugin):
    """Adds the package's groups behind those of the program."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        search_path.append("verl_video_tools", "pkg://verl_video_tools.config")


def register() -> None:
    """May be called again."""
    Plugins.instance().register(VideoToolsSearchPath)
    resolvers: dict[str, Callable[..., object]] = {
        "sum": lambda *values: sum(values),
        "product": lambda *values: prod(values),
        "divide": lambda dividend, divisor: -(-dividend // divisor),
        "two_or_one": lambda devices: 1 if devices % 2 else 2,
        "lacks": lambda module: not module_exists(module),
        "path": lambda name: str(config.config_path(name)),
        "file": lambda package, name: str(files(package) / name),
        "agent_workers": config.agent_workers,
        "storage_units": config.storage_units,
        "loader_workers": config.loader_workers,
        "composition": _reserved_by_composition,
        "tools_section": _tools_section,
        "weight_bucket_megabytes": _weight_bucket_megabytes,
    }
    for name, resolver in resolvers.items():
        OmegaConf.register_new_resolver(f"video_tools.{name}", resolver, replace=True)


def _reserved_by_composition(file: str, limit: str) -> int:
    """What a composition reserves for a rollout: `prompt_tokens`, `response_tokens`, `tokens` for both, or `images`."""
    from verl_video_tools.methods import get_method

    budget = get_method("compose", file=file).recipe_budget
    return budget.prompt_tokens + budget.response_tokens if limit == "tokens" else int(getattr(budget, limit))


def _tools_section(method: str, model: DictConfig, run_folder: str) -> str | None:
    """How a method lists its tools: in the words of its training where the run goes on, or starts from a model that a
    run has left; otherwise in those of the model's chat template. None: in ours.

    Args:
        model: verl's section of the actor, or of the model that is fine-tuned.
        run_folder: `trainer.default_local_dir`.
    """
    from verl_video_tools.methods.run_settings import model_tools_section, read_run

    goes_on = Path(run_folder, LAST_CHECKPOINT).exists()
    for folder in [run_folder, model.path] if goes_on else [model.path]:
        methods = read_run(Path(folder)).get("methods", {})
        if method in methods:
            section: str | None = methods[method].get("tools_section")
            return section
    return model_tools_section(model.get("tokenizer_path") or model.path, model.get("custom_chat_template"))


def _weight_bucket_megabytes(model_path: str, model_dtype: str) -> int:
    """Size (MiB) of verl's buffer for weights in shared memory, through which it sends none that is larger.

    Args:
        model_path: of the actor. The sizes of its weights are in the headers of its files. verl's own default is taken
            for a name on the hub, and where there are no files yet or one is damaged, which a start names.
        model_dtype: in which the actor keeps weights and verl sends them, such as fp32.
    """
    from safetensors import SafetensorError, safe_open
    from verl.utils.torch_dtypes import PrecisionType

    sizes = [0]
    try:
        for file in Path(model_path).glob("*.safetensors"):
            with safe_open(file, framework="pt") as weights:
                names: list[str] = weights.keys()
                sizes += [prod(weights.get_slice(name).get_shape()) for name in names]
    except SafetensorError:
        return _VERLS_BUCKET_MEGABYTES
    if not (largest := max(sizes)):
        return _VERLS_BUCKET_MEGABYTES
    return max(_SMALLEST_BUCKET_MEGABYTES, ceil(largest * PrecisionType.to_dtype(model_dtype).itemsize / 2**20))
