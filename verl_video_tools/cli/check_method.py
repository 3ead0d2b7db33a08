"""`vvt check-method`: one line per property of a method, and exit code 1 if one does not hold."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from verl_video_tools.cli.names import names_of
from verl_video_tools.cli.options import Settings, command
from verl_video_tools.cli.records import read_turns
from verl_video_tools.core.config import read_assignments
from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.files import hold_output

if TYPE_CHECKING:
    from verl_video_tools.testing.run import Finding


@command
class CheckMethod:
    """Check the properties that training needs of a method. No model is needed. Exits 1 if one does not hold."""

    method: Annotated[
        str | None,
        typer.Argument(metavar="NAME|module:Class", help="Method to check.", autocompletion=names_of("methods")),
    ] = None
    all_methods: Annotated[bool, typer.Option("--all", help="Check every method that is installed.")] = False
    turns: Annotated[
        Path | None, typer.Option(help="JSON file: a list of example turns that call each tool and answer.")
    ] = None
    settings: Settings = None
    processor: Annotated[
        str | None, typer.Option(help="Folder of a model's processor that counts the prompts' tokens.")
    ] = None
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object: findings by method.")] = False

    def run(self) -> int:
        if (self.method is None) != self.all_methods:
            raise UsageError("give either the name of a method or --all")
        if self.all_methods and (self.turns or self.settings):
            raise UsageError("--turns and --set are for one method: give its name instead of --all")
        from verl_video_tools.methods import method_names

        names = [self.method] if self.method is not None else list(method_names())
        with TemporaryDirectory(prefix="check_method_") as folder:
            found = {name: self._findings(name, Path(folder)) for name in names}
            if self.as_json:
                made = {name: [asdict(finding) for finding in findings] for name, findings in found.items()}
                print(json.dumps(made, indent=2, ensure_ascii=True))
                return int(any(one["status"] == "fail" for findings in made.values() for one in findings))
            failed = [_print(name, findings) for name, findings in found.items()]
        return int(any(failed))

    def _findings(self, name: str, folder: Path) -> Iterator[Finding]:
        from verl_video_tools.methods import method_class
        from verl_video_tools.testing.run import findings
        from verl_video_tools.testing.world import World

        model = None
        if self.processor is not None:
            with hold_output():  # libraries print
                from verl_video_tools.verl_plugin.model_tokens import load_model_tokens

                model = load_model_tokens(self.processor)
        turns = [] if self.turns is None else read_turns(self.turns)
        settings = read_assignments(self.settings or [])
        return findings(method_class(name), World(folder), turns, settings, model)


def _print(name: str, findings: Iterator[Finding]) -> bool:
    """Print the findings as they come; returns whether one failed."""
    counts = Counter[str]()
    print(f"{name}:")
    for finding in findings:
        counts[finding.status] += 1
        reason = "" if finding.reason is None else f": {' '.join(finding.reason.split())}"
        print(f"  {finding.status:14}  {finding.group}/{finding.property}{reason}", flush=True)
    print(f"{name}: {counts['pass']} pass, {counts['fail']} fail, {counts['not applicable']} not applicable")
    return counts["fail"] > 0
