"""Methods composed by a YAML file: everything of the method."""

from verl_video_tools.methods.compose.composition import Composition, load_composition
from verl_video_tools.methods.compose.method import Compose

__all__ = ["Compose", "Composition", "load_composition"]
