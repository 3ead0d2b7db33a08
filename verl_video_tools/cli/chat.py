"""`vvt chat`: questions about a video to a trained model behind an endpoint, with what it looks at."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from verl_video_tools.cli.list_names import names_of
from verl_video_tools.cli.options import (
    APIKeyEnv,
    DeadlineSeconds,
    Model,
    Retrieval,
    Seed,
    Settings,
    Temperature,
    ToolModelBaseURL,
    ToolModelSettings,
    command,
    config_from,
    tool_model_config,
)
from verl_video_tools.cli.serving import Serve, ServeOption, announced_server, check_server
from verl_video_tools.core.assignments import read_assignments
from verl_video_tools.core.errors import UsageError

if TYPE_CHECKING:
    from verl_video_tools.core.types import Method, PixelEnvelope


@command
class Chat:
    """Ask a trained model about a video. Runs the method's tools; prints each call, its frames, and the answer."""

    video: Annotated[Path, typer.Argument(metavar="VIDEO", help="Video file.")]
    method: Annotated[
        str,
        typer.Option(
            help="Method that the model was trained with, such as longvt.", autocompletion=names_of("methods")
        ),
    ]
    url: Annotated[
        str | None, typer.Option("--url", "--base-url", metavar="URL", help="OpenAI-compatible endpoint of the model.")
    ] = None
    serve: Serve = None
    serve_option: ServeOption = None
    model: Model = None
    question: Annotated[
        str | None,
        typer.Option(help="Whole question, options included; default: read from standard input, a line each."),
    ] = None
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder for a page of each dialogue; default: a new temporary one."),
    ] = None
    settings: Settings = None
    processor: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="Folder or name of the model, whose processor decides the images' sizes."),
    ] = None
    min_pixels: Annotated[int | None, typer.Option(min=1, help="As data.mm_processor_kwargs in training.")] = None
    max_pixels: Annotated[int | None, typer.Option(min=1, help="As data.mm_processor_kwargs in training.")] = None
    temperature: Temperature = 0.0
    seed: Seed = None
    jpeg_quality: Annotated[
        int | None, typer.Option(min=1, max=95, help="Send images as JPEG of this quality; default: PNG.")
    ] = None
    deadline_seconds: DeadlineSeconds = 600.0
    api_key_env: APIKeyEnv = "VVT_API_KEY"
    retrieval: Retrieval = None
    tool_model_base_url: ToolModelBaseURL = None
    tool_model_settings: ToolModelSettings = None

    def run(self) -> int:
        from verl_video_tools.evaluation.chat import ask, plain
        from verl_video_tools.evaluation.model import envelope_of_model
        from verl_video_tools.methods import get_method
        from verl_video_tools.methods.run_settings import read_run_settings, with_run_settings
        from verl_video_tools.rollout.chat_policy import PolicyConfig
        from verl_video_tools.services.retrieval import local_from_fields

        if not self.video.is_file():
            raise UsageError(f"{self.video} is no file; name a video file")
        check_server("--url", self.url, self.serve, self.serve_option)
        trained = read_run_settings(self.serve or self.processor, self.method)
        fields = with_run_settings(self.serve or self.processor, self.method, read_assignments(self.settings or []))
        method = get_method(self.method, **fields)
        bounds = self.min_pixels or trained.min_pixels, self.max_pixels or trained.max_pixels
        envelope = envelope_of_model(self.processor or self.serve, *bounds)
        retriever = local_from_fields(read_assignments(self.retrieval or [], "--retrieval"))
        tool_model = tool_model_config(self.tool_model_base_url, self.tool_model_settings)
        folder = self.out or Path(tempfile.mkdtemp(prefix="vvt_chat_"))
        failed = False
        with asyncio.Runner() as runner, self._endpoint(runner, method, fields, envelope, folder / "vllm.log") as url:
            policy = config_from(PolicyConfig, self, base_url=(url,), envelope=envelope)
            for number, question in enumerate(self._questions(), 1):
                rollout = runner.run(
                    ask(
                        question,
                        str(self.video),
                        method,
                        policy,
                        folder / f"question_{number}.html",
                        _tell,
                        seed=self.seed,
                        retriever=retriever,
                        tool_model=tool_model,
                    )
                )
                if rollout.flags:
                    failed = True
                    typer.echo(f"failed: {', '.join(rollout.flags)}: {plain(rollout.error or '')}", err=True)
        return int(failed)

    @contextmanager
    def _endpoint(
        self, runner: asyncio.Runner, method: Method, fields: Mapping[str, Any], envelope: PixelEnvelope, log: Path
    ) -> Iterator[str]:
        """Its address; a server of our own ends with the context."""
        if self.serve is None:
            assert self.url is not None
            yield self.url
            return
        options, name = read_assignments(self.serve_option or [], "--serve-option"), self.model or self.serve
        stack = AsyncExitStack()
        try:
            server = announced_server(self.serve, log, method, fields, envelope, options, name)
            yield runner.run(stack.enter_async_context(server))
        finally:
            runner.run(stack.aclose())

    def _questions(self) -> Iterator[str]:
        """The one that was given, or those of standard input until it ends."""
        if self.question is not None:
            yield self.question
            return
        prompt = "question> " if sys.stdin.isatty() else ""
        if prompt:
            with suppress(ImportError):
                import readline  # noqa: F401  # `input` then edits lines and has a history
        while True:
            try:
                question = input(prompt).strip()
            except (EOFError, KeyboardInterrupt):
                return
            if question:
                yield question


def _tell(line: str) -> None:
    print(line, flush=True)
