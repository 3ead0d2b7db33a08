"""Options that several commands share, as one object."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from typing import Annotated

import pytest
import typer

from verl_video_tools.cli.options import Asking, Temperature
from verl_video_tools.core.errors import UsageError
from verl_video_tools.services.judge import JudgeConfig


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
    asking = call("--concurrency=3", "--judge-base-url=http://j/v1", "--judge=model=m", "--retrieval", "model=DIR")
    assert asking == Asking(
        concurrency=3, judge_base_url="http://j/v1", judge_settings=["model=m"], retrieval=["model=DIR"]
    )


def test_what_they_stand_for() -> None:
    asking = Asking(concurrency=3, deadline_seconds=5.0)
    policy = asking.policy(base_url="http://h/v1", model="m", temperature=0.5)
    assert (policy.base_url, policy.model, policy.temperature) == ("http://h/v1", "m", 0.5)
    assert (policy.concurrency, policy.deadline_seconds) == (3, 5.0)
    assert (asking.judge(), asking.retriever(), asking.tool_model()) == (None, None, None)
    judge = Asking(judge_base_url="http://j/v1", judge_settings=["model=m"]).judge()
    assert judge is not None and (judge.base_url, judge.model) == ("http://j/v1", "m")
    with pytest.raises(UsageError, match="--retrieval: expected field=value, got 'DIR'"):
        Asking(retrieval=["DIR"]).retriever()


def test_every_field_of_the_judge_can_be_given() -> None:
    fields = {
        "prompt_file": "grade.txt",
        "profile": "longvt",
        "temperature": 0.3,
        "max_tokens": None,
        "cache_dir": "verdicts",
        "deadline_seconds": 5,
        "concurrency": 4,
    }
    given = [f"{name}={json.dumps(value)}" for name, value in fields.items()]
    asking = call("--judge-base-url=http://j/v1", *(part for field in given for part in ("--judge", field)))
    assert asking.judge() == JudgeConfig(base_url="http://j/v1", **fields)
    several = Asking(judge_settings=['base_url=["http://j/v1", "http://k/v1"]', "model=m"]).judge()
    assert several is not None and (several.base_urls, several.model) == (("http://j/v1", "http://k/v1"), "m")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--judge", "temprature=1"], "JudgeConfig has no field 'temprature'"),
        (["--judge", "profile=kind"], "JudgeConfig.profile takes"),
        (["--judge", "temperature=-1"], "JudgeConfig.temperature must be at least 0"),
        (["--judge", "base_url=http://k/v1"], "give either --judge-base-url or --judge base_url="),
    ],
)
def test_wrong_fields_of_the_judge(options: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        call("--judge-base-url=http://j/v1", *options).judge()


def test_a_judge_without_an_endpoint() -> None:
    assert call().judge() is None
    for options in (["--judge", "model=m"], ["--judge", "profile=longvt"]):
        with pytest.raises(UsageError, match="a judge needs an endpoint: give --judge-base-url"):
            call(*options).judge()


def test_a_value_outside_its_range_is_bad_usage() -> None:
    with pytest.raises(typer.TyperException, match="greater than or equal to 1"):
        call("--concurrency=0")
