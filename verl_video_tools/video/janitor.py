"""Removes a shared folder when its last user is gone, however that user ended. Run by path, standard library only.

Argument: the folder. An inherited open file holds the lock of `<folder>/janitor` for as long as this process lives.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import sys
from pathlib import Path

GONE_MARK = ".gone-"


def main(folder: Path) -> None:
    # Orphaned, so that neither a parent's end takes it along nor a parent has to wait for it.
    if os.fork():
        os._exit(0)
    # A scheduler that ends a job asks all processes at once; the folder goes after those that use it.
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    try:
        alive = os.open(folder / "alive", os.O_RDWR)
        fcntl.flock(alive, fcntl.LOCK_EX)  # granted when no process holds its share any more
        if not os.path.samestat(os.stat(folder / "alive"), os.fstat(alive)):
            return
        gone = folder.with_name(f"{folder.name}{GONE_MARK}{os.getpid()}")
        folder.rename(gone)  # at once: who comes now makes a new one
    except FileNotFoundError:
        return
    os.close(alive)
    for remains in folder.parent.glob(f"{folder.name}{GONE_MARK}*"):  # those of a janitor that was killed, too
        shutil.rmtree(remains, ignore_errors=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
