"""The model that tools ask: a captioner, a reader of text in frames, a sub-agent (docs/tools.md).

config.py    where it is, how it is asked, and how much one rollout may ask
client.py    `EndpointToolModel`: over any OpenAI-compatible endpoint
recorded.py  exchanges noted in a rollout's record, and given again
doubles.py   stand-ins without a server
"""

from verl_video_tools.services.tool_model.config import ToolModelConfig
from verl_video_tools.services.tool_model.doubles import FunctionToolModel, ScriptedToolModel

__all__ = ["FunctionToolModel", "ScriptedToolModel", "ToolModelConfig"]
