"""Methods composed by a YAML file: everything of the method, and the base classes of a user's own parts."""

from verl_video_tools.methods.compose.composition import Composition, load_composition
from verl_video_tools.methods.compose.method import Compose
from verl_video_tools.methods.compose.parts import ScoringContext, Term

__all__ = ["Compose", "Composition", "ScoringContext", "Term", "load_composition"]
