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

Values = Mapping[str, tuple[Any, str]]
"""Options of `vvt eval` by name, and fields of the method's config after `set.`: each published value, and where it
stands: section or table of the paper, file of the code, or an address."""


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """A published evaluation.

    Attributes:
        about: what was measured, in a line.
        table: where its results are printed.
        benchmarks: those of the table that there are readers for.
        for_benchmark: what differs for a benchmark, by its name.
        prompt, judge: how questions were put and open answers judged, which no option sets.
        cannot_match: what stays different whatever the options.
    """

    name: str
    about: str
    table: str
    method: str
    benchmarks: list[str]
    values: Values
    for_benchmark: Mapping[str, Values] = field(default_factory=dict)
    prompt: str
    judge: str
    cannot_match: list[str]

    def of(self, benchmark: str | None) -> dict[str, tuple[Any, str]]:
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
    published = {name: value for name, (value, _) in protocol.of(benchmark).items()}
    used = {**given_options, **{f"{FIELD}{name}": value for name, value in given_fields.items()}}
    overrides: dict[str, dict[str, Any]] = {}
    if benchmark is not None and benchmark not in protocol.benchmarks:
        overrides["benchmark"] = {"published": protocol.benchmarks, "used": benchmark}
    for name, value in used.items():
        # What the user sets and the profile leaves as it is by default differs from the published run, too.
        if name in published or name in CHANGES_ANSWERS or name.startswith(FIELD):
            default = "the method's default" if name.startswith(FIELD) else "not set"
            if (other := published.get(name, default)) != (list(value) if isinstance(value, tuple) else value):
                overrides[name] = {"published": other, "used": value}
    merged = {**published, **used}
    return Applied(
        {name: value for name, value in published.items() if name not in used and not name.startswith(FIELD)},
        {name.removeprefix(FIELD): value for name, value in merged.items() if name.startswith(FIELD)},
        dict(sorted(overrides.items())),
    )


def described(protocol: Protocol) -> str:
    """A profile in full: what it is of, values with their sources, and what it cannot match."""

    def listed(values: Values) -> list[str]:
        return [f"  {name} = {value} ({source})" for name, (value, source) in values.items()]

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
        *listed(protocol.values),
    ]
    for benchmark, values in protocol.for_benchmark.items():
        lines += [f"  for {benchmark}:", *(f"  {line}" for line in listed(values))]
    return "\n".join([*lines, "", "Cannot be matched:", *(f"  {reason}" for reason in protocol.cannot_match)])


def _read() -> dict[str, Protocol]:
    text = files(__package__).joinpath("protocols.yaml").read_text(encoding="utf-8")
    content = cast("dict[str, dict[str, Any]]", OmegaConf.to_container(OmegaConf.create(text)))
    return {name: Protocol(name=name, **fields) for name, fields in content.items()}


PROTOCOLS = _read()


def get_protocol(name: str) -> Protocol:
    """The profile of a name.

    Raises:
        UsageError: there is none.
    """
    if name not in PROTOCOLS:
        raise UsageError(f"there is no protocol {name!r}; choose one of: {', '.join(PROTOCOLS)}")
    return PROTOCOLS[name]
