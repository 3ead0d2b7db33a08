"""Profiles of published evaluations (`protocols.yaml`): options of `vvt eval` with their sources, and in words the
differences that no option removes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any, cast

from omegaconf import OmegaConf

from verl_video_tools.core.errors import UsageError
from verl_video_tools.evaluation.published_code import PublishedCode

FIELD = "set."
"""Prefix of a field of the method's config, which `--set` sets."""
CHANGES_ANSWERS = frozenset(
    {
        *("temperature", "top_p", "attempts", "extractor"),
        *("min_pixels", "max_pixels", "jpeg_quality", "control"),
    }
)
"""Options that change answers, so that setting one is a difference even if a profile does not name it."""
SUBTITLES = "subtitles"
"""Name of the value that says whether questions have subtitles; the user gives their folder."""

Values = Mapping[str, tuple[Any, str]]
"""Published values of options of `vvt eval`, and with `set.` of fields of the method's config. Each has its source: a
section or table of the paper, a file of the code, or an address."""


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """A published evaluation.

    Attributes:
        about: what was measured, in one line.
        table: the table with the published results.
        benchmarks: benchmarks of the table that are built in.
        for_benchmark: values that differ for a benchmark, by its name.
        prompt, judge: the published prompt and judge, which no option sets.
        cannot_match: differences that no option removes.
        published_code: the authors' code that prompts and messages can be read from; None: it is not public, or no
            reader is built in.
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
    published_code: PublishedCode | None = None

    def of(self, benchmark: str | None) -> dict[str, tuple[Any, str]]:
        """The values for a benchmark, or for rows of a file (None)."""
        return {**self.values, **self.for_benchmark.get(benchmark or "", {})}


@dataclass(frozen=True)
class Applied:
    """A profile merged with the user's options.

    Attributes:
        options: the profile's values of options that the user did not set.
        fields: fields of the method's config.
        overrides: published and used value of each option that the user set to another value.
    """

    options: dict[str, Any]
    fields: dict[str, Any]
    overrides: dict[str, dict[str, Any]]


def apply(
    protocol: Protocol, benchmark: str | None, user_options: Mapping[str, Any], user_fields: Mapping[str, Any]
) -> Applied:
    """Merge a profile with the user's options, which take precedence.

    Args:
        benchmark: name of the benchmark; None for rows of a file.
        user_options: options on the command line, by name, and `subtitles`: whether there is a folder of them.
        user_fields: fields of `--set`.
    """
    published = {name: value for name, (value, _) in protocol.of(benchmark).items()}
    used = {**user_options, **{f"{FIELD}{name}": value for name, value in user_fields.items()}}
    overrides: dict[str, dict[str, Any]] = {}
    if benchmark is not None and benchmark not in protocol.benchmarks:
        overrides["benchmark"] = {"published": protocol.benchmarks, "used": benchmark}
    for name, value in used.items():
        # A value that the profile leaves at its default also differs from the published run.
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
    """A profile in full, with the sources of its values and the remaining differences."""

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
        *_described_code(protocol.published_code),
        "",
        "Options and fields (set.) with their sources:",
        *listed(protocol.values),
    ]
    for benchmark, values in protocol.for_benchmark.items():
        lines += [f"  for {benchmark}:", *(f"  {line}" for line in listed(values))]
    return "\n".join([*lines, "", "Cannot be matched:", *(f"  {reason}" for reason in protocol.cannot_match)])


def _described_code(code: PublishedCode | None) -> list[str]:
    if code is None:
        return []
    listed = [f"Checkpoints (--published-code DIR): {', '.join(code.checkpoints)}"]
    return [*listed, f"  DIR: {code.repository} at commit {code.commit}, of which are read: {', '.join(code.files)}"]


def _read() -> dict[str, Protocol]:
    text = files(__package__).joinpath("protocols.yaml").read_text(encoding="utf-8")
    content = cast("dict[str, dict[str, Any]]", OmegaConf.to_container(OmegaConf.create(text)))
    for fields in content.values():
        if code := fields.get("published_code"):
            fields["published_code"] = PublishedCode(**code)
    return {name: Protocol(name=name, **fields) for name, fields in content.items()}


PROTOCOLS = _read()


def get_protocol(name: str) -> Protocol:
    """The profile with this name.

    Raises:
        UsageError: there is none.
    """
    if name not in PROTOCOLS:
        raise UsageError(f"there is no protocol {name!r}; choose one of: {', '.join(PROTOCOLS)}")
    return PROTOCOLS[name]
