"""Machines of a cluster, as far as Ray can tell: namespaces of network, processes and mounts, two of them on a cable.

Nothing of the host is touched: the cable is made between the two namespaces, and all of it goes away with the machines'
first processes. Those end when their standard input does, so also when the test's process is killed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import psutil

START_SECONDS = 20
PREFIX_LENGTH = 30
"""Two addresses."""
_UNSHARE = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
_FIRST_PROCESS = (
    "ip link set lo up && mount -t tmpfs -o size=2g tmpfs /dev/shm && echo ready && cat >/dev/null; "
    ":"  # the shell stays, as the one who reaps orphans
)


class Node:
    """A machine with its own network, process numbers and shared memory; disks are the host's.

    Raises:
        OSError: namespaces cannot be made here; says why.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        self._outer = subprocess.Popen(
            [*_UNSHARE, "sh", "-c", _FIRST_PROCESS],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert self._outer.stdout is not None
        line = self._outer.stdout.readline().strip()
        if line != "ready":
            self.stop()
            raise OSError(f"no namespaces: {line or 'unshare ended without a word'}")
        (first,) = psutil.Process(self._outer.pid).children()
        self.pid = first.pid

    def command(self, *words: str | Path, folder: Path = Path("/")) -> list[str]:
        """The command that runs `words` on this machine, in `folder`."""
        enter = ["nsenter", "--target", str(self.pid), "--net", "--mount", "--pid", f"--wdns={folder}", "--"]
        return [*enter, *map(str, words)]

    def run(self, *words: str | Path, environment: Mapping[str, str], timeout_seconds: float) -> tuple[int, str]:
        """Exit code and output. The output goes through a file: a daemon that keeps it open does not make us wait."""
        with tempfile.TemporaryFile("w+") as output:
            returncode = subprocess.run(
                self.command(*words),
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=timeout_seconds,
            ).returncode
            output.seek(0)
            return returncode, output.read()

    def kill_processes(self) -> None:
        """All but the first at once, as a power cut would; the machine and its cable stay."""
        for process in psutil.Process(self.pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                if process.name() != "cat":
                    process.kill()

    def stop(self) -> None:
        """End the first process, and with it whatever runs on the machine."""
        if self._outer.stdin is not None:
            self._outer.stdin.close()
        try:
            self._outer.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._outer.send_signal(signal.SIGKILL)  # `--kill-child`
            self._outer.wait(timeout=5)
        if self._outer.stdout is not None:
            self._outer.stdout.close()


@contextlib.contextmanager
def connected_nodes(addresses: Sequence[str]) -> Iterator[list[Node]]:
    """Two machines that reach each other at these addresses, and nothing else.

    Raises:
        OSError: they cannot be made here; says why.
    """
    with contextlib.ExitStack() as stack:
        nodes = []
        for address in addresses:
            nodes.append(Node(address))
            stack.callback(nodes[-1].stop)
        first, second = nodes
        _ip(first, f"link add cable type veth peer name cable netns {second.pid}")
        for node in nodes:
            _ip(node, f"address add {node.address}/{PREFIX_LENGTH} dev cable")
            _ip(node, "link set cable up")
        yield nodes


def _ip(node: Node, arguments: str) -> None:
    """`ip` in the machine's network, but with the host's process numbers."""
    done = subprocess.run(
        ["nsenter", "--target", str(node.pid), "--net", "ip", *arguments.split()],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=START_SECONDS,
    )
    if done.returncode != 0:
        raise OSError(f"ip {arguments}: {done.stderr.strip()}")


def reason_against_namespaces() -> str:
    """Why machines cannot be made here; empty where they can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    try:
        with connected_nodes(["10.77.0.1", "10.77.0.2"]):
            return ""
    except (OSError, subprocess.SubprocessError) as error:
        return f"network namespaces cannot be made here: {error}"


def wait_until(condition: Callable[[], bool], timeout_seconds: float, what: str) -> float:
    """Seconds until `condition()` held.

    Raises:
        AssertionError: it did not hold in time.
    """
    started = time.monotonic()
    while not condition():
        assert time.monotonic() - started < timeout_seconds, f"{what}: not within {timeout_seconds:.0f} s"
        time.sleep(0.5)
    return time.monotonic() - started
