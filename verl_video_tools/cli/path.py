"""`vvt path`: where a packaged configuration file is."""

from __future__ import annotations

from typing import Annotated

import typer

from verl_video_tools.cli.options import command


@command
class ConfigPath:
    """Print the path of a packaged configuration file. For use in a verl command line."""

    name: Annotated[str, typer.Argument(help="agent-loops, tools, group-router, hermes-template or longvt-template.")]

    def run(self) -> None:
        from verl_video_tools.config import config_path

        print(config_path(self.name))
