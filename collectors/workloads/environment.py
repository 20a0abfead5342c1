"""Versions and device of this process, for the provenance of a run."""

from __future__ import annotations

import platform
import sys
from datetime import UTC, datetime
from typing import Any

import perfml
from collectors.profilers.gpu import gpus
from perfml.errors import PerfmlError
from perfml.util.installed import version_of


def environment(device: str) -> dict[str, Any]:
    """Return versions and GPU as JSON values; what is not there is None.

    Only for the device ``cuda`` torch is asked for a GPU.
    """
    found: dict[str, Any] = {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "perfml": perfml.__version__,
        "numpy": version_of("numpy"),
        "torch": version_of("torch"),
        "triton": version_of("triton"),
        **{library: version_of(library) for library in ("torchvision", "timm", "transformers")},
        "driver": _driver(),
    }
    torch = sys.modules.get("torch")
    if torch is not None:
        cudnn = torch.backends.cudnn
        found["cuda"] = torch.version.cuda
        found["cudnn"] = cudnn.version() if cudnn.is_available() else None
    if torch is not None and device == "cuda" and torch.cuda.is_available():
        properties = torch.cuda.get_device_properties(0)
        found["gpu"] = properties.name
        found["compute_capability"] = f"{properties.major}.{properties.minor}"
        found["multiprocessors"] = properties.multi_processor_count
        found["memory_bytes"] = properties.total_memory
    return found


def _driver() -> str | None:
    try:
        return gpus()[0].driver
    except PerfmlError:
        return None
