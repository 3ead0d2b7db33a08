"""Video "look again" methods for stock verl: agent loops, tools, rewards and recipes.

Importing the package loads nothing else; see `verl_video_tools.plugin` for what verl finds by entry point.
"""

__version__ = "0.1.0"
