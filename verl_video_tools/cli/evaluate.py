"""`vvt eval`: read the options, evaluate, print tables and what failed."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer

from verl_video_tools.cli.files import check_outputs
from verl_video_tools.cli.list_names import names_of
from verl_video_tools.cli.options import BASE_URL, Asking, Model, Seed, Settings, command, config_from
from verl_video_tools.cli.serving import Serve, ServeOption, announced_server, check_server
from verl_video_tools.core.assignments import read_assignments
from verl_video_tools.core.errors import UsageError
from verl_video_tools.evaluation import Control

if TYPE_CHECKING:
    from verl_video_tools.evaluation.protocols import Applied
    from verl_video_tools.evaluation.questions import Questions

_MOST_FAILURES_SHOWN = 20


@command
class Evaluate(Asking):
    """Evaluate a model with the loop and graders of training. Exits 1 if all items failed."""

    out: Annotated[Path, typer.Option(help="Folder for rollouts and results; an evaluation in it is continued.")]
    method: Annotated[
        str | None,
        typer.Option(
            help="Method whose loop, tools and prompts run; `direct` for none.", autocompletion=names_of("methods")
        ),
    ] = None
    protocol: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Options of a published evaluation; options given here override them.",
            autocompletion=names_of("protocols"),
        ),
    ] = None
    rows: Annotated[Path | None, typer.Option(metavar="ROWS.parquet", help="Rows with the questions.")] = None
    benchmark: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Or a benchmark, such as video-mme, or your own as my_module:MyBenchmark.",
            autocompletion=names_of("benchmarks"),
        ),
    ] = None
    annotations: Annotated[Path | None, typer.Option(help="The benchmark's annotation file, or folder.")] = None
    videos: Annotated[Path | None, typer.Option(help="Folder of the benchmark's videos.")] = None
    subtitles: Annotated[Path | None, typer.Option(help="Folder of its subtitles; default: ask without.")] = None
    subtitle_frames: Annotated[
        int | None, typer.Option(min=1, help="Only subtitles shown at this number of evenly spaced frames.")
    ] = None
    extractor: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Published rule that also reads answers; default: the benchmark's.",
            autocompletion=names_of("extractors"),
        ),
    ] = None
    where: Annotated[
        list[str] | None,
        typer.Option(metavar="FIELD=VALUE", help="Only questions with this value, such as duration=long; repeatable."),
    ] = None
    limit: Annotated[int | None, typer.Option(min=1, help="Number of questions, the same ones in every run.")] = None
    repeats: Annotated[int, typer.Option(min=1, help="Times that each question is asked, each with its own seed.")] = 1
    control: Annotated[
        list[Control] | None,
        typer.Option(help="Change what is asked, to see what accuracy depends on; repeatable."),
    ] = None
    base_url: Annotated[list[str] | None, BASE_URL] = None
    serve: Serve = None
    serve_option: ServeOption = None
    model: Model = None
    processor: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="Folder or name of the model whose processor sizes images."),
    ] = None
    min_pixels: Annotated[int | None, typer.Option(min=1, help="As data.mm_processor_kwargs in training.")] = None
    max_pixels: Annotated[int | None, typer.Option(min=1, help="As data.mm_processor_kwargs in training.")] = None
    settings: Settings = None
    temperature: Annotated[float, typer.Option(min=0.0, help="Sampling temperature.")] = 0.0
    seed: Seed = None
    attempts: Annotated[
        int,
        typer.Option(min=1, help="Most attempts at a question, where the method verifies answers (framethinker: 3)."),
    ] = 1

    given_options: ClassVar[frozenset[str]] = frozenset()
    """Those of the command line, which a protocol does not set."""

    def run(self) -> int:
        from verl_video_tools.cli.progress import progress_bars
        from verl_video_tools.evaluation.model import envelope_of_model, model_digest
        from verl_video_tools.evaluation.questions import controlled, scoped
        from verl_video_tools.evaluation.run import PROTOCOL, WRITTEN, evaluate
        from verl_video_tools.evaluation.tables import markdown
        from verl_video_tools.methods import get_method
        from verl_video_tools.methods.run_settings import NAME, RunSettings, read_run_settings, with_run_settings

        if not (self.out / PROTOCOL).exists():  # else the folder of an evaluation, which goes on there
            check_outputs(texts=(self.out / name for name in WRITTEN))
        check_server("--base-url", self.base_url, self.serve, self.serve_option)
        fields = read_assignments(self.settings or [])
        profile = None if self.protocol is None else self._take_protocol(self.protocol, fields)
        if self.method is None:
            raise UsageError("give --method, or --protocol, which has one")
        folder = self.serve or self.processor
        trained = read_run_settings(folder, self.method)
        if profile is None:
            given = with_run_settings(folder, self.method, fields)
        else:  # a published evaluation is one whole: nothing of the model's own run is mixed into it
            given = profile.fields
            if trained != RunSettings():
                told = (
                    f"{self.protocol} takes the place of {Path(folder or '') / NAME}; --set gives single fields of it"
                )
                typer.echo(told, err=True)
            trained = RunSettings()
        configured = get_method(self.method, **given)
        whole = self._questions()
        questions = scoped(
            whole,
            where=read_assignments(self.where or [], "--where"),
            limit=self.limit,
            repeats=self.repeats,
        )
        if len(questions.faults) < len(whole.faults):
            told = f"entries that cannot be read, of which none is asked: {len(whole.faults)}"
            typer.echo(told, err=True)
        controls = sorted(set(self.control or ()))  # in whatever order they are given, it is the same evaluation
        configured, questions = controlled(configured, questions, controls, self.seed)
        if questions.num_with_subtitles is not None:
            typer.echo(
                f"{questions.num_with_subtitles} of {questions.num_questions} questions have subtitles", err=True
            )
        bounds = self.min_pixels or trained.min_pixels, self.max_pixels or trained.max_pixels
        envelope = envelope_of_model(self.processor or self.serve, *bounds)
        model, server = self.model, None
        options = read_assignments(self.serve_option or [], "--serve-option")
        facts: dict[str, Any] = {"retrieval": self.retrieval_fields(), "serve_options": options}
        if profile is not None:
            facts["published_protocol"] = {"name": self.protocol, "overrides": profile.overrides}
        if self.serve is not None:
            model = model or self.serve
            facts["served"] = {"model": self.serve, "digest": model_digest(self.serve)}
            server = announced_server(self.serve, self.out / "vllm.log", configured, given, envelope, options, model)
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
        if name := result.get("submission"):
            typer.echo(f"answers to hand in: {self.out / name}", err=True)
            if questions.scope is not None:
                typer.echo(f"{name} is of a part of the questions only (--where, --limit)", err=True)
        _tell_failures(result)
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
        given = {option: getattr(self, option) for option in self.given_options} | {
            SUBTITLES: self.subtitles is not None
        }
        benchmark = None if self.benchmark is None else get_benchmark(self.benchmark).name
        applied = apply(protocol, benchmark, given, fields)
        if applied.options.keys() & {"min_pixels", "max_pixels"} and not (self.processor or self.serve):
            raise UsageError(
                f"the protocol {name} bounds pixels, as the model's processor counts them: give --processor"
            )
        for option, value in applied.options.items():
            setattr(self, option, value)
        for option, change in applied.overrides.items():
            typer.echo(f"{name}: {option} is {change['used']}, published {change['published']}", err=True)
        return applied

    def _questions(self) -> Questions:
        from verl_video_tools.data.formats import BenchmarkFiles
        from verl_video_tools.evaluation.questions import questions_of_benchmark, questions_of_rows

        if self.subtitle_frames is not None and self.subtitles is None:
            raise UsageError("--subtitle-frames belongs to --subtitles")
        of_benchmark = (self.benchmark, self.annotations, self.videos, self.subtitles)
        if self.rows is not None and of_benchmark == (None, None, None, None):
            return questions_of_rows(self.rows)
        if self.rows is not None or self.benchmark is None or self.annotations is None or self.videos is None:
            raise UsageError("give either --rows, or --benchmark with --annotations and --videos")
        return questions_of_benchmark(self.benchmark, config_from(BenchmarkFiles, self))


def _tell_failures(result: dict[str, Any]) -> None:
    failures = result["failures"]
    for failure in failures[:_MOST_FAILURES_SHOWN]:
        typer.echo(f"failed: {failure['item']}: {', '.join(failure['flags'])}: {failure['reason']}", err=True)
    if len(failures) > _MOST_FAILURES_SHOWN:
        typer.echo(f"and {len(failures) - _MOST_FAILURES_SHOWN} more; results.json lists all", err=True)
