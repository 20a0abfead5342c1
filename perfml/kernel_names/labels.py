"""Kernel names as people read them: without namespaces, template arguments and parameters."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Sequence

_SETUP = (
    ("distribution_elementwise_grid_stride_kernel", "PyTorch's random-number kernel"),
    ("distribution_nullary_kernel", "PyTorch's random-number kernel"),
    ("generate_seed_pseudo", "cuRAND's random-number kernel"),
    ("gen_sequenced", "cuRAND's random-number kernel"),
    ("FillFunctor", "PyTorch's fill kernel"),
)
"""Parts of the names of kernels that make a program's inputs, and what these are."""

_FUNCTOR = re.compile(r"\b(CUDAFunctor_\w+|(?!gpu_kernel)\w+_kernel(?:_cuda)?)(?=[(<])")
"""What a generic elementwise kernel was instantiated with."""

_WRAPPED = re.compile(r"(?:void )?cutlass\w*::(?:\w+::)*Kernel2?<(?:\w+::)*(\w+)>")
"""CUTLASS launches everything through one template; its argument is the kernel."""

_RETURNED = re.compile(r"^(?:typename )?std::enable_if<.*?>::type ")
"""What a kernel template returns that is only there for some arguments, such as cuBLAS's gemv."""

_NAMELESS = re.compile(r"\b(\w+::kernel)[<(]")
"""A function whose name says nothing, with the namespace that does."""

_TAGS = re.compile(r"(_24\d+)?(\[abi:\w+\])+")
"""ABI tags. Numba puts its version and options there, after ``$`` (written ``_24``) and a number
that counts the functions it compiled: another run's is another."""

_BETWEEN_WORDS = re.compile(r"_+|::|[ ,<\[(]")
"""Where a name can be cut."""

_PURPOSE = re.compile(r"([^\[\]]+) \[([^\[\]]+)\]")
"""A label with what a generic kernel was made for (`kernel_label`)."""

_BOTH = 32
"""Characters from which on a label is cut inside its bracket and before it, each by itself."""

_WHOLE = 1000
"""Characters that no name is cut to."""


def function_name(kernel: str) -> str:
    """Return a kernel's bare function name: tools spell template arguments differently.

    Examples
    --------
    >>> function_name("void ns::gemm<float, (bool)1>(float const*)")
    'gemm'
    >>> function_name("void at::<unnamed>::CatArray<T1, (int)4>(T1 *)")
    'CatArray'
    >>> function_name("std::enable_if<!(false), void>::type internal::gemvx::kernel<int>(Params)")
    'kernel'
    >>> function_name("cudapy::__main__::saxpy_241[abi:v1][abi:cw51c_3d](Array<float, 1>)")
    'saxpy'
    """
    name = _TAGS.sub("", kernel.removeprefix("void "))
    name = name.replace("(anonymous namespace)::", "").replace("<unnamed>::", "")
    name = _RETURNED.sub("", name)
    return re.split(r"[<(]", name, maxsplit=1)[0].rsplit("::", 1)[-1].strip()


def kernels_called(names: Iterable[str], wanted: str) -> list[str]:
    """Return the names that have a text in them, or else match it as a regular expression.

    Of these the kernel that is called so, where there is one: gemm, and not gemm_reduce beside it.
    Raises `re.error` if no name has the text, and it is no regular expression.

    Examples
    --------
    >>> kernels_called(["void gemm<4>(float*)", "gemm_reduce(float*)", "add(float*)"], "gemm")
    ['void gemm<4>(float*)']
    >>> kernels_called(["void gemm<4>(float*)", "gemm_reduce(float*)", "add(float*)"], "^(ge|ad)")
    ['void gemm<4>(float*)', 'gemm_reduce(float*)', 'add(float*)']
    """
    known = list(dict.fromkeys(names))
    matching = [name for name in known if wanted in name]
    if not matching:
        expression = re.compile(wanted)
        # ^basic$ is the name that people see, without types, parameters and namespaces
        matching = [
            name
            for name in known
            if expression.search(name) or expression.search(function_name(name))
        ]
    return [name for name in matching if function_name(name) == wanted] or matching


