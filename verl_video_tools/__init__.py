"""Video "look again" methods for stock verl: agent loops, tools, rewards and recipes.

Importing the package loads nothing else; see `verl_video_tools.verl_plugin.plugin` for what verl finds by entry point.
"""

__version__ = "0.2.0"
