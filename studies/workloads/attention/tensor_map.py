"""Tensor maps: what Hopper's copy engine needs to know of a tensor."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from perfml.errors import PerfmlError

BYTES, _ALIGNMENT = 128, 64
_FLOAT16, _NO_INTERLEAVE, _SWIZZLE_128, _PROMOTE_256, _ZEROS = 6, 0, 3, 3, 0
"""Values of the enumerations CUtensorMap... in cuda.h, of CUDA 12 and 13."""


def encode(address: int, shape: tuple[int, int, int], box_rows: int) -> bytes:
    """Return the tensor map of halves, in boxes of 64 columns with the 128-byte swizzle.

    Parameters
    ----------
    address
        Of the tensor, on the device; a multiple of 16.
    shape
        Problems, rows, columns; row-major.
    box_rows
        Rows of a box, at most 256. What lies outside the tensor is read as zeros.

    Raises
    ------
    PerfmlError
        If there is no CUDA driver, or it refuses the map.
    """
    problems, rows, columns = shape
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        msg = "the CUDA driver's library is not there"
        raise PerfmlError(msg, where="libcuda.so.1", cure="Run perfml doctor.") from error
    room = ctypes.create_string_buffer(BYTES + _ALIGNMENT)
    start = -ctypes.addressof(room) % _ALIGNMENT
    status = driver.cuTensorMapEncodeTiled(
        ctypes.c_void_p(ctypes.addressof(room) + start),
        ctypes.c_int(_FLOAT16),
        ctypes.c_uint32(3),
        ctypes.c_void_p(address),
        (ctypes.c_uint64 * 3)(columns, rows, problems),
        (ctypes.c_uint64 * 2)(2 * columns, 2 * columns * rows),
        (ctypes.c_uint32 * 3)(64, box_rows, 1),
        (ctypes.c_uint32 * 3)(1, 1, 1),
        ctypes.c_int(_NO_INTERLEAVE),
        ctypes.c_int(_SWIZZLE_128),
        ctypes.c_int(_PROMOTE_256),
        ctypes.c_int(_ZEROS),
    )
    if status:
        msg = "the driver refuses a tensor map"
        raise PerfmlError(msg, found=f"CUresult {status} for {shape} in boxes of {box_rows} rows")
    return room.raw[start : start + BYTES]


def on_device(tensors: Sequence[Any], box_rows: Sequence[int]) -> Any:
    """Return the maps of tensors of shape (problems, rows, columns), on the device."""
    import torch

    maps = b"".join(
        encode(tensor.data_ptr(), tuple(tensor.shape), rows)
        for tensor, rows in zip(tensors, box_rows, strict=True)
    )
    return torch.frombuffer(bytearray(maps), dtype=torch.uint8).to(tensors[0].device)
