"""The damaged files of tests/data/bad: which export each folder damages."""

from __future__ import annotations

from dataclasses import dataclass

from tests.support.paths import ROOT

BAD = ROOT / "tests" / "data" / "bad"


@dataclass(frozen=True)
class Base:
    """A whole export that damage was done to: its folder, ending, and a kernel's name in it."""

    name: str
    suffix: str
    kernel: bytes

    @property
    def data(self) -> bytes:
        """The export as it was before."""
        return (BAD / self.name / f"whole{self.suffix}").read_bytes()


def bases() -> list[Base]:
    """Return the exports."""
    return [
        Base("ncu-raw", ".csv", b"add"),
        Base("ncu-details", ".csv", b"add(float"),
        Base("nvprof-metrics", ".txt", b"flash_attention_kernel"),
        Base("nvprof-summary", ".txt", b"sgemm"),
        Base("nvprof-trace", ".txt", b"sgemm"),
        Base("nvprof-trace-csv", ".csv", b"gemm"),
        Base("nvprof-metrics-csv", ".csv", b"gemm"),
        Base("timing", ".csv", b"im2col"),
    ]