def short_kernel(name: str, limit: int = 64) -> str:
    """Return a kernel's bare function name, or the start of what it is called.

    Examples
    --------
    >>> short_kernel("void at::native::elementwise_kernel<128, 2>(int)")
    'elementwise_kernel'
    >>> short_kernel("<img src=x>")
    '<img src=x>'
    """
    short = function_name(name) or name
    return short if len(short) <= limit else f"{short[: limit - 1]}…"


def shortened(names: Sequence[str], limit: int) -> list[str]:
    """Return names of a limited length that still differ where the names do.

    A long name loses its middle, since libraries tell tile and purpose at its end. Names that
    would then look alike lose what they share instead. Where a word ends nearby, it is not cut.

    Examples
    --------
    >>> shortened(["sm80_xmma_gemm_f32_tilesize64x64x8_execute_split_k_kernel"], 32)
    ['sm80_xmma_gemm_…_split_k_kernel']
    >>> shortened(["gemm_relu_tile64x64_stage3_aligned", "gemm_relu_tile32x64_stage3_aligned"], 16)
    ['gem…tile64x64_…', 'gem…tile32x64_…']
    >>> tiles = [f"sm80_gemm_f32_f32_nn_tile{size}x64_stage3_aligned" for size in (32, 64)]
    >>> names = [f"{tile}_{end}" for tile in tiles for end in ("kernel", "split_kernel")]
    >>> shortened(names, 28)[2:]
    ['sm80…tile64x64…kernel', 'sm80…tile64x64…split_kernel']
    """
    short = {name: _middle_out(name, limit) for name in names}
    groups = _alike(short)
    for group in groups:
        short |= zip(group, _apart(group, limit), strict=True)
    # names of two groups may look alike once each group was told apart
    mixed = {name for clash in _alike(short) for name in clash}
    family = [name for group in groups if mixed.intersection(group) for name in group]
    short |= zip(family, _differing(family, limit), strict=True)
    return [short[name] for name in names]


def _alike(short: dict[str, str]) -> list[list[str]]:
    """Return the groups of names that look alike."""
    groups: dict[str, list[str]] = {}
    for name, cut in short.items():
        groups.setdefault(cut, []).append(name)
    return [group for group in groups.values() if len(group) > 1]


