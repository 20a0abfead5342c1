"""attention's own CUDA sources, changed, and compiled for the CPU (tests/cuda_on_cpu)."""

from __future__ import annotations

import shutil
import subprocess

import numpy as np

from studies.workloads.attention.variants import FOLDER, Variant
from tests.support.compiling import ON_CPU, compile_once
from tests.support.processes import PATIENCE_S

NO_RESCALE = ("if (must_rescale<LAZY>(", "if (false && must_rescale<LAZY>(")
"""What to replace, and by what, so that a tensor-core kernel never rescales a row."""


def in_double(q, k, v, causal=False):
    """softmax(Q Kᵀ / √d) V in numpy, all scores at once."""
    q, k, v = (each.astype(np.float64) for each in (q, k, v))
    scores = q @ k.transpose(0, 2, 1) / np.sqrt(q.shape[-1])
    if causal:
        scores = np.where(np.tril(np.ones(scores.shape[1:], bool)), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights @ v / weights.sum(-1, keepdims=True)


def inputs(count, tokens, dim, dtype, seed=1):
    generator = np.random.default_rng(seed)
    return [generator.standard_normal((count, tokens, dim)).astype(dtype) for _ in range(3)]


def off(output, expected):
    return np.linalg.norm(output - expected) / np.linalg.norm(expected)


def replace_once(path, before, after):
    """Replace a text that stands once in a file."""
    text = path.read_text(encoding="utf-8")
    assert text.count(before) == 1
    path.write_text(text.replace(before, after), encoding="utf-8")


def changed_sources(folder, source, replaced):
    """Return a copy of the sources in which one has a text replaced."""
    changed = folder / "changed"
    shutil.copytree(FOLDER, changed, ignore=shutil.ignore_patterns("__pycache__"))
    replace_once(changed / source, *replaced)
    return changed


def compiled(folder, macros, sources=FOLDER):
    program = folder / "attention"
    flags = ["-std=c++17", *(f"-D{name}={value}" for name, value in macros.items())]
    compile_once(program, ON_CPU / "attention.cpp", flags, [sources])
    return program


def run_on_cpu(program, tensors, kernel="", seed=1):
    count, tokens, _ = tensors[0].shape
    done = subprocess.run(
        [str(program), str(count), str(tokens), kernel, str(seed)],
        input=b"".join(each.tobytes() for each in tensors),
        capture_output=True, check=True, timeout=PATIENCE_S,
    )  # fmt: skip
    return np.frombuffer(done.stdout, tensors[0].dtype).reshape(tensors[0].shape).astype(float)


def tensor_program(folder, variant: Variant, dim, causal, sources=FOLDER):
    macros = dict(variant.compiled_for(dim, causal=causal).defines)
    macros |= {"SOURCE": f'"{variant.source}"', "HALF": 1, "KERNEL": variant.kernel}
    macros |= {"QUERY_ROWS": variant.query_rows, "MAPS": int(variant.maps)}
    return compiled(folder, macros, sources)
