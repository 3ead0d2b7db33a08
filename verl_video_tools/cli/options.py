"""What commands share: options that several of them have, how these become a config, files to write, and progress.

A command is a dataclass: Typer reads the fields of its constructor as it reads a function's parameters, calls it with
the values, and `main.DataclassCommand` calls its method `run`. Options that belong together are a base class.
"""

# Without `from __future__ import annotations`: Typer evaluates annotations that are texts in the module of the command,
# where those of an inherited field mean nothing.
import os
import sys
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Protocol, TypeVar, dataclass_transform

import typer

from verl_video_tools.cli.names import names_of
from verl_video_tools.core.config import checked_fields, read_assignments
from verl_video_tools.core.errors import UsageError
from verl_video_tools.services.config import EndpointConfig, JudgeConfig, ToolModelConfig

if TYPE_CHECKING:
    from verl_video_tools.core.types import Method, PixelEnvelope, VideoInfo
    from verl_video_tools.methods.run_settings import RunSettings
    from verl_video_tools.rollout.chat_policy import PolicyConfig
    from verl_video_tools.services.retrieval import RetrievalService

ConfigT = TypeVar("ConfigT")

SECONDS_TO_OPEN = 60.0
"""For one video; a file that takes longer counts as hung."""


Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace files that exist.")]

BASE_URL = typer.Option(
    metavar="URL",
    help="OpenAI-compatible endpoint of the model (key: VVT_API_KEY); repeatable, for several servers of the model.",
)
METHOD = typer.Option(
    help="Method to run, such as longvt: its prompt, tools, loop and reward.", autocompletion=names_of("methods")
)
Model = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Name of the model at the endpoint; default: the first one that it serves."),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="FIELD=VALUE",
        help="Set a field of the method, by its name or as video_tools.METHOD.FIELD; repeatable.",
    ),
]
Temperature = Annotated[float, typer.Option(min=0.0, help="Sampling temperature.")]
Seed = Annotated[int | None, typer.Option(help="Sampling seed, for endpoints that accept one.")]
Concurrency = Annotated[int, typer.Option(min=1, help="Number of rollouts or requests at the same time.")]
MinPixels = Annotated[
    int | None, typer.Option(min=1, help="Lower pixel bound of the run (data.mm_processor_kwargs.min_pixels).")
]
MaxPixels = Annotated[
    int | None, typer.Option(min=1, help="Upper pixel bound of the run (data.mm_processor_kwargs.max_pixels).")
]
Retrieval = Annotated[
    list[str] | None,
    typer.Option(metavar="FIELD=VALUE", help="Encoder that finds frames by text, such as model=DIR; repeatable."),
]
RetryFlagged = Annotated[bool, typer.Option("--retry-flagged", help="Repeat the rollouts that failed.")]
Records = Annotated[
    Path, typer.Argument(help="Recorded rollouts: folder of a run or of its trajectories, or a .jsonl file.")
]
Rows = Annotated[Path, typer.Argument(metavar="ROWS.parquet", help="Parquet file with rows.")]


@dataclass_transform(kw_only_default=True)
def command(cls: type[ConfigT]) -> type[ConfigT]:
    """A dataclass of options, without what no command needs and every start would pay for: comparison and text."""
    return dataclass(kw_only=True, eq=False, repr=False)(cls)


@dataclass(kw_only=True)
class ExplicitOptions:
    """Which options the command line has, beside their defaults."""

    explicit_options: ClassVar[Mapping[str, str]] = {}
    """By field, as the command line spells the option."""

    def refuse(self, fields: Iterable[str], why: str) -> None:
        """Raises UsageError if one of these options is given. `why` follows its name in the message."""
        for field in fields:
            if field in self.explicit_options:
                raise UsageError(f"{self.explicit_options[field]} {why}")


def config_from(config: type[ConfigT], options: object, **overrides: Any) -> ConfigT:
    """A config with the options of the same names as its fields, and with `others`, which win."""
    names = {field.name for field in fields(config)}  # type: ignore[arg-type]  # a dataclass, which no bound can say
    return config(**{name: value for name, value in vars(options).items() if name in names} | overrides)


def listed(counts: Mapping[str, int]) -> str:
    """Counts by name as `name count, ...`."""
    return ", ".join(f"{name} {count}" for name, count in counts.items())


