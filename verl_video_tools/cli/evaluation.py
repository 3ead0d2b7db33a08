"""Commands that ask a trained model: `vvt eval`, `vvt eval-table` and `vvt chat`."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from verl_video_tools.cli.names import names_of
from verl_video_tools.cli.options import (
    METHOD,
    Asking,
    ExplicitOptions,
    Overwrite,
    Seed,
    Served,
    Temperature,
    ToolServices,
    check_outputs,
    command,
    config_from,
    progress_bars,
)
from verl_video_tools.core.config import read_assignments
from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.sample import read_clip
from verl_video_tools.evaluation import Control

if TYPE_CHECKING:
    from verl_video_tools.core.types import Method, PixelEnvelope
    from verl_video_tools.evaluation.protocols import Applied
    from verl_video_tools.evaluation.published_code import PublishedTexts
    from verl_video_tools.evaluation.questions import Questions

_MOST_FAILURES_SHOWN = 20


@command
class Evaluate(Asking, Served, ExplicitOptions):
    """Evaluate a model with the loop and graders of training. Exits 1 if all items failed."""

    out: Annotated[
        Path, typer.Option(help="Folder for rollouts and results. An evaluation in this folder is continued.")
    ]
    method: Annotated[str | None, METHOD] = None
    protocol: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Published evaluation whose options to use. Options on the command line take precedence.",
            autocompletion=names_of("protocols"),
        ),
    ] = None
    published_code: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Your checkout of the authors' code at the protocol's commit: prompt and messages are read from it.",
        ),
    ] = None
    rows: Annotated[Path | None, typer.Option(metavar="ROWS.parquet", help="Rows with the questions.")] = None
    benchmark: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Benchmark to use instead of --rows, such as video-mme, or your own as my_module:MyBenchmark.",
            autocompletion=names_of("benchmarks"),
        ),
    ] = None
    annotations: Annotated[Path | None, typer.Option(help="Annotation file or folder of the benchmark.")] = None
    videos: Annotated[Path | None, typer.Option(help="Folder with the videos of the benchmark.")] = None
    subtitles: Annotated[
        Path | None, typer.Option(help="Folder with the subtitles of the benchmark; default: no subtitles.")
    ] = None
    extractor: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Published rule that reads the answers, too; default: that of the benchmark.",
            autocompletion=names_of("extractors"),
        ),
    ] = None
    where: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FIELD=VALUE", help="Use only questions with this value, such as duration=long; repeatable."
        ),
    ] = None
    limit: Annotated[int | None, typer.Option(min=1, help="Number of questions; every run takes the same ones.")] = None
    repeats: Annotated[
        int, typer.Option(min=1, help="Number of times to ask each question, with another seed each time.")
    ] = 1
    control: Annotated[
        list[Control] | None,
        typer.Option(help="Change the questions, to see what accuracy depends on; repeatable."),
    ] = None
    temperature: Temperature = 0.0
    top_p: Annotated[
        float | None, typer.Option(help="Sample from the most likely tokens with this total probability.")
    ] = None
    jpeg_quality: Annotated[
        int | None, typer.Option(min=1, max=95, help="Send images as JPEG of this quality; default: PNG.")
    ] = None
    seed: Seed = None
    attempts: Annotated[
        int,
        typer.Option(
            min=1,
            help="Largest number of attempts at a question, for a method that verifies answers (framethinker: 3).",
        ),
    ] = 1

    def run(self) -> int:
        from verl_video_tools.evaluation.published_code import FOLDER
        from verl_video_tools.evaluation.questions import controlled, scoped
        from verl_video_tools.evaluation.run import PROTOCOL, WRITTEN, evaluate
        from verl_video_tools.evaluation.serve import model_digest
        from verl_video_tools.evaluation.tables import markdown
        from verl_video_tools.methods import get_method
        from verl_video_tools.methods.run_settings import NAME, RunSettings, read_run_settings, with_run_settings

        if not (self.out / PROTOCOL).exists():  # else the evaluation in this folder is continued
            check_outputs(self.out / name for name in WRITTEN)
        self.check_server()
        fields = read_assignments(self.settings or [])
        profile = None if self.protocol is None else self._take_protocol(self.protocol, fields)
        if self.method is None:
            raise UsageError("give --method, or --protocol, which has one")
        folder = self.serve or self.processor
        trained = read_run_settings(folder, self.method)
        if profile is None:
            fields = with_run_settings(folder, self.method, fields)
        else:  # a published evaluation is complete: no setting of the model's run is mixed into it
            fields = profile.fields
            if trained != RunSettings():
                message = (
                    f"{self.protocol} takes the place of {Path(folder or '') / NAME}; --set gives single fields of it"
                )
                typer.echo(message, err=True)
            trained = RunSettings()
        texts = None if self.published_code is None else self._published_texts(self.published_code)
        if texts is not None:
            fields = texts.write(self.out / FOLDER, self.method) | fields
        configured = get_method(self.method, **fields)
        whole = self._questions()
        questions = scoped(
            whole,
            where=read_assignments(self.where or [], "--where"),
            limit=self.limit,
            repeats=self.repeats,
        )
        if len(questions.faults) < len(whole.faults):
            typer.echo(f"entries that cannot be read and are skipped: {len(whole.faults)}", err=True)
        controls = sorted(set(self.control or ()))  # their order does not change the evaluation
        configured, questions = controlled(configured, questions, controls, self.seed)
        if questions.num_with_subtitles is not None:
            typer.echo(
                f"{questions.num_with_subtitles} of {questions.num_questions} questions have subtitles", err=True
            )
        envelope = self.envelope(trained)
        model, server = self.model, None
        facts: dict[str, Any] = {"retrieval": self.retrieval_fields(), "serve_options": self.serve_options()}
        if profile is not None:
            facts["published_protocol"] = {"name": self.protocol, "overrides": profile.overrides}
        if texts is not None:
            facts["published_code"] = {"repository": texts.code.repository, "commit": texts.code.commit}
            options = [f"{name}={value}" for name, value in texts.serve_options.items()]
            if self.serve is not None:
                self.serve_option = [*options, *(self.serve_option or [])]  # the user's come last, and win
            elif options:
                typer.echo(f"the server must be started with --{' --'.join(options)}", err=True)
        if self.serve is not None:
            model = model or self.serve
            facts["served"] = {"model": self.serve, "digest": model_digest(self.serve)}
            server = self.server(self.out / "vllm.log", configured, fields, envelope)
        policy = self.policy(model=model, envelope=envelope)
        judge, retriever = self.judge(), self.retriever()
        with progress_bars("eval") as (progress,):
            result = asyncio.run(
                evaluate(
                    questions,
                    self.out,
                    configured,
                    policy,
                    server=server,
                    judge=judge,
                    retriever=retriever,
                    tool_model=self.tool_model(),
                    extractor=self.extractor,
                    settings={name: value for name, value in facts.items() if value},
                    controls=controls,
                    seed=self.seed,
                    max_attempts=self.attempts,
                    progress=progress,
                )
            )
        print(markdown({self.out.name: result}))
        _print_failures(result)
        return int(result["overall"]["failed"] == result["overall"]["items"])

    def _take_protocol(self, name: str, fields: dict[str, Any]) -> Applied:
        """Take over what a profile says and the command line does not.

        Raises:
            UsageError: there is no such profile or benchmark, or the profile is one of another method.
        """
        from verl_video_tools.data.formats import get_benchmark
        from verl_video_tools.evaluation.protocols import SUBTITLES, apply, get_protocol

        protocol = get_protocol(name)
        if self.method not in (None, protocol.method):
            raise UsageError(f"the protocol {name} is one of {protocol.method}, and --method is {self.method}")
        self.method = protocol.method
        explicit = {option: getattr(self, option) for option in self.explicit_options}
        explicit[SUBTITLES] = self.subtitles is not None
        benchmark = None if self.benchmark is None else get_benchmark(self.benchmark).name
        applied = apply(protocol, benchmark, explicit, fields)
        if applied.options.keys() & {"min_pixels", "max_pixels"} and not (self.processor or self.serve):
            raise UsageError(
                f"the protocol {name} bounds pixels, as the model's processor counts them: give --processor"
            )
        for option, value in applied.options.items():
            setattr(self, option, value)
        for option, change in applied.overrides.items():
            typer.echo(f"{name}: {option} is {change['used']}, published {change['published']}", err=True)
        return applied

    def _published_texts(self, checkout: Path) -> PublishedTexts:
        """What the protocol's checkpoints read.

        Raises:
            UsageError: no protocol is given, it names no code, or the checkout is another one.
        """
        from verl_video_tools.evaluation.protocols import PROTOCOLS, get_protocol
        from verl_video_tools.evaluation.published_code import read_published_texts

        protocol = None if self.protocol is None else get_protocol(self.protocol)
        if protocol is None or protocol.published_code is None:
            names = ", ".join(name for name, each in PROTOCOLS.items() if each.published_code is not None)
            raise UsageError(f"--published-code needs a protocol with published code: --protocol {names}")
        return read_published_texts(protocol.method, protocol.published_code, checkout)

    def _questions(self) -> Questions:
        from verl_video_tools.data.formats import BenchmarkFiles
        from verl_video_tools.evaluation.questions import questions_of_benchmark, questions_of_rows

        of_benchmark = (self.benchmark, self.annotations, self.videos, self.subtitles)
        if self.rows is not None and of_benchmark == (None, None, None, None):
            return questions_of_rows(self.rows)
        if self.rows is not None or self.benchmark is None or self.annotations is None or self.videos is None:
            raise UsageError("give either --rows, or --benchmark with --annotations and --videos")
        return questions_of_benchmark(self.benchmark, config_from(BenchmarkFiles, self))


def _print_failures(result: dict[str, Any]) -> None:
    failures = result["failures"]
    for failure in failures[:_MOST_FAILURES_SHOWN]:
        typer.echo(f"failed: {failure['item']}: {', '.join(failure['flags'])}: {failure['reason']}", err=True)
    if len(failures) > _MOST_FAILURES_SHOWN:
        typer.echo(f"and {len(failures) - _MOST_FAILURES_SHOWN} more; results.json lists all", err=True)


@command
class EvalTable:
    """Compare evaluations: tables and paired differences."""

    results: Annotated[list[Path], typer.Argument(help="Folders that `vvt eval` wrote.")]
    out: Annotated[Path, typer.Option(help="Folder for table.md, table.csv and paired.json.")]
    overwrite: Overwrite = False

    def run(self) -> None:
        from verl_video_tools.evaluation.items import read_items
        from verl_video_tools.evaluation.run import read_result
        from verl_video_tools.evaluation.tables import PAIRED, TABLES, compare, write_tables

        check_outputs((self.out / name for name in (*TABLES, PAIRED)), overwrite=self.overwrite)
        paths = _names(self.results)
        read = {name: read_result(path) for name, path in paths.items()}
        print(write_tables(read, self.out, compare({name: read_items(path) for name, path in paths.items()})))


def _names(paths: Sequence[Path]) -> dict[str, Path]:
    """Paths by short unique names: the folder's name, or the whole path where two folders have the same name."""
    names = [path.resolve().name for path in paths]
    return {str(path) if names.count(name) > 1 else name: path for name, path in zip(names, paths, strict=True)}


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
        from verl_video_tools.methods import get_method
        from verl_video_tools.methods.run_settings import read_run_settings, with_run_settings
        from verl_video_tools.rollout.chat_policy import PolicyConfig

        if (missing := read_clip(self.video).why_missing()) is not None:
            raise UsageError(missing)
        self.check_server()
        trained = read_run_settings(self.serve or self.processor, self.method)
        fields = with_run_settings(self.serve or self.processor, self.method, read_assignments(self.settings or []))
        method = get_method(self.method, **fields)
        envelope = self.envelope(trained)
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
                        partial(print, flush=True),
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
