"""Doctor: what of perfml works on this machine, and the cure for what does not."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collectors.profilers import cupti, ncu
from collectors.profilers.gpu import NCU_FIRST, NVPROF_LAST, Gpu, gpus
from collectors.profilers.inject import toolkit
from collectors.profilers.process import ask
from perfml.errors import PerfmlError
from perfml.util.installed import install_command, version_of

_DRIVER_PARAMETERS = Path("/proc/driver/nvidia/params")
_MINIMUM_FREE = 5e9
_BANDWIDTHS = ("dram", "l2", "l1")
_BASE = ("numpy", "pandas", "scipy", "scikit-learn", "matplotlib", "pyarrow", "typer", "jinja2")
_OPTIONAL = (
    ("torch", "gpu", "built-in workloads"),
    ("cupy-cuda13x", "gpu", "CUDA sources compiled at run time"),
    ("ncu-report", "ncu", "reading .ncu-rep files"),
    ("onnx", "tensorrt", "building TensorRT engines"),
    ("dask", "distributed", "many GPUs"),
)
_TENSORRT = ("tensorrt", "tensorrt-rtx-cu13-bindings", "tensorrt-rtx")
_TENSORRT_RTX = ("8.0", "8.6", "8.9", "12.0", "12.1")
"""Compute capabilities that TensorRT for RTX 1.7 runs on, by its own error message."""


@dataclass(frozen=True)
class Check:
    """One thing looked at.

    Attributes
    ----------
    name
        What was looked at.
    status
        ``ok``; ``warn``: works with a limit; ``fail``: should work and does not; ``absent``: not
        there, and not needed for everything.
    found
        What was found.
    cure
        What to do about it; empty if there is nothing to do.
    """

    name: str
    status: str
    found: str
    cure: str = ""


def diagnose() -> list[Check]:
    """Look at everything perfml uses; change nothing, and start nothing long.

    In the order a user would repair what fails.
    """
    checks = [_python(), *_packages()]
    found = _gpus()
    checks += found[0]
    gpu = found[1][0] if found[1] else None
    checks += [_ncu(gpu), _nvprof(gpu), *_permission(gpu), _cupti(gpu), _counters(gpu)]
    checks += [_optional(*each) for each in _OPTIONAL]
    checks += [_torch_gpu(gpu), _tensorrt(gpu), _disk(Path.cwd())]
    if gpu is not None:
        checks.append(_clocks(gpu))
    return checks


def _python() -> Check:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < (3, 11):  # noqa: UP036 - a wheel can be forced into an older Python
        return Check("python", "fail", version, "perfml needs Python 3.11 or newer.")
    return Check("python", "ok", version)


def _packages() -> list[Check]:
    missing = [name for name in _BASE if version_of(name) is None]
    if missing:
        cure = "Install with: pip install perfml"
        return [Check("packages", "fail", f"missing: {', '.join(missing)}", cure)]
    return [Check("packages", "ok", ", ".join(f"{name} {version_of(name)}" for name in _BASE))]


def _gpus() -> tuple[list[Check], list[Gpu]]:
    try:
        found = gpus()
    except PerfmlError as error:
        check = Check("gpu", "absent", _one_line(error), error.cure or "")
        return [check], []
    names = "; ".join(
        f"{each.name}, compute capability {each.compute_capability}, {each.memory_mib or 0:.0f} MiB"
        for each in found
    )
    checks = [Check("gpu", "ok", names), Check("driver", "ok", found[0].driver)]
    return checks, found


def _ncu(gpu: Gpu | None) -> Check:
    if gpu is not None and gpu.capability < NCU_FIRST:
        found = f"compute capability {gpu.compute_capability} is older than Nsight Compute"
        return Check("ncu", "absent", found, "Use --profiler nvprof.")
    try:
        return Check("ncu", "ok", ncu.version())
    except PerfmlError as error:
        return Check("ncu", "fail" if gpu else "absent", error.what, error.cure or "")


def _nvprof(gpu: Gpu | None) -> Check:
    path = shutil.which("nvprof")
    if gpu is not None and gpu.capability > NVPROF_LAST:
        found = f"ends at compute capability 7.2; this GPU has {gpu.compute_capability}"
        return Check("nvprof", "absent", found)
    if path is None:
        needed = gpu is not None and gpu.capability < NCU_FIRST
        cure = "Install a CUDA Toolkit before 13." if needed else ""
        return Check("nvprof", "fail" if needed else "absent", "not on the PATH", cure)
    return Check("nvprof", "ok", path)


def _permission(gpu: Gpu | None) -> list[Check]:
    if gpu is None:
        return []
    try:
        text = _DRIVER_PARAMETERS.read_text(encoding="utf-8", errors="replace")
    except OSError:
        found = f"{_DRIVER_PARAMETERS} cannot be read"
        cure = "If collect reports ERR_NVGPUCTRPERM: run as root or in a privileged container."
        return [Check("counters", "warn", found, cure)]
    match = re.search(r"RmProfilingAdminOnly:\s*(\d)", text)
    if match and match.group(1) == "0":
        return [Check("counters", "ok", "every user may read them")]
    if os.geteuid() == 0:
        return [Check("counters", "ok", "only root may read them, and this is root")]
    cure = (
        "As root: echo 'options nvidia NVreg_RestrictProfilingToAdminUsers=0' > "
        "/etc/modprobe.d/nvidia-counters.conf, then reboot; or run as root."
    )
    return [Check("counters", "fail", "only root may read them", cure)]


def _cupti(gpu: Gpu | None) -> Check:
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("c++")
    name = "timing of any program"
    try:
        found = toolkit()
    except PerfmlError as error:
        cure = f"{error.cure} Without it, times are Nsight Compute's."
        return Check(name, "warn" if gpu else "absent", error.what, cure)
    if not compiler:
        cure = "Install g++. Without it, times are Nsight Compute's."
        return Check(name, "warn" if gpu else "absent", "no C++ compiler", cure)
    return Check(name, "ok", f"CUPTI in {found.library.parent}, compiler {compiler}")


def _counters(gpu: Gpu | None) -> Check:
    """Check what `--profiler cupti` needs beside the permission: GPU, driver, CUPTI, compiler."""
    name = "counters by iterations"
    if gpu is None:
        return Check(name, "absent", "no GPU")
    try:
        cupti.require(gpu)
    except PerfmlError as error:
        cure = f"{error.cure or ''} Without it, Nsight Compute measures, 10 to 15 times slower."
        return Check(name, "warn", _one_line(error), cure.strip())
    return Check(name, "ok", "CUPTI's Range Profiler: the library compiles and the driver loads")


def _optional(package: str, extra: str, purpose: str) -> Check:
    version = version_of(package)
    if version is None:
        cure = f"For {purpose}: {install_command(extra)}"
        return Check(package, "absent", "not installed", cure)
    return Check(package, "ok", version)


def _torch_gpu(gpu: Gpu | None) -> Check:
    name = "torch on the GPU"
    if version_of("torch") is None:
        return Check(name, "absent", "torch is not installed")
    if gpu is None:  # importing torch takes seconds, and it would find none either
        return Check(name, "absent", "no GPU")
    code = (
        "import torch; print(torch.version.cuda, torch.cuda.is_available(), "
        "torch.backends.cudnn.version())"
    )
    # in a process of its own: a CUDA context would stay in this one, and a crash would end it
    said, status = _ask([sys.executable, "-c", code])
    if status != 0:
        return Check(name, "fail", said[-200:], "Reinstall torch.")
    cuda, available, cudnn = [*said.split(), "?", "?", "?"][:3]
    found = f"CUDA {cuda}, cuDNN {cudnn}"
    if available == "True":
        return Check(name, "ok", found)
    cure = "Install a torch built for the driver's CUDA version (nvidia-smi shows it)."
    return Check(name, "fail", f"{found}, but torch does not see the GPU", cure)


def _tensorrt(gpu: Gpu | None) -> Check:
    installed = [(name, version) for name in _TENSORRT if (version := version_of(name))]
    if not installed:
        cure = f"For the tensorrt backend: {install_command('tensorrt')}"
        return Check("tensorrt", "absent", "not installed", cure)
    name, version = installed[0]
    if name != "tensorrt" and gpu is not None and gpu.compute_capability not in _TENSORRT_RTX:
        found = f"{name} {version} does not run on compute capability {gpu.compute_capability}"
        cure = "Engines can be built, not run, here; install the full tensorrt package."
        return Check("tensorrt", "warn", found, cure)
    return Check("tensorrt", "ok", f"{name} {version}")


def _disk(folder: Path) -> Check:
    free = shutil.disk_usage(folder).free
    found = f"{free / 1e9:.1f} GB free in {folder}"
    if free < _MINIMUM_FREE:
        return Check("disk", "warn", found, "A large campaign needs several GB; use --out.")
    return Check("disk", "ok", found)


def _clocks(gpu: Gpu) -> Check:
    found = "not locked by perfml"
    if gpu.sm_clock_mhz is not None:
        found += f" ({gpu.sm_clock_mhz:.0f} MHz now)"
    cure = "On a machine of your own, locked clocks repeat better: nvidia-smi -lgc."
    return Check("clocks", "ok", found, cure)


def measured_peaks() -> tuple[dict[str, Any] | None, list[Check]]:
    """Measure what this GPU reaches, in one `Check` a peak.

    The document is that which `perfml.explain.load_peaks` reads, None where it cannot be measured.
    """
    cure = "It needs torch and a GPU with 4 GB of free memory."
    said, status = _ask([sys.executable, "-m", "collectors.peaks"], timeout_s=300)
    try:
        document: dict[str, Any] = json.loads(said) if status == 0 else {}
        peaks = {str(name): float(value) for name, value in document["peaks"].items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        last = said.strip().splitlines()[-1:] or ["no answer"]
        return None, [Check("peaks", "fail", last[0][:200], cure)]
    checks = []
    for name, value in peaks.items():
        unit = "TB/s" if name in _BANDWIDTHS else "TFLOP/s"
        how = document.get("how", {}).get(name, "")
        checks.append(Check(f"peak {name}", "ok", f"{value / 1e12:.3g} {unit} ({how})"))
    return document, checks


def _ask(command: list[str], timeout_s: float = 120) -> tuple[str, int]:
    root = str(Path(__file__).resolve().parent.parent)
    paths = os.pathsep.join(each for each in (root, os.environ.get("PYTHONPATH", "")) if each)
    answer = ask(["env", f"PYTHONPATH={paths}", *command], timeout_s=timeout_s)
    if answer.timed_out:
        return f"no answer within {timeout_s:.0f} s", 1
    return answer.output, answer.returncode


def _one_line(error: PerfmlError) -> str:
    return f"{error.what}; {error.found}" if error.found else error.what
