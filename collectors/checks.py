"""Built-in workloads are checked before they are measured: what a check that failed says."""

from __future__ import annotations

import contextlib
import json
import math
from pathlib import Path
from typing import Any

from collectors.profilers.process import ProfilerError
from collectors.run_folder import RUN_FILE
from collectors.run_spec import Run


def checked_first(subject: Run) -> bool:
    """Return whether a run's outputs are compared with a reference before it is measured."""
    from collectors.workloads import workload

    return subject.built_in and workload(subject.workload).check_first


def require_right(folder: Path) -> None:
    """Raise if the workload that wrote into a folder computes something else than its reference.

    Without its own ``run.json``, or a check in it, nothing is known to be wrong.

    Raises `ProfilerError` with the output that is furthest off.
    """
    check: Any = None
    with contextlib.suppress(OSError, ValueError, AttributeError):
        check = json.loads((folder / RUN_FILE).read_text(encoding="utf-8")).get("check")
    if not isinstance(check, dict) or check.get("passed") is not False:
        return
    wrong = [output for output in check["outputs"] if not output["passed"]]
    worst = max(wrong, key=_off)
    error = worst["relative_error"]
    told = "not a number" if error is None else f"{error:.1e}"
    found = f"relative error {told}, the limit is {worst['limit']:.0e}"
    if len(wrong) > 1:
        found += f"; so are {len(wrong) - 1} more of {len(check['outputs'])} outputs"
    msg = "a kernel's output is wrong, so nothing was measured"
    cure = "Mend the kernel, or leave it out with --backend or --set; "
    cure += "log.txt has the errors of all outputs."
    raise ProfilerError(msg, where=worst["output"], found=found, cure=cure)


def _off(row: dict[str, Any]) -> float:
    error = row["relative_error"]
    return math.inf if error is None else float(error / row["limit"])
