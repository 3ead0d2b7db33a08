"""What commands share: options that several of them have, and how a command's options become a config.

A command is a dataclass: Typer reads the fields of its constructor as it reads a function's parameters, calls it with
the values, and `main.DataclassCommand` calls its method `run`. Options that belong together are a base class.
"""

# Without `from __future__ import annotations`: Typer evaluates annotations that are texts in the module of the command,
# where those of an inherited field mean nothing.
import os
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, dataclass_transform

import typer

from verl_video_tools.core.assignments import read_assignments
from verl_video_tools.core.config import checked_fields
from verl_video_tools.core.errors import UsageError

if TYPE_CHECKING:
    from verl_video_tools.core.types import VideoInfo
    from verl_video_tools.rollout.chat_policy import PolicyConfig
    from verl_video_tools.services.judge import JudgeConfig
    from verl_video_tools.services.retrieval import RetrievalService
    from verl_video_tools.services.tool_model import ToolModelConfig

ConfigT = TypeVar("ConfigT")

Model = Annotated[str | None, typer.Option(metavar="NAME", help="Model to use; default: the first that is served.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="FIELD=VALUE", help="Override a field of the method's config; repeatable."),
]
BASE_URL = typer.Option(
    metavar="URL", help="OpenAI-compatible endpoint of the model; repeatable, for several servers of the same model."
)
Temperature = Annotated[float, typer.Option(min=0.0, help="Sampling temperature.")]
Seed = Annotated[int | None, typer.Option(help="Sampling seed, for endpoints that accept one.")]
DeadlineSeconds = Annotated[float, typer.Option(min=0.1, help="Time for one turn with all its attempts, in seconds.")]
APIKeyEnv = Annotated[str, typer.Option(metavar="NAME", help="Environment variable with the endpoint's key.")]
Retrieval = Annotated[
    list[str] | None,
    typer.Option(metavar="FIELD=VALUE", help="Encoder that finds frames by text, such as model=DIR; repeatable."),
]
ToolModelBaseURL = Annotated[str | None, typer.Option(metavar="URL", help="Endpoint of the model that tools ask.")]
ToolModelSettings = Annotated[
    list[str] | None,
    typer.Option(
        "--tool-model",
        metavar="FIELD=VALUE",
        help="Field of this model's settings, such as calls_per_rollout=4; repeatable.",
    ),
]
RetryFlagged = Annotated[bool, typer.Option("--retry-flagged", help="Repeat rollouts that failed.")]
Rows = Annotated[Path, typer.Argument(metavar="ROWS.parquet", help="Parquet file of our rows.")]


@dataclass_transform(kw_only_default=True)
def command(cls: type[ConfigT]) -> type[ConfigT]:
    """A dataclass of options, without what no command needs and every start would pay for: comparison and text."""
    return dataclass(kw_only=True, eq=False, repr=False)(cls)


def config_from(config: type[ConfigT], options: object, **others: Any) -> ConfigT:
    """A config with the options of the same names as its fields, and with `others`, which win."""
    names = {field.name for field in fields(config)}  # type: ignore[arg-type]  # a dataclass, which no bound can say
    return config(**{name: value for name, value in vars(options).items() if name in names} | others)


def tool_model_config(base_url: str | None, settings: list[str] | None) -> "ToolModelConfig | None":
    """The model that tools ask; None where nothing is said of it.

    Raises:
        UsageError: an unknown field, a wrong value, an address given twice, or none.
    """
    fields = read_assignments(settings or [], "--tool-model")
    if base_url is not None and "base_url" in fields:
        raise UsageError("give either --tool-model-base-url or --tool-model base_url=...")
    if base_url is not None:
        fields["base_url"] = base_url
    if not fields:
        return None
    from verl_video_tools.services.tool_model import ToolModelConfig

    return ToolModelConfig.from_fields(fields)


def listed(value: Any) -> str:
    """Counts by name as `name count, ...`; any other value as it is."""
    if not isinstance(value, dict):
        return str(value)
    return ", ".join(f"{name} {round(count, 1):g}" for name, count in value.items())


@dataclass(kw_only=True)
class Judging:
    """Who judges answers to open questions."""

    judge_base_url: Annotated[
        str | None, typer.Option(metavar="URL", help="Endpoint of a judge, for open questions.")
    ] = None
    judge_model: Annotated[
        str | None, typer.Option(metavar="NAME", help="Model of the judge; default: the first that is served.")
    ] = None
    judge_settings: Annotated[
        list[str] | None,
        typer.Option("--judge", metavar="FIELD=VALUE", help="Field of the judge, such as profile=longvt; repeatable."),
    ] = None

    def judge(self) -> "JudgeConfig | None":
        """The judge; None where its endpoint is not given.

        Raises:
            UsageError: an unknown field, a wrong value, one given twice, or fields without an endpoint.
        """
        named = {"base_url": self.judge_base_url, "model": self.judge_model}
        given = {name: value for name, value in named.items() if value is not None}
        fields = read_assignments(self.judge_settings or [], "--judge")
        for name in fields.keys() & given.keys():
            raise UsageError(f"give either --judge-{name.replace('_', '-')} or --judge {name}=...")
        if not given.keys() | fields.keys():
            return None
        from verl_video_tools.services.judge import JudgeConfig

        judge = JudgeConfig(**checked_fields(JudgeConfig, given | fields))
        if judge.base_url is None:
            raise UsageError("a judge needs an endpoint: give --judge-base-url")
        return judge


@dataclass(kw_only=True)
class Asking(Judging):
    """How models are asked that make rollouts."""

    concurrency: Annotated[int, typer.Option(min=1, help="Rollouts at a time.")] = 32
    requests_per_second: Annotated[
        float | None, typer.Option(help="Most requests per second, evenly spaced; default: no limit.")
    ] = None
    deadline_seconds: DeadlineSeconds = 600.0
    top_p: Annotated[
        float | None, typer.Option(help="Sample from the most likely tokens with this total probability.")
    ] = None
    jpeg_quality: Annotated[
        int | None, typer.Option(min=1, max=95, help="Send images as JPEG of this quality; default: PNG.")
    ] = None
    native_reasoning: Annotated[
        bool, typer.Option(help="Separate native reasoning from the reply; off: parse replies as they are.")
    ] = True
    api_key_env: APIKeyEnv = "VVT_API_KEY"
    retrieval: Retrieval = None
    tool_model_base_url: ToolModelBaseURL = None
    tool_model_settings: ToolModelSettings = None

    def policy(self, **others: Any) -> "PolicyConfig":
        """A model that is asked so; `others` are fields that the options do not give. Raises UsageError."""
        from verl_video_tools.rollout.chat_policy import PolicyConfig

        urls = {"base_url": tuple(getattr(self, "base_url", None) or ()) or None}
        return config_from(PolicyConfig, self, **urls | others)

    def retrieval_fields(self) -> dict[str, Any]:
        """The encoder's config. Raises UsageError for an option that is no assignment."""
        return read_assignments(self.retrieval or [], "--retrieval")

    def retriever(self) -> "RetrievalService | None":
        """The encoder; None where nothing is said of it.

        Raises:
            UsageError: an unknown field, a wrong value, or an encoder that cannot be loaded.
        """
        from verl_video_tools.services.retrieval import local_from_fields

        return local_from_fields(self.retrieval_fields())

    def tool_model(self) -> "ToolModelConfig | None":
        """The model that tools ask; None where nothing is said of it. Raises UsageError as `tool_model_config`."""
        return tool_model_config(self.tool_model_base_url, self.tool_model_settings)


@dataclass(kw_only=True)
class Sampling(Asking):
    """Which model is asked for rollouts to record, how often, and where they are written."""

    out: Annotated[Path, typer.Argument(help="File to write, one JSON line per rollout; an existing one is continued.")]
    base_url: Annotated[list[str], BASE_URL]
    model: Model = None
    num_samples: Annotated[int, typer.Option("--samples", min=1, help="Rollouts of each question.")] = 1
    temperature: Temperature = 1.0
    seed: Seed = None
    settings: Settings = None
    retry_flagged: RetryFlagged = False


@dataclass(kw_only=True)
class Probing:
    """How the videos of rows are opened."""

    jobs: Annotated[int | None, typer.Option(min=1, help="Threads that open videos; default: the number of CPUs.")] = (
        None
    )
    deadline_seconds: Annotated[float, typer.Option(min=0.1, help="Time to open one video, in seconds.")] = 60.0

    def probe_videos(self, source: Path) -> "dict[str, VideoInfo | str]":
        """`data.validate.probe_videos`, with progress on standard error."""
        from verl_video_tools.cli.progress import progress_bars
        from verl_video_tools.data.validate import probe_videos

        with progress_bars("videos") as (progress,):
            return probe_videos(source, self.jobs or os.cpu_count() or 1, self.deadline_seconds, progress)
