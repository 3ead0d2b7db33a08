"""Imported by every process of a run (VERL_USE_EXTERNAL_MODULES): makes the method of `tests.group_method` known."""

from tests.group_method import NAME, PATH
from verl_video_tools.methods import REGISTERED

REGISTERED[NAME] = PATH