# ------------------------------------------------------------------------------------------------ files and progress

Paths = Iterable[Path | None]
"""None: an option that is not given."""


def check_outputs(outputs: Paths, sources: Paths = (), *, overwrite: bool = False) -> None:
    """Refuse, before any work is done, to write where something would be lost.

    Args:
        sources: files that are read.
        overwrite: files that exist may be replaced, or are continued.

    Raises:
        UsageError: a file to write is a source, is to be written twice, or exists.
    """
    read = [source for source in sources if source is not None and os.path.exists(source)]
    written: set[Path] = set()
    for path in outputs:
        if path is None:
            continue
        if os.path.exists(path) and any(path.samefile(source) for source in read):
            raise UsageError(f"{path} is the source; name another file to write")
        if (real := Path(os.path.realpath(path))) in written:
            raise UsageError(f"{path} is to be written twice; name two files")
        written.add(real)
        if os.path.isfile(path) and not overwrite:
            raise UsageError(f"{path} exists; name another file, or replace it with --overwrite")


def check_page(out: Path, sources: Paths = ()) -> None:
    """The same for an HTML page, which a command draws anew where it exists.

    Raises:
        UsageError: it is a source, or a file that is no HTML page.
    """
    check_outputs([out], sources, overwrite=True)
    if os.path.isfile(out) and out.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"{out} exists and is not an HTML page; name another file")


SECONDS_BETWEEN_LINES = 30.0
"""Where standard error is a file, as under Slurm and nohup."""


class Advance(Protocol):
    def __call__(self, num_done: int, num_wanted: int, note: str = "") -> None:
        """
        Args:
            note: further text, such as the accuracy so far.
        """


@contextmanager
def progress_bars(*names: str) -> Iterator[Sequence[Advance]]:
    """A bar with the time left for each name, drawn anew every 30 seconds where standard error is no terminal; gives
    functions to call with the number done and the number wanted. A bar appears with its first call."""
    from tqdm import tqdm

    is_terminal = sys.stderr.isatty()
    bars: dict[str, Any] = {}

    def advance(name: str, num_done: int, num_wanted: int, note: str = "") -> None:
        if name not in bars:  # what an earlier run has done says nothing about the time left
            interval, place = (0.1, None) if is_terminal else (SECONDS_BETWEEN_LINES, 0)
            bar = tqdm(desc=name, total=num_wanted, initial=num_done, miniters=1, mininterval=interval, position=place)
            bars[name] = stack.enter_context(bar)
        bars[name].total = num_wanted
        bars[name].set_postfix_str(note, refresh=False)
        bars[name].update(num_done - bars[name].n)

    with ExitStack() as stack:
        yield [partial(advance, name) for name in names]


def probe_videos(source: Path) -> "dict[str, VideoInfo | str]":
    """`data.validate.probe_videos` in a thread per CPU, with progress on standard error."""
    from verl_video_tools.data.validate import probe_videos

    with progress_bars("videos") as (progress,):
        return probe_videos(source, os.cpu_count() or 1, SECONDS_TO_OPEN, progress)


@dataclass(kw_only=True)
class ToolServices:
    """What tools ask beside the video."""

    retrieval: Retrieval = None
    tool_model_settings: Annotated[
        list[str] | None,
        typer.Option(
            "--tool-model",
            metavar="FIELD=VALUE",
            help="Model that tools ask: base_url=URL and further settings, such as calls_per_rollout=4; repeatable.",
        ),
    ] = None

    def retrieval_fields(self) -> dict[str, Any]:
        """The encoder's config. Raises UsageError for an option that is no assignment."""
        return read_assignments(self.retrieval or [], "--retrieval")

    def retriever(self) -> "RetrievalService | None":
        """The encoder; None if no option names one.

        Raises:
            UsageError: an unknown field, a wrong value, or an encoder that cannot be loaded.
        """
        from verl_video_tools.services.retrieval import local_from_fields

        return local_from_fields(self.retrieval_fields())

    def tool_model(self) -> ToolModelConfig | None:
        """The model that tools ask; None if no option names one.

        Raises:
            UsageError: an unknown field, a wrong value, or no address.
        """
        if not self.tool_model_settings:
            return None
        return ToolModelConfig.from_fields(read_assignments(self.tool_model_settings, "--tool-model"))


