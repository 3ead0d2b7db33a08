"""Imported by every process of a run (VERL_USE_EXTERNAL_MODULES): makes the methods known that only tests have."""

from tests import context_method, group_method
from verl_video_tools.methods import REGISTERED

for method in (context_method, group_method):
    REGISTERED[method.NAME] = method.PATH
