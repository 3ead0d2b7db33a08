"""One tool call as verl's own tool loop makes it: no model, no Ray.

python examples/stock_tool_loop/call_tool.py VIDEO choose_frames '{"start_frame": 0, "end_frame": 60}' --save DIR
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from contextlib import redirect_stdout
from pathlib import Path

from verl.tools.tool_registry import load_all_tools

from verl_video_tools.config import config_path


async def call(tools_file: Path, video: str, tool_name: str, arguments: object, save: Path | None) -> str:
    """The text that the model would read; its pictures are written to `save`."""
    with redirect_stdout(sys.stderr):  # verl prints each tool's schema
        tools = {tool.name: tool for tool in load_all_tools(str(tools_file), None)}
    tool = tools[tool_name]
    instance_id, _ = await tool.create(create_kwargs={"video_path": video})
    response, _reward, _metrics = await tool.execute(instance_id, arguments)
    await tool.release(instance_id)
    if save is not None:
        save.mkdir(parents=True, exist_ok=True)
        for position, image in enumerate(response.image or []):
            image.save(save / f"{position:02d}.png")
    return response.text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("video")
    parser.add_argument("tool", choices=["choose_frames", "get_frame_number"])
    parser.add_argument("arguments", type=json.loads, help="JSON, as the model would write it")
    parser.add_argument("--tools", type=Path, default=config_path("tools"), help="tool YAML; default: the packaged one")
    parser.add_argument("--save", type=Path, help="folder for the pictures")
    options = parser.parse_args()
    print(asyncio.run(call(options.tools, options.video, options.tool, options.arguments, options.save)))


if __name__ == "__main__":
    main()