@dataclass(kw_only=True)
class Services(ToolServices):
    """What tools ask, and who judges answers to open questions."""

    judge_base_url: Annotated[
        str | None, typer.Option(metavar="URL", help="Endpoint of a judge, for open questions.")
    ] = None
    judge_settings: Annotated[
        list[str] | None,
        typer.Option(
            "--judge",
            metavar="FIELD=VALUE",
            help="Field of the judge, such as model=NAME, profile=longvt; repeatable.",
        ),
    ] = None

    def judge(self) -> JudgeConfig | None:
        """The judge; None if no option names its endpoint.

        Raises:
            UsageError: an unknown field, a wrong value, an address given twice, or fields without an endpoint.
        """
        fields = read_assignments(self.judge_settings or [], "--judge")
        if self.judge_base_url is not None:
            if "base_url" in fields:
                raise UsageError("give either --judge-base-url or --judge base_url=...")
            fields["base_url"] = self.judge_base_url
        if not fields:
            return None
        judge = JudgeConfig(**checked_fields(JudgeConfig, fields))
        if judge.base_url is None:
            raise UsageError("a judge needs an endpoint: give --judge-base-url")
        return judge


@dataclass(kw_only=True)
class Asking(Services):
    """Limits of requests to the models that make rollouts."""

    concurrency: Concurrency = EndpointConfig.concurrency
    deadline_seconds: Annotated[
        float, typer.Option(min=0.1, help="Time that one turn may take, with all its attempts.")
    ] = EndpointConfig.deadline_seconds

    def policy(self, **overrides: Any) -> "PolicyConfig":
        """The model that makes rollouts; `others` are fields without an option. Raises UsageError."""
        from verl_video_tools.rollout.chat_policy import PolicyConfig

        urls = {"base_url": tuple(getattr(self, "base_url", None) or ()) or None}
        return config_from(PolicyConfig, self, **urls | overrides)


@dataclass(kw_only=True)
class Served:
    """A trained model behind an endpoint, or served for as long as the command runs."""

    base_url: Annotated[list[str] | None, BASE_URL] = None
    serve: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL_DIR", help="Model to serve with vLLM while the command runs, instead of --base-url."
        ),
    ] = None
    serve_option: Annotated[
        list[str] | None, typer.Option(metavar="OPTION=VALUE", help="Further option of `vllm serve`; repeatable.")
    ] = None
    model: Model = None
    processor: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="Folder or name of the model whose processor decides the sizes of images."),
    ] = None
    min_pixels: MinPixels = None
    max_pixels: MaxPixels = None
    settings: Settings = None

    def check_server(self) -> None:
        """Raises UsageError unless either an address or a model to serve is given."""
        if bool(self.base_url) == bool(self.serve):
            raise UsageError("give either --base-url or --serve")
        if self.serve is None and self.serve_option:
            raise UsageError("--serve-option belongs to --serve")

    def envelope(self, trained: "RunSettings") -> "PixelEnvelope":
        """The sizes of images: by options, or else as in the model's own run."""
        from verl_video_tools.evaluation.serve import envelope_of_model

        bounds = self.min_pixels or trained.min_pixels, self.max_pixels or trained.max_pixels
        return envelope_of_model(self.processor or self.serve, *bounds)

    def serve_options(self) -> dict[str, Any]:
        """Those of `vllm serve`. Raises UsageError for one that is no assignment."""
        return read_assignments(self.serve_option or [], "--serve-option")

    @asynccontextmanager
    async def server(
        self, log: Path, method: "Method", fields: Mapping[str, Any], envelope: "PixelEnvelope"
    ) -> AsyncIterator[str]:
        """The address of `--serve`'s model, served with the limits of a method; prints where its log is.

        Args:
            fields: of the method's config that were given.
        """
        from verl_video_tools.evaluation.serve import served_model
        from verl_video_tools.methods import get_method
        from verl_video_tools.rollout.cost import serving_limits

        assert self.serve is not None
        usual = get_method(method.name, **{"file": fields["file"]} if "file" in fields else {})  # a composition's
        limits, as_video = serving_limits(method, usual, envelope), method.initial_frames_as_video
        typer.echo(f"starting vLLM, which prints to {log}", err=True)
        name = self.model or self.serve
        async with served_model(
            self.serve, log, limits, self.serve_options(), name=name, takes_video=as_video
        ) as base_url:
            yield base_url
