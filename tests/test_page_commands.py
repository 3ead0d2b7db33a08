"""Every `vvt`, `make` and recipe that a page names: it exists, and so do its options and variables."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from itertools import takewhile
from pathlib import Path

import typer

from tests.page_commands import PLACEHOLDER, REPO, Command, page_commands
from verl_video_tools.cli.main import app
from verl_video_tools.launch.environment import NAMES

ROOT = typer.main.get_command(app)
MAKEFILE = (REPO / "Makefile").read_text(encoding="utf-8")
TARGETS = {
    match[1]: match[2]
    for match in re.finditer(r"^([a-z][\w-]*):.*\n((?:\t.*\n|[A-Z_]+ .*\n)*)", MAKEFILE, flags=re.MULTILINE)
}
"""Lines of each target of the Makefile."""


@cache
def commands() -> list[Command]:
    return page_commands()


def after(command: Command, program: str) -> list[str] | None:
    """The words behind a program, wherever it stands, such as in `docker run IMAGE vvt doctor`."""
    words = list(command.words)
    return words[words.index(program) + 1 :] if program in words else None


# ---------------------------------------------------------------------------------------------------------------- vvt


def fault_of(words: list[str], whole: bool) -> str | None:
    """Why `vvt` would not take these words; None if it would."""
    group, remaining = ROOT, [word.strip("[]") for word in words]  # brackets of what may be left out
    while remaining and remaining[0] in getattr(group, "commands", {}):
        group = group.commands[remaining.pop(0)]
    if hasattr(group, "commands"):
        known = {"-h", "--help", "COMMAND", "...", *(option for one in group.params for option in one.opts)}
        return f"no command {remaining[0]}" if remaining and remaining[0] not in known else None
    given = [word for word in remaining if word != "..."]
    with_value = {option for one in group.params if not getattr(one, "is_flag", True) for option in one.opts}
    if not whole and given and given[-1] in with_value:  # an option named without its value
        given.append(PLACEHOLDER)
    try:
        group.make_context("vvt", given)
    except typer.Exit:  # help
        return None
    except typer.TyperException as error:
        told = error.format_message()
        is_left_out = told.startswith("Missing ") and (not whole or "..." in remaining)
        is_letter = not whole and "should be a valid" in told  # `--ulysses n`
        return None if is_left_out or is_letter else told
    return None


def test_vvt_takes_its_options() -> None:
    named = [(command, words) for command in commands() if (words := after(command, "vvt")) is not None]
    assert len(named) > 100
    found = [f"{command}: {fault}" for command, words in named if (fault := fault_of(words, command.whole))]
    assert found == []


# --------------------------------------------------------------------------------------------------------------- make


def text_of_target(target: str) -> str:
    """Its lines, with the programs that they start, and what every target reads."""
    lines = TARGETS[target]
    files = [REPO / name for name in re.findall(r"(?:bash|python) ([\w/.-]+\.(?:sh|py))", lines)]
    for module in re.findall(r"python -m ((?:benchmarks|tests)\.\w+)", lines):
        path = REPO / module.replace(".", "/")
        files += [path.with_suffix(".py")] if path.with_suffix(".py").is_file() else path.glob("*.py")
    if "PYTEST" in lines:
        files += (REPO / "tests").rglob("*.py")
    texts = [text_of_script(path) if path.suffix == ".sh" else path.read_text(encoding="utf-8") for path in files]
    installs = (REPO / "requirements" / "install.sh").read_text(encoding="utf-8")
    return "\n".join([lines, *texts, installs, MAKEFILE.partition("help:")[0]])


def faults_of_make(command: Command) -> Iterator[str]:
    words = command.words[1:]
    targets = [word for word in words if "=" not in word and word != "..."]
    variables = [*command.variables, *(word.partition("=")[0] for word in words if "=" in word)]
    for target in targets:
        if target not in TARGETS:
            yield f"{command}: no target {target}"
            continue
        text = text_of_target(target)
        yield from (f"{command}: {name} means nothing" for name in variables if not re.search(rf"\b{name}\b", text))


def test_make_has_targets_and_variables() -> None:
    named = [command for command in commands() if command.words[0] == "make"]
    assert len(named) > 20
    assert [fault for command in named for fault in faults_of_make(command)] == []


# ------------------------------------------------------------------------------------------------------------ recipes

USERS = {"PATH", "CUDA_VISIBLE_DEVICES", "RAY_API_SERVER_ADDRESS", "PYTHONPATH", "WANDB_MODE", "VVT_JUDGE_API_KEY"}
"""Variables that other programs read."""
TRAIN = re.compile(r"(verl_video_tools\.cli|vvt) train ")


@cache
def text_of_script(script: Path) -> str:
    """A script with those that it sources or runs, beside it or in recipes."""
    texts: dict[Path, str] = {}
    waiting = [script]
    while waiting:
        path = waiting.pop()
        if path in texts or not path.is_file():
            continue
        texts[path] = path.read_text(encoding="utf-8")
        for name in re.findall(r"([\w-]+\.sh)\b", re.sub(r"(?m)^\s*#.*$", "", texts[path])):
            waiting += [path.parent / name, REPO / "recipes" / name]
    return "\n".join(texts.values())


def faults_of_script(command: Command) -> Iterator[str]:
    script = REPO / command.words[1]
    if not script.is_file():
        yield f"{command}: no such script"
        return
    text = text_of_script(script)
    if script.name == "submit.sh":  # variables, the recipe, its options
        inner = list(command.words[2:])
        names = [word.partition("=")[0] for word in inner if re.match(r"[A-Z_]+=", word)]
        recipe = next(word for word in inner if "=" not in word)
        variables, text = (*command.variables, *names), text_of_script(REPO / "recipes" / f"{recipe}.sh")
    else:
        variables = command.variables
    known = USERS | set(NAMES) if TRAIN.search(text) else USERS
    for name in set(variables) - known:
        if not re.search(rf"\$\{{?#?!?{name}\b", text):
            yield f"{command}: {name} means nothing to it"


def test_scripts_and_their_variables_exist() -> None:
    named = [command for command in commands() if command.words[0] == "bash" and command.words[1].endswith(".sh")]
    own = [command for command in named if re.match(r"(recipes|examples|requirements)/", command.words[1])]
    assert len(own) > 20
    others = {command.words[1] for command in named} - {command.words[1] for command in own}
    assert others <= {"spotter_grpo.sh"}, "a page's own script"
    assert [fault for command in own for fault in faults_of_script(command)] == []


# ------------------------------------------------------------------------------------------------------------ modules


def source_of(program: str) -> str | None:
    """Text of one of our modules or programs; None if there is none."""
    path = REPO / program if program.endswith(".py") else REPO / program.replace(".", "/")
    if path.is_dir():
        return "\n".join(one.read_text(encoding="utf-8") for one in path.rglob("*.py"))
    path = path if program.endswith(".py") else path.with_suffix(".py")
    return path.read_text(encoding="utf-8") if path.is_file() else None


def faults_of_python(command: Command) -> list[str]:
    words = list(takewhile(lambda word: word != "--", command.words[1:]))  # what follows is another program's
    program = next((word for word in words if word != "-m"), "")
    if not re.match(r"(benchmarks|tests|examples|docs|requirements|verl_video_tools)[./]", program):
        return []  # other packages, or code on the command line
    source = source_of(program)
    if source is None:
        return [f"{command}: no {program}"]
    options = {word.partition("=")[0] for word in words if re.match(r"--[a-z]", word)}
    return [f"{command}: {option} is unknown" for option in sorted(options) if f'"{option}"' not in source]


def test_programs_and_their_options_exist() -> None:
    named = [command for command in commands() if re.fullmatch(r"python3?", command.words[0])]
    assert len(named) > 20
    assert [fault for command in named for fault in faults_of_python(command)] == []
