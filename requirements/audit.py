"""Asks which known vulnerabilities the pinned versions have. `make audit`; needs the network.

    python requirements/audit.py PIN_FILE ...

pip-audit asks the package index for each pin. `audit-accepted.txt` beside this file holds what may stay: a line for
each finding, with an identifier, the package, and why.

Exit code: 0 if nothing new is known; 1 for a finding that is not accepted; 2 if pins could not be looked up, which says
nothing about them.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ACCEPTED = Path(__file__).with_name("audit-accepted.txt")


def accepted(text: str) -> dict[tuple[str, str], str]:
    """Reasons by identifier and package; a line without a reason raises ValueError."""
    reasons = {}
    for line in text.splitlines():
        if line.strip() and not line.startswith("#"):
            identifier, package, *reason = line.split(maxsplit=2)
            if not reason:
                raise ValueError(f"{ACCEPTED.name}: {line!r}: say why this finding may stay")
            reasons[identifier, package] = reason[0]
    return reasons


def dependencies(pin_file: str) -> list[dict[str, Any]]:
    """What pip-audit found out about each pin."""
    command = [sys.executable, "-m", "pip_audit", "--disable-pip", "--require-hashes", "--requirement", pin_file]
    done = subprocess.run([*command, "--format", "json", "--progress-spinner", "off"], capture_output=True, text=True)
    try:
        found: list[dict[str, Any]] = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError):
        print(f"audit: pip-audit could not look at {pin_file}: {done.stderr.strip()[-2000:]}", file=sys.stderr)
        sys.exit(2)
    return found


def findings(pins: list[dict[str, Any]], reasons: dict[tuple[str, str], str]) -> Iterator[tuple[bool, str]]:
    """Each finding: whether it is accepted, and a line that tells it."""
    for pin in pins:
        for vulnerability in pin.get("vulns", []):
            identifiers = [vulnerability["id"], *vulnerability.get("aliases", [])]
            reason = next((reasons[key] for name in identifiers if (key := (name, pin["name"])) in reasons), None)
            fixed = ", ".join(vulnerability.get("fix_versions", [])) or "no version yet"
            line = f"{pin['name']}=={pin['version']}: {', '.join(identifiers)}, fixed in {fixed}"
            yield reason is not None, line + (f"; accepted: {reason}" if reason else "; NOT ACCEPTED")


def main(pin_files: list[str]) -> int:
    reasons = accepted(ACCEPTED.read_text(encoding="utf-8"))
    is_new = is_unknown = False
    for pin_file in pin_files:
        pins = dependencies(pin_file)
        for is_accepted, line in findings(pins, reasons):
            is_new |= not is_accepted
            print(line)
        unknown = [pin["name"] for pin in pins if "skip_reason" in pin]
        is_unknown |= bool(unknown)
        print(f"{pin_file}: {len(pins)} pins, of which {len(unknown)} could not be looked up: {', '.join(unknown[:8])}")
    if is_new:
        print("audit: move the pin, or add a line with the reason why it may stay to", ACCEPTED, file=sys.stderr)
        return 1
    if is_unknown:
        print("audit: this says nothing about pins that could not be looked up; ask from elsewhere", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
