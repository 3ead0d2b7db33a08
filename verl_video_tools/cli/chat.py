"""`vvt chat`: questions about a video to a trained model behind an endpoint, with what it looks at."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from verl_video_tools.cli.options import METHOD, Served, ToolServices, command, config_from
from verl_video_tools.core.config import read_assignments
from verl_video_tools.core.errors import UsageError

if TYPE_CHECKING:
    from verl_video_tools.core.types import Method, PixelEnvelope


@command
class Chat(ToolServices, Served):
    """Ask a trained model about a video. Runs the method's tools; prints each call, its frames, and the answer."""

    video: Annotated[Path, typer.Argument(metavar="VIDEO", help="Video file.")]
    method: Annotated[str, METHOD]
    question: Annotated[
        str | None,
        typer.Option(help="Whole question, options included; default: read from standard input, a line each."),
    ] = None
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder for a page of each dialogue; default: a new temporary one."),
    ] = None

    def run(self) -> int:
        from verl_video_tools.evaluation.chat import ask, plain
        from verl_video_tools.evaluation.model import envelope_of_model
        from verl_video_tools.methods import get_method
        from verl_video_tools.methods.run_settings import read_run_settings, with_run_settings
        from verl_video_tools.rollout.chat_policy import PolicyConfig

        if not self.video.is_file():
            raise UsageError(f"{self.video} is no file; name a video file")
        self.check_server()
        trained = read_run_settings(self.serve or self.processor, self.method)
        fields = with_run_settings(self.serve or self.processor, self.method, read_assignments(self.settings or []))
        method = get_method(self.method, **fields)
        bounds = self.min_pixels or trained.min_pixels, self.max_pixels or trained.max_pixels
        envelope = envelope_of_model(self.processor or self.serve, *bounds)
        retriever, tool_model = self.retriever(), self.tool_model()
        folder = self.out or Path(tempfile.mkdtemp(prefix="vvt_chat_"))
        failed = False
        with asyncio.Runner() as runner, self._endpoint(runner, method, fields, envelope, folder / "vllm.log") as urls:
            policy = config_from(PolicyConfig, self, base_url=tuple(urls), envelope=envelope, temperature=0.0)
            for number, question in enumerate(self._questions(), 1):
                rollout = runner.run(
                    ask(
                        question,
                        str(self.video),
                        method,
                        policy,
                        folder / f"question_{number}.html",
                        _tell,
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
    ) -> Iterator[Sequence[str]]:
        """Its addresses; a server of our own ends with the context."""
        if self.serve is None:
            yield self.base_url or []
            return
        stack = AsyncExitStack()
        try:
            yield [runner.run(stack.enter_async_context(self.server(log, method, fields, envelope)))]
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
