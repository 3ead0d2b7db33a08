"""`--serve MODEL_DIR`: a model that vLLM serves for as long as a command runs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from verl_video_tools.core.errors import UsageError

if TYPE_CHECKING:
    from verl_video_tools.core.types import Method, PixelEnvelope

Serve = Annotated[
    str | None, typer.Option(metavar="MODEL_DIR", help="Instead: serve this model with vLLM during the run.")
]
ServeOption = Annotated[
    list[str] | None, typer.Option(metavar="OPTION=VALUE", help="Further option of `vllm serve`; repeatable.")
]


def check_server(option: str, address: object, serve: str | None, serve_option: list[str] | None) -> None:
    """Raises UsageError unless either an address is given, with the option of this name, or a model to serve."""
    if bool(address) == bool(serve):
        raise UsageError(f"give either {option} or --serve")
    if serve is None and serve_option:
        raise UsageError("--serve-option belongs to --serve")


@asynccontextmanager
async def announced_server(
    model: str,
    log: Path,
    method: Method,
    fields: Mapping[str, Any],
    envelope: PixelEnvelope,
    options: Mapping[str, Any],
    name: str,
) -> AsyncIterator[str]:
    """`served_model` with the limits of a method; prints where its log is.

    Args:
        fields: of the method's config that were given.
    """
    from verl_video_tools.evaluation.serve import served_model
    from verl_video_tools.methods import get_method
    from verl_video_tools.rollout.cost import serving_limits

    usual = get_method(method.name, **{"file": fields["file"]} if "file" in fields else {})  # a composition's
    limits, as_video = serving_limits(method, usual, envelope), method.initial_frames_as_video
    typer.echo(f"starting vLLM, which prints to {log}", err=True)
    async with served_model(model, log, limits, options, name=name, takes_video=as_video) as base_url:
        yield base_url
