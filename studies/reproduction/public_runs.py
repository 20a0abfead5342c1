"""What a public profile shows of TensorRT, which none of perfml's recordings holds.

The profile is YOLOv4-Tiny in fp16 under TensorRT on a Jetson Nano (Tegra X1, a Maxwell GPU like the
family of the study's), one inference under nvprof:
github.com/F64081169/Nvprof_Jetson_Nano_Example at 8e91291, ``yolo.nvvp``. It has no licence and is
no part of perfml; ``perfml ingest yolo.nvvp`` reads it. The facts below were counted in it, and a
test counts them again where the file is at hand.
"""

from __future__ import annotations

from dataclasses import dataclass

from perfml.reproduce.claims import ELSEWHERE, Claim

SOURCE = "a public profile of YOLOv4-Tiny (NVIDIA Tegra X1, TensorRT in fp16)"
KERNELS, TOTAL_US = 51, 47_562
CONVOLUTIONS, NORMALISED = 21, 19
WINOGRAD, THREE_BY_THREE = 12, 14
THIRD = "trt_maxwell_fp16x2_hcudnn_winograd_fp16x2_128x128_ldg1_ldg4_relu_tile148m_nt_v1"


@dataclass(frozen=True)
class Convolution:
    """A convolution there: the study's number, and microseconds of it and of its activation."""

    number: int
    convolution_us: int
    activation_us: int

    @property
    def time_us(self) -> int:
        """Both together."""
        return self.convolution_us + self.activation_us


SLOWEST = (
    Convolution(20, 5897, 123),
    Convolution(3, 3797, 477),
    Convolution(7, 3982, 242),
    Convolution(11, 4094, 124),
)
"""The four slowest convolutions with their activations."""


def tensorrt_claims() -> list[Claim]:
    """Return what was read there about TensorRT: constants, nothing is computed."""
    slowest = ", ".join(f"{each.number} ({each.time_us / 1000:.2f} ms)" for each in SLOWEST)
    return [
        Claim(
            "Layer 3 under TensorRT: a single Winograd kernel for convolution and activation",
            ELSEWHERE,
            f"Not there: the kernel is Winograd's ({THIRD}); the activation, leaky as in the "
            "study's network, is a second kernel of 477 µs.",
            "Figure 2-5",
            SOURCE,
        ),
        Claim(
            "Winograd is the choice where filters are 3x3 and the batch is small",
            ELSEWHERE,
            f"It is there: TensorRT chose it for {WINOGRAD} of {THREE_BY_THREE} convolutions with "
            "3x3 filters, which are all with stride 1, and for no other.",
            "2.4.2",
            SOURCE,
        ),
        Claim(
            "Layers 3 and 20 are the slowest (under TensorRT)",
            ELSEWHERE,
            f"They are there: the slowest are {slowest}, activations included.",
            "2.4.2",
            SOURCE,
        ),
        Claim(
            "TensorRT fuses layers",
            ELSEWHERE,
            f"It does there: {CONVOLUTIONS} convolutions and their {NORMALISED} normalisations, "
            f"activations, routes, pools, an upsampling and two heads are {KERNELS} kernels: "
            "normalisations are a part of the convolutions, routes have no kernel, activations "
            "keep theirs.",
            "Figure 2-3",
            SOURCE,
        ),
    ]
