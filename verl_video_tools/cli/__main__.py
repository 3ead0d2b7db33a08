"""`python -m verl_video_tools.cli` is `vvt`."""

from verl_video_tools.cli import console_main

if __name__ == "__main__":  # the demo's rendering processes import this file again
    console_main()
