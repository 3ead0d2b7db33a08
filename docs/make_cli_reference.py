"""Write docs/cli.md from the commands of `vvt`: python docs/make_cli_reference.py."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import typer

from verl_video_tools.cli.main import COMMANDS, DATA_COMMANDS, app
from verl_video_tools.cli.options import Asking

DOCS = Path(__file__).parent
PAGE = DOCS / "cli.md"
ABOUT = {
    "doctor": "doctor.md",
    "demo": "quickstart.md",
    "plan": "planning.md",
    "budget": "budgets.md",
    "view": "viewer.md",
    "report": "report.md",
    "eval": "evaluation.md",
    "eval-table": "evaluation.md#intervals-and-differences",
    "replay": "debugging.md",
    "chat": "chat.md",
    "check-method": "check-method.md",
    "data convert": "data.md#published-formats",
    "data validate": "data.md#checks",
    "data stats": "data.md#checks",
    "data probe": "video-backends.md",
    "data split": "data.md#videos-not-names",
    "data decontaminate": "data.md#videos-not-names",
    "data filter": "cold-start.md",
    "data generate": "cold-start.md#an-expert-behind-an-endpoint",
    "data reflect": "cold-start.md",
    "data logic": "cold-start.md",
    "data classify": "classify.md",
    "data export-sft": "cold-start.md",
    "data export-rft": "cold-start.md",
}
"""Pages that explain a command."""
HEAD = """# Command line

<!-- Written by docs/make_cli_reference.py -->

