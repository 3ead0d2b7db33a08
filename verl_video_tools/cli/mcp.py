"""`vvt mcp`: reads the options and serves until the client is gone."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from verl_video_tools.cli.options import Retrieval, command, config_from
from verl_video_tools.cli.output import hold_output
from verl_video_tools.core.assignments import read_assignments
from verl_video_tools.core.errors import UsageError


@command
class MCP:
    """Serve a folder of videos by the Model Context Protocol."""

    videos: Annotated[Path, typer.Option(metavar="DIR", help="Folder of the videos; nothing outside is opened.")]
    subtitles: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder of .srt files, named as the videos; adds tools that look them up."),
    ] = None
    max_frames: Annotated[int, typer.Option(min=1, help="Most frames of one call.")] = 32
    max_pixels: Annotated[int, typer.Option(min=1, help="Most pixels of all frames of one call.")] = 8_000_000
    jpeg_quality: Annotated[
        int | None, typer.Option(min=1, max=95, help="Send JPEG of this quality instead of PNG.")
    ] = None
    deadline_seconds: Annotated[
        float, typer.Option(min=0.1, help="Time to open, search or decode, each, in seconds.")
    ] = 30.0
    retrieval: Retrieval = None
    port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Serve streamable HTTP on this port instead of stdio.")
    ] = None
    host: Annotated[str, typer.Option(help="Address to serve HTTP on. There is no authentication.")] = "127.0.0.1"

    def run(self) -> None:
        retrieval_fields = read_assignments(self.retrieval or [], "--retrieval")
        with hold_output():  # standard output is the protocol's
            try:
                from verl_video_tools.mcp_server.server import VideoTools, make_server
            except ModuleNotFoundError as error:
                if (error.name or "").split(".")[0] != "mcp":
                    raise
                raise UsageError("vvt mcp needs the package mcp: uv pip install '.[mcp]' in the checkout") from error
            from verl_video_tools.mcp_server.folder import VideoFolder
            from verl_video_tools.mcp_server.limits import CallLimits
            from verl_video_tools.mcp_server.subtitles import SubtitleFolder
            from verl_video_tools.services.retrieval import local_from_fields

            folder = VideoFolder(self.videos)
            limits = config_from(CallLimits, self)
            retriever = local_from_fields(retrieval_fields)
            subtitles = None if self.subtitles is None else SubtitleFolder(self.subtitles)
            tools = VideoTools(folder, limits, retriever, self.jpeg_quality, subtitles)
            server = make_server(tools, searches=retriever is not None, tells_subtitles=subtitles is not None)
        if self.port is None:
            server.run("stdio")
        else:
            server.run("streamable-http", host=self.host, port=self.port)
