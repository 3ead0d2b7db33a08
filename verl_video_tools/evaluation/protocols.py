"""Protocol profiles: the options of a published evaluation, by name, each with its source.

A profile sets what `vvt eval` has an option for, and says in words what it cannot match. `protocols.yaml` has the
profiles.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any, cast

from omegaconf import OmegaConf

from verl_video_tools.core.errors import UsageError

FIELD = "set."
"""Before the name of a field of the method's config, which `--set` sets."""
CHANGES_ANSWERS = frozenset(
    {
        *("temperature", "top_p", "attempts", "extractor"),
        *("min_pixels", "max_pixels", "jpeg_quality", "control"),
    }
)
"""Options that make another evaluation of it also where a profile does not name them."""
SUBTITLES = "subtitles"
"""Name of the value that says whether questions are asked with subtitles; their folder is the user's to give."""


@dataclass(frozen=True, slots=True)
class Value:
    """A published value and where it stands: section or table of the paper, file of the code, or an address."""

    value: Any
    source: str


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """A published evaluation.

    Attributes:
        about: what was measured, in a line.
        table: where its results are printed.
        benchmarks: those of the table that there are readers for.
        values: options of `vvt eval` by name; fields of the method's config after `set.`.
        for_benchmark: what differs for a benchmark, by its name.
        prompt, judge: how questions were put and open answers judged, which no option sets.
        cannot_match: what stays different whatever the options.
    """

    name: str
    about: str
    table: str
    method: str
    benchmarks: list[str]
    values: Mapping[str, Value]
    for_benchmark: Mapping[str, Mapping[str, Value]] = field(default_factory=dict)
    prompt: str
    judge: str
    cannot_match: list[str]

    def of(self, benchmark: str | None) -> dict[str, Value]:
        """The values for a benchmark; None, for rows of a file, takes those for all."""
        return {**self.values, **self.for_benchmark.get(benchmark or "", {})}


@dataclass(frozen=True)
class Applied:
    """A profile merged with what the user gave.

    Attributes:
        options: values of options that the user did not give.
        fields: of the method's config.
        overrides: published and used value of each option that the user gave otherwise.
    """

    options: dict[str, Any]
    fields: dict[str, Any]
    overrides: dict[str, dict[str, Any]]


def apply(
    protocol: Protocol, benchmark: str | None, given_options: Mapping[str, Any], given_fields: Mapping[str, Any]
) -> Applied:
    """Merge a profile with what the user gave, which wins.

    Args:
        benchmark: name of the benchmark; None for rows of a file.
        given_options: options on the command line, by name; `subtitles` whether there are any, given or not.
        given_fields: fields of `--set`.
    """
    values = protocol.of(benchmark)
    options = {name: value.value for name, value in values.items() if not name.startswith(FIELD)}
    fields = {name.removeprefix(FIELD): value.value for name, value in values.items() if name.startswith(FIELD)}
    published = {**options, **{f"{FIELD}{name}": value for name, value in fields.items()}}
    used = {**given_options, **{f"{FIELD}{name}": value for name, value in given_fields.items()}}
    overrides = {
        name: {"published": value, "used": used[name]}
        for name, value in published.items()
        if name in used and _plain(used[name]) != _plain(value)
    }
    if benchmark is not None and benchmark not in protocol.benchmarks:
        overrides["benchmark"] = {"published": list(protocol.benchmarks), "used": benchmark}
    # What the user sets and the profile leaves as it is by default differs from the published run, too.
    for name in used.keys() - published.keys():
        if name.startswith(FIELD):
            overrides[name] = {"published": "the method's default", "used": used[name]}
        elif name in CHANGES_ANSWERS:
            overrides[name] = {"published": "not set", "used": used[name]}
    return Applied(
        {name: value for name, value in options.items() if name not in given_options},
        {**fields, **given_fields},
        dict(sorted(overrides.items())),
    )


def described(protocol: Protocol) -> str:
    """A profile in full: what it is of, values with their sources, and what it cannot match."""
    lines = [
        protocol.about,
        "",
        f"Results: {protocol.table}",
        f"Method: {protocol.method}",
        f"Benchmarks: {', '.join(protocol.benchmarks)}",
        f"Prompt: {protocol.prompt}",
        f"Judge: {protocol.judge}",
        "",
        "Options and fields (set.) with their sources:",
        *_described_values(protocol.values),
    ]
    for benchmark, values in protocol.for_benchmark.items():
        lines += [f"  for {benchmark}:", *(f"  {line}" for line in _described_values(values))]
    return "\n".join([*lines, "", "Cannot be matched:", *(f"  {reason}" for reason in protocol.cannot_match)])


def _described_values(values: Mapping[str, Value]) -> list[str]:
    return [f"  {name} = {_plain(value.value)} ({value.source})" for name, value in values.items()]


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _read() -> dict[str, Protocol]:
    text = files(__package__).joinpath("protocols.yaml").read_text(encoding="utf-8")
    content = cast("dict[str, dict[str, Any]]", OmegaConf.to_container(OmegaConf.create(text)))
    return {name: _protocol(name, **fields) for name, fields in content.items()}


def _protocol(name: str, values: Any, for_benchmark: Any = None, **texts: Any) -> Protocol:
    by_benchmark = {benchmark: _values(each) for benchmark, each in (for_benchmark or {}).items()}
    return Protocol(name=name, values=_values(values), for_benchmark=by_benchmark, **texts)


def _values(entries: Mapping[str, Any]) -> dict[str, Value]:
    return {name: Value(*entry) for name, entry in entries.items()}


PROTOCOLS = _read()


def get_protocol(name: str) -> Protocol:
    """The profile of a name.

    Raises:
        UsageError: there is none.
    """
    if name not in PROTOCOLS:
        raise UsageError(f"there is no protocol {name!r}; choose one of: {', '.join(PROTOCOLS)}")
    return PROTOCOLS[name]
