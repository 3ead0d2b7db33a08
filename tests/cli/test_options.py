"""Options that several commands share, as one object."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Annotated

import pytest
import typer

from verl_video_tools.cli.options import Asking, Temperature
from verl_video_tools.core.errors import UsageError


@dataclass(kw_only=True)
class Example(Asking):
    """A command."""

    name: Annotated[str, typer.Argument()]
    temperature: Temperature = 1.0


def call(*arguments: str) -> Asking:
    app = typer.Typer(add_completion=False)
    app.command()(Example)
    example = app(args=["x", *arguments], standalone_mode=False)
    assert example.name == "x"
    return Asking(**{field.name: getattr(example, field.name) for field in fields(Asking)})


def test_defaults_and_values_arrive() -> None:
    assert call("--temperature", "0.5") == Asking()
    asking = call("--concurrency=3", "--judge-base-url=http://j/v1", "--judge-model=m", "--retrieval", "model=DIR")
    assert asking == Asking(concurrency=3, judge_base_url="http://j/v1", judge_model="m", retrieval=["model=DIR"])


def test_what_they_stand_for() -> None:
    asking = Asking(concurrency=3, deadline_seconds=5.0, jpeg_quality=90, api_key_env="KEY")
    policy = asking.policy(base_url="http://h/v1", model="m", temperature=0.5)
    assert (policy.base_url, policy.model, policy.temperature) == ("http://h/v1", "m", 0.5)
    assert (policy.concurrency, policy.deadline_seconds, policy.jpeg_quality) == (3, 5.0, 90)
    assert (policy.api_key_env, asking.judge(), asking.retriever()) == ("KEY", None, None)
    judge = Asking(judge_base_url="http://j/v1", judge_model="m").judge()
    assert judge is not None and (judge.base_url, judge.model) == ("http://j/v1", "m")
    with pytest.raises(UsageError, match="--retrieval: expected field=value, got 'DIR'"):
        Asking(retrieval=["DIR"]).retriever()


def test_a_value_outside_its_range_is_bad_usage() -> None:
    with pytest.raises(typer.TyperException, match="greater than or equal to 1"):
        call("--concurrency=0")
