"""The options of the commands that ask a model behind an endpoint, written once, and what they stand for."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from verl_video_tools.core.assignments import read_assignments

if TYPE_CHECKING:
    from verl_video_tools.rollout.chat_policy import PolicyConfig
    from verl_video_tools.services.judge import JudgeConfig
    from verl_video_tools.services.retrieval import RetrievalService

Model = Annotated[str | None, typer.Option(metavar="NAME", help="Model to ask; default: the first that is served.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="FIELD=VALUE", help="Override a field of the method's config; repeatable."),
]
Temperature = Annotated[float, typer.Option(min=0.0, help="Temperature of sampling.")]
Seed = Annotated[int | None, typer.Option(help="Seed of sampling, for endpoints that take one.")]
DeadlineSeconds = Annotated[float, typer.Option(min=0.1, help="Time for one turn with all its attempts.")]
APIKeyEnv = Annotated[str, typer.Option(metavar="NAME", help="Environment variable that holds the endpoint's key.")]
Retrieval = Annotated[
    list[str] | None,
    typer.Option(metavar="FIELD=VALUE", help="Encoder that finds frames by text, such as model=DIR; repeatable."),
]


@dataclass(frozen=True, kw_only=True)
class Asking:
    """What the user chose about asking: a field for each option that `asks` gives a command."""

    concurrency: Annotated[int, typer.Option(min=1, help="Rollouts under way at a time.")] = 32
    deadline_seconds: DeadlineSeconds = 600.0
    jpeg_quality: Annotated[
        int | None, typer.Option(min=1, max=95, help="Send pictures as JPEG of this quality; default: PNG.")
    ] = None
    native_reasoning: Annotated[
        bool, typer.Option(help="Take native reasoning apart from what the model says; off: read turns to the letter.")
    ] = True
    api_key_env: APIKeyEnv = "VVT_API_KEY"
    judge_base_url: Annotated[
        str | None, typer.Option(metavar="URL", help="Endpoint of a judge, for open questions.")
    ] = None
    judge_model: Annotated[
        str | None, typer.Option(metavar="NAME", help="Model to judge with; default: the first served.")
    ] = None
    retrieval: Retrieval = None

    def policy(self, base_url: str | None, model: str | None, temperature: float) -> PolicyConfig:
        """A model that is asked so, at an endpoint.

        Raises:
            UsageError: a value outside its range.
        """
        from verl_video_tools.rollout.chat_policy import PolicyConfig

        return PolicyConfig(
            base_url=base_url,
            model=model,
            concurrency=self.concurrency,
            temperature=temperature,
            deadline_seconds=self.deadline_seconds,
            jpeg_quality=self.jpeg_quality,
            native_reasoning=self.native_reasoning,
            api_key_env=self.api_key_env,
        )

    def judge(self) -> JudgeConfig | None:
        """The judge; None where its endpoint is not given."""
        from verl_video_tools.services.judge import JudgeConfig

        return (
            None if self.judge_base_url is None else JudgeConfig(base_url=self.judge_base_url, model=self.judge_model)
        )

    def retrieval_fields(self) -> dict[str, Any]:
        """The encoder's config. Raises UsageError for an option that is no assignment."""
        return read_assignments(self.retrieval or [], "--retrieval")

    def retriever(self) -> RetrievalService | None:
        """The encoder; None where nothing is said of it.

        Raises:
            UsageError: an unknown field, a wrong value, or an encoder that cannot be loaded.
        """
        from verl_video_tools.services.retrieval import local_from_fields

        return local_from_fields(self.retrieval_fields())


def asks(command: Callable[..., int]) -> Callable[..., int]:
    """Gives a command, in place of its parameter `asking`, an option for each field of `Asking`.

    Typer makes options from a function's signature and has no groups of them.
    """
    hints = get_type_hints(Asking, include_extras=True)
    own = inspect.signature(command, eval_str=True)
    added = [
        inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=hints[field.name]
        )
        for field in fields(Asking)
    ]
    kept = [parameter for name, parameter in own.parameters.items() if name != "asking"]

    @wraps(command)
    def with_options(**options: Any) -> int:
        asking = Asking(**{parameter.name: options.pop(parameter.name) for parameter in added})
        return command(**options, asking=asking)

    parameters = [*kept, *added]
    with_options.__signature__ = own.replace(  # type: ignore[attr-defined]  # mypy does not know it of functions
        parameters=[parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in parameters]
    )
    with_options.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return with_options
