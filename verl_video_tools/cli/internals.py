"""What `vvt doctor` asks about the internals of other packages that our code uses."""

from __future__ import annotations

from collections import defaultdict

from verl_video_tools.core.check import Check, Status
from verl_video_tools.core.environment import ENGINES, NEEDED, install_command, installed_version, module_exists
from verl_video_tools.verl_plugin.private_names import PrivateName, missing_names, private_names


def check_internals() -> list[Check]:
    """One line for each of verl, vLLM, TransferQueue and transformers that is installed, with the names that it lacks.

    Whether its version is the tested one is told by another line.
    """
    by_package: dict[str, list[PrivateName]] = defaultdict(list)
    for name in private_names():
        by_package[name.package].append(name)
    return [_check(package, names) for package, names in by_package.items() if module_exists(package)]


def _check(package: str, names: list[PrivateName]) -> Check:
    missing = missing_names(names)
    title, found = f"internals of {package}", f"{len(names) - len(missing)} of {len(names)} names"
    if not missing:
        return Check("plugin", title, Status.OK, found)
    pins = [pin for pin in (*NEEDED, *ENGINES.values()) if pin.module == package]
    pin = next((pin for pin in pins if installed_version(pin.distribution)), pins[0])
    return Check(
        "plugin", title, Status.FAILED, found, f"missing: {'; '.join(map(str, missing))}", install_command(pin)
    )