def _middle_out(name: str, limit: int) -> str:
    if len(name) <= limit:
        return name
    inside = _PURPOSE.fullmatch(name)
    if inside is not None and limit < _BOTH:
        return _middle_out(f"{inside[1]} {inside[2]}", limit)
    if inside is not None:
        purpose = _middle_out(inside[2], max(limit // 2, limit - 3 - len(inside[1])))
        return f"{_middle_out(inside[1], limit - 3 - len(purpose))} [{purpose}]"
    tail = (limit - 1) // 2
    return f"{_whole_words(name[: limit - 1 - tail])}…{_from_a_word(name[len(name) - tail :])}"


def _whole_words(start: str) -> str:
    """Return the start of a name without the part of a word at its end, where that is short."""
    ends = [found.end() for found in _BETWEEN_WORDS.finditer(start)]
    return start[: ends[-1]] if ends and ends[-1] > len(start) / 2 else start


def _from_a_word(end: str) -> str:
    """Return the end of a name without the part of a word at its start, where that is short."""
    first = _BETWEEN_WORDS.search(end)
    return end[first.start() :] if first and first.start() < len(end) / 2 else end


def _apart(names: Sequence[str], limit: int) -> list[str]:
    """Return names around the place where they begin to differ; numbered where that is too far."""
    alike = (len(set(signs)) == 1 for signs in zip(*names, strict=False))
    start = sum(itertools.takewhile(bool, alike))
    head = max(limit // 5, 1)
    room = limit - head - 2
    words = [found.end() for found in _BETWEEN_WORDS.finditer(names[0][:start])]
    near = words and start - words[-1] <= room // 2
    first = max(words[-1] if near else start - 1, head)
    whole = [
        f"{_whole_words(name[:head])}…{_whole_words(name[first : first + room])}…" for name in names
    ]
    raw = [f"{name[:head]}…{name[first : first + room]}…" for name in names]
    for cut in (whole, raw):
        if len(set(cut)) == len(cut):
            return cut
    return _numbered(names, limit)


def _differing(names: Sequence[str], limit: int) -> list[str]:
    """Return the words of names that not all of them have, between their first and last ones."""
    words = [name.split("_") for name in names]
    shared = set.intersection(*map(set, words)) if words else set()
    cut = ["_".join(_kept(word, shared)).replace("_…_", "…") for word in words]
    if len(set(cut)) == len(cut) and max(map(len, cut), default=0) <= limit:
        return cut
    return _numbered(names, limit)


def _kept(words: Sequence[str], shared: set[str]) -> list[str]:
    last = len(words) - 1
    told = [
        word if place in (0, last) or word not in shared else "…"
        for place, word in enumerate(words)
    ]
    return [word for word, _ in itertools.groupby(told)]


def _numbered(names: Sequence[str], limit: int) -> list[str]:
    numbers = [f"#{place}" for place in range(1, len(names) + 1)]
    return [
        _middle_out(name, limit - len(number)) + number
        for name, number in zip(names, numbers, strict=True)
    ]


def kernel_label(name: str, limit: int = 110) -> str:
    """Return a kernel's name without its parameters, with what a generic kernel was made for.

    A long name loses its middle: libraries tell tile and purpose at the end.

    Examples
    --------
    >>> kernel_label("void at::elementwise_kernel<128, at::CUDAFunctor_add<float>>(int, T3)")
    'elementwise_kernel [CUDAFunctor_add]'
    >>> kernel_label("void cutlass::Kernel2<cutlass_80_simt_sgemm_64x64_8x5_nn_align1>(T1::Params)")
    'cutlass_80_simt_sgemm_64x64_8x5_nn_align1'
    >>> kernel_label("sm80_xmma_gemm_f32_tilesize64x64x8_execute_split_k_kernel", 32)
    'sm80_xmma_gemm_…_split_k_kernel'
    >>> kernel_label("std::enable_if<true, void>::type internal::gemvx::kernel<int>(Params)")
    'gemvx::kernel'
    """
    wrapped = _WRAPPED.match(name)
    return shortened([wrapped.group(1) if wrapped else kernel_purpose(name)], limit)[0]


def kernel_purpose(name: str) -> str:
    """Return a kernel's bare function name, with what a generic kernel was made for."""
    label = short_kernel(name, _WHOLE)
    if label == "kernel" and (spaced := _NAMELESS.search(name)):
        label = spaced.group(1)
    inside = [functor for functor in _FUNCTOR.findall(name) if functor not in label]
    return f"{label} [{inside[0]}]" if inside else label


def setup_note(kernels: Iterable[str]) -> str | None:
    """Say that most launches only make a program's inputs; None where they do not.

    `kernels` are full names, one a launch.

    Examples
    --------
    >>> setup_note(["void at::distribution_elementwise_grid_stride_kernel<float>(int)"] * 2)
    "2 of these 2 launches are PyTorch's random-number kernel \
(distribution_elementwise_grid_stride_kernel); the one you want was probably not profiled"
    >>> setup_note(["gemm", "relu"]) is None
    True
    """
    names = Counter(kernels)
    found: dict[tuple[str, str], int] = {}
    others = dict(names)
    for name, launches in names.items():
        match = next(((part, what) for part, what in _SETUP if part in str(name)), None)
        if match is not None:
            found[match] = found.get(match, 0) + launches
            del others[name]
    total, made = names.total(), sum(found.values())
    if 2 * made <= total or not found:
        return None
    part, what = max(found, key=lambda each: found[each])
    if len(found) > 1:
        what = f"{what} and others that make inputs"
    note = f"{made} of these {total} launches are {what} ({part})"
    if not others:
        return f"{note}; the one you want was probably not profiled"
    shown = ", ".join(dict.fromkeys(short_kernel(str(name)) for name in others))
    return f"{note}; if none of the others is the one you want ({shown}), it was not profiled"