Every command of `vvt` with its arguments and options, as `vvt -h`, `vvt COMMAND -h` and `vvt data COMMAND -h` print
them. [Shell completion](installation.md#shell-completion) completes commands, options and names.

| exit code | meaning |
|---|---|
| 0 | done |
| 1 | the work failed, or a check found something |
| 2 | bad usage: one line on standard error says what, and what to do |
| 3 | `vvt replay`: the rollout was lost, such as by a video that cannot be read |

A command never writes over a file that it reads, and replaces another file only with `--overwrite`; `vvt view` and
`vvt report` redraw their own pages. Rows are parquet files: a name such as `rows.jsonl` is refused. Commands that
record rollouts, and `vvt eval`, continue in the file or folder of an earlier run of the same command.

Give a repeatable option once for each value. The value of `FIELD=VALUE` is read as JSON, or as text if it is not JSON.
"""
_SHARED = "Options for asking models"
_CLASSES = {**COMMANDS, **{f"data {name}": one for name, one in DATA_COMMANDS.items()}}
_ASKING = frozenset(field.name for field in fields(Asking))
_EXTRA = re.compile(r"^(.*?)(?: {2})?\[((?:default: |required|x[<>=]|[0-9.]+<).*)\]$", re.DOTALL)
_TYPES = {"str": "TEXT", "path": "PATH", "int": "N", "int range": "N", "float": "X", "float range": "X"}


def page() -> str:
    """The text of docs/cli.md."""
    root = typer.main.get_command(app)
    command = root.commands["eval"]
    context = typer.Context(command)
    asking = _table([one for one in command.get_params(context) if one.name in _ASKING], context)
    about = "Of every command that records rollouts of a model behind an endpoint.\n"
    return "\n".join([HEAD, *_commands(root, ""), f"## {_SHARED}\n", about, *asking])


def _commands(group: Any, prefix: str) -> Iterator[str]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _commands(command, f"{name} ")
        else:
            yield from _section(prefix + name, command)


def _section(name: str, command: Any) -> Iterator[str]:
    context = typer.Context(command, info_name=f"vvt {name}")
    parameters = [one for one in command.get_params(context) if one.name != "help" and one.get_help_record(context)]
    arguments = [one for one in parameters if one.param_type_name == "argument"]
    options = [one for one in parameters if one.param_type_name == "option"]
    words = [_signature(one, context)[0] for one in arguments]
    words = [word if one.required else f"[{word}]" for word, one in zip(words, arguments, strict=True)]
    yield f"## vvt {name}\n"
    yield f"`{' '.join(['vvt', name, *words, *(['[OPTIONS]'] if options else [])])}`\n"
    yield " ".join((command.help or "").split()) + "\n"
    if name in ABOUT:
        yield f"See [{_title(ABOUT[name])}]({ABOUT[name]}).\n"
    if arguments:
        yield "| argument | meaning |\n|---|---|"
        for one in arguments:
            shown, _, meaning = _signature(one, context)
            yield f"| `{shown}` | {meaning} |"
        yield ""
    shared = _ASKING if issubclass(_CLASSES[name], Asking) else frozenset()
    if options:
        yield from _table([one for one in options if one.name not in shared], context)
    if shared:
        yield f"It also takes the [options for asking models](#{_SHARED.lower().replace(' ', '-')}).\n"


def _table(options: Iterable[Any], context: typer.Context) -> Iterator[str]:
    yield "| option | default | meaning |\n|---|---|---|"
    for one in options:
        shown, default, meaning = _signature(one, context)
        yield f"| {', '.join(f'`{name}`' for name in shown.split(' / '))} | {default} | {meaning} |"
    yield ""


def _signature(parameter: Any, context: typer.Context) -> tuple[str, str, str]:
    """Names with the kind of value, default, and meaning."""
    names, text = parameter.get_help_record(context)
    found = _EXTRA.match(text)
    meaning, extra = (found[1], found[2]) if found else (text, "")
    default, sentences = "", []
    for part in re.split(r"; (?=default: |required$|x[<>=]|[0-9.]+<)", extra):
        if part == "required":
            default = part
        elif part.startswith("default: "):
            default = _default(part.removeprefix("default: "), parameter)
        elif bounds := re.fullmatch(r"([\d.]+)<=x<=([\d.]+)", part):  # bounds on one side are those that one expects
            sentences.append(f"{_plain(bounds[1])} to {_plain(bounds[2])}.")
    if not default and (told := re.search(r"[;.] [Dd]efault:? ((?:(?!\. ).)+?)\.?$", meaning)):
        meaning, default = meaning[: told.start()] + ".", told[1]
    if kind := re.search(r" <(.+)>$", names):
        element = re.sub(r"^list\[(.+)\]$", r"\1", kind[1])
        if element.lower() not in _TYPES:
            sentences.append(f"One of {', '.join(f'`{choice}`' for choice in element.split('|'))}.")
        names = names.replace(kind[0], " " + _TYPES.get(element.lower(), "NAME"))
    if parameter.param_type_name == "argument":
        names = parameter.metavar or parameter.name.upper()
    elif parameter.multiple and "epeatable" not in meaning:
        sentences.append("Repeatable.")
    meaning = " ".join([meaning.rstrip(".") + ".", *sentences])
    return names.replace("|", " or "), _as_code(default), _as_code(" ".join(meaning.split()).replace("|", "\\|"))


def _as_code(text: str) -> str:
    """With the options that it names as code."""
    return re.sub(r"(?<![`\w-])--[a-z][\w-]*", r"`\g<0>`", text)


def _default(value: str, parameter: Any) -> str:
    if value.startswith("("):  # in words
        return value[1:-1]
    return f"`--{value}`" if parameter.secondary_opts else f"`{_plain(value)}`"


def _plain(number: str) -> str:
    return re.sub(r"\.0$", "", number)


def _title(link: str) -> str:
    file, _, anchor = link.partition("#")
    lines = re.findall(r"^#+ (.+)$", (DOCS / file).read_text(encoding="utf-8"), flags=re.MULTILINE)
    named = [line for line in lines if re.sub(r"[^\w -]", "", line.lower()).replace(" ", "-") == anchor]
    return named[0] if anchor else lines[0]


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
