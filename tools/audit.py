"""Ask a vulnerability service about the versions of constraints.txt, where one can be reached.

Exit 0: none is known to be vulnerable, or no service answers, which one line says. Exit 1: one is
vulnerable, or pip-audit failed for another reason.
Run: ``python tools/audit.py [FILE]`` in an environment with pip-audit.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SECONDS = 240
_OFFLINE = ("ConnectionError", "Max retries", "resolve", "Timeout", "ProxyError", "unreachable")


def main() -> int:
    """Audit a file of pinned requirements."""
    root = Path(__file__).resolve().parent.parent
    named = Path(sys.argv[1]) if len(sys.argv) > 1 else root / "constraints.txt"
    command = [sys.executable, "-m", "pip_audit", "--requirement", str(named), "--no-deps"]
    command += ["--disable-pip", "--format", "json", "--progress-spinner", "off", "--timeout", "5"]
    try:
        done = subprocess.run(  # noqa: S603 - a fixed command
            command, capture_output=True, text=True, timeout=SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return not_asked(f"no answer in {SECONDS} s")
    try:
        found = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError, TypeError):
        lines = done.stderr.strip().splitlines() or [f"pip-audit ended with {done.returncode}"]
        if any(word in done.stderr for word in _OFFLINE):
            return not_asked(lines[-1][:160])
        sys.stderr.write(f"audit failed: {lines[-1][:400]}\n")
        return 1
    asked = [each for each in found if "skip_reason" not in each]
    if found and not asked:
        return not_asked(str(found[0]["skip_reason"])[:160])
    vulnerable = [each for each in asked if each["vulns"]]
    for package in vulnerable:
        for vuln in package["vulns"]:
            fixed = ", ".join(vuln["fix_versions"]) or "no version"
            sys.stdout.write(
                f"{package['name']} {package['version']}: {vuln['id']}, fixed in {fixed}\n"
            )
    sys.stdout.write(
        f"audited {len(asked)} of {len(found)} packages, {len(vulnerable)} vulnerable\n"
    )
    return 1 if vulnerable else 0


def not_asked(why: str) -> int:
    """Say that nothing was audited."""
    sys.stdout.write(f"not audited, no vulnerability service could be reached: {why}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
