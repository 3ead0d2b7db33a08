"""`python -m verl_video_tools.verl_plugin.config NAME` prints where a packaged configuration file lies."""

import sys

from verl_video_tools.verl_plugin.config import config_path

print(config_path(sys.argv[1]))
