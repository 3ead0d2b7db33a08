"""`vvt doctor`: is this installation able to train, and if not, which command fixes it?"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict

from verl_video_tools import __version__
from verl_video_tools.cli import probes
from verl_video_tools.cli.terminal import hold_output
from verl_video_tools.core.check import Check, Status, check_lines
from verl_video_tools.core.environment import NEEDED, OPTIONAL, detect_device


def report(as_json: bool, judge_base_url: str | None = None, judge_model: str | None = None) -> int:
    """Prints the report on standard output.

    Args:
        judge_base_url: judge to check as well; default: the environment variable VVT_JUDGE_BASE_URL, where it is set.
        judge_model: name of its model; default: the first that it serves.

    Returns:
        The exit code: 0 if everything needed is in place, else 1.
    """
    device = detect_device()
    checks = examine(device)
    if judge_base_url := judge_base_url or os.environ.get("VVT_JUDGE_BASE_URL"):
        checks += probes.check_judge(judge_base_url, judge_model)
    failed = any(check.status is Status.FAILED for check in checks)
    print(render_json(checks, device) if as_json else render_table(checks, device))
    return 1 if failed else 0


def examine(device: str) -> list[Check]:
    """All checks, in the order of the report.

    Args:
        device: `cpu` or `gpu`; decides which build of vLLM is wanted and which platform verl is asked to load.
    """
    checks = [
        probes.check_python(),
        *(probes.check_package(package) for package in NEEDED),
        *probes.check_engine(device),
    ]
    blocked = any(check.status is Status.FAILED for check in checks)
    if flash_attention := probes.check_flash_attention(device):
        checks.append(flash_attention)
    optional = [
        *(probes.check_optional(extra, package) for extra, package in OPTIONAL),
        probes.check_torchcodec_loads(),
    ]
    machine = [
        probes.check_ffmpeg(blocked),
        probes.check_gpu(device),
        probes.check_cuda(device),
        probes.check_smoke_test(device),
        probes.check_shared_memory(),
        probes.check_open_files(),
    ]
    if device == "cpu":
        # As the recipes do: the CPU platform registers itself only where it was asked for.
        os.environ.setdefault("DEVICE", "cpu")
        os.environ.setdefault("VERL_PLATFORM", "cpu")
    with hold_output() as held:  # verl and its libraries log and print while they are imported
        plugin = probes.check_plugin(blocked)
        if not any(check.status is Status.FAILED for check in plugin):
            held.discarded = True
    return [check for check in [*checks, *plugin, *machine, *optional] if check is not None]


def render_json(checks: Sequence[Check], device: str) -> str:
    """The report as one JSON object: version, device, ok, checks (fields as in `Check`, but `mend` for `fix`)."""
    facts = {
        "version": __version__,
        "device": device,
        "ok": not any(check.status is Status.FAILED for check in checks),
        "checks": [asdict(check) for check in checks],
    }
    return json.dumps(facts, indent=2)


def render_table(checks: Sequence[Check], device: str) -> str:
    """The report for people: a line per check, below a heading per group, then the commands that fix what failed."""
    lines = [f"verl_video_tools {__version__}, DEVICE={device}", *check_lines(checks)]
    failed = [check for check in checks if check.status is Status.FAILED]
    return "\n".join([*lines, "", _verdict(failed)])


def _verdict(failed: Sequence[Check]) -> str:
    if not failed:
        return "Everything needed is in place."
    verdict = f"Missing or wrong: {', '.join(check.name for check in failed)}."
    if any(check.group == "packages" for check in failed):
        verdict += " In a checkout, `make install` fixes all packages at once."
    return verdict
