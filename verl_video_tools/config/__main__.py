"""`python -m verl_video_tools.config NAME` prints where a packaged configuration file lies."""

import sys

from verl_video_tools.config import config_path

print(config_path(sys.argv[1]))
