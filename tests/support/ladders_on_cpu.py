"""Modules of CUDA sources that run on the CPU: sessions of the ladders without a GPU."""

import contextlib
import ctypes
import shutil
from pathlib import Path

import numpy as np

from collectors.workloads.cuda import Resources
from studies.workloads.qkv.workload import VERSIONS
from tests.support.compiling import ON_CPU as FOLDER
from tests.support.compiling import compile_once

COMPILER = shutil.which("g++") or shutil.which("c++")
KERNELS = {
    "separate.cu": ("unroll", "multiply", "permute"),
    "fused.cu": ("fused",),
    "wmma.cu": ("fused_wmma",),
    "qkv.cu": tuple(
        f"{name}_{shape}" for name in ("rearrange", *VERSIONS) for shape in ("small", "large")
    ),
}


class CpuModule:
    """Stands for `collectors.workloads.cuda.Module`: the same source, compiled for the CPU."""

    compiler, architecture = "g++", "cpu"

    def __init__(self, source, folder, kernels=None, functions=None):
        kernels = kernels or KERNELS[source.path.name]
        out = Path(folder) / f"{source.path.stem}{len(list(Path(folder).iterdir()))}.so"
        defines = [f"-D{name}={value}" for name, value in source.defines.items()]
        defines += [
            f'-DSOURCE="{source.path.name}"',
            f"-DKERNELS={''.join(f'KERNEL({k})' for k in kernels)}",
        ]
        defines += ["-DWMMA"] if source.path.name == "wmma.cu" else []
        defines += [f'-DFUNCTIONS="{functions}"'] if functions else []
        # its own symbols first: glibc has an `advance`, too
        flags = ["-std=c++20", "-shared", "-fPIC", "-Wl,-Bsymbolic", *defines]
        folders = [FOLDER / "headers", source.path.parent]
        compile_once(out, FOLDER / "ladders.cpp", flags, folders)
        self.library = ctypes.CDLL(str(out))
        self.launches = []

    def kernel(self, name):
        return CpuKernel(self, name)

    def address(self, name):
        return ctypes.addressof(ctypes.c_float.in_dll(self.library, name))


class CpuKernel:
    """Stands for `Kernel`; keeps what was launched."""

    def __init__(self, module, name):
        self.module, self.name = module, name

    def resources(self):
        return Resources(0, 0, 0)

    def __call__(self, grid, block, *arguments, shared=0, stream=None):
        assert shared == 0
        self.module.launches.append((self.name, stream))
        held = [_held(each) for each in arguments]
        addresses = (ctypes.c_void_p * len(held))(*(ctypes.addressof(each) for each in held))
        extents = [(ctypes.c_uint * 3)(*_three(each)) for each in (grid, block)]
        assert self.module.library.launch(self.name.encode(), *extents, addresses) == 0


def _three(extents):
    given = (extents,) if isinstance(extents, int) else tuple(extents)
    return (*given, 1, 1)[:3]


def _held(value):
    if hasattr(value, "data_ptr"):
        return ctypes.c_void_p(value.data_ptr())
    if isinstance(value, np.ndarray):
        return (ctypes.c_char * value.nbytes).from_buffer_copy(value.tobytes())
    assert isinstance(value, int)
    return ctypes.c_int(value)


class _Stream:
    cuda_stream = 0

    def wait_stream(self, other):
        assert isinstance(other, _Stream)


class _Cupy:
    class cuda:  # noqa: N801 - CuPy's name
        class runtime:  # noqa: N801 - CuPy's name
            memcpyDeviceToDevice = 3  # noqa: N815 - CuPy's name

            @staticmethod
            def memcpy(to, source, size, kind):
                assert kind == 3
                ctypes.memmove(to, source, size)


@contextlib.contextmanager
def on_cpu(monkeypatch, room, folder):
    """Let the module `room` (a workload's) build its sessions on the CPU; yield what it builds."""
    import torch

    built = []

    def build(sources):
        made = {name: CpuModule(source, folder) for name, source in sources.items()}
        built.extend(made.values())
        return made

    class Properties:
        multi_processor_count = 3

    monkeypatch.setattr(room, "DEVICE", "cpu")
    monkeypatch.setattr(room, "build", build)
    monkeypatch.setattr(room, "import_cupy", lambda: _Cupy, raising=False)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda, "Stream", _Stream)
    monkeypatch.setattr(torch.cuda, "stream", lambda _: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "current_stream", _Stream)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: Properties)
    yield built
