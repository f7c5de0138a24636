"""Which results of two GPUs may have other bits, and why.

The programs of both are the same code of NVRTC, or the same text. IEEE operations in f32, integers and moved elements then have the same
bits. Two things are left to the hardware: in which order and precision a tensor core adds products, and the approximate instructions
behind exp and its like.
"""

import hashlib
import re

# Written in programs as calls, and ops whose kernels call exp.
FUNCTIONS = re.compile(r"\b(exp|expm1|log|log1p|sigmoid|tanh|erf|gelu|pow|sin|sinh|cos|cosh|tan|asinh?|acosh?|atanh?|softplus|mish)\(|"
                       r"\b(Softmax|LogSoftmax|Attention|Recurrent)\b")
TENSOR_CORES = re.compile(r"\.mma\b")


def reason(kernel, layer, operands):
    """Why a kernel's results may have other bits on another GPU, or "". operands: types of the op's inputs, "f16,f16"."""
    if TENSOR_CORES.search(kernel) and "f" in operands:
        return "sums of tensor cores"
    return "functions" if FUNCTIONS.search(layer) else ""


def digests(results):
    """Of a case's runs, {"KERNEL, WAY, PLACEMENT": {"layer", "operands", "digest"}}: a digest for each kernel and reason."""
    groups = {}
    for run, result in sorted(results.items()):
        kernel = run.split(",")[0]
        why = reason(kernel, result["layer"], result["operands"])
        groups.setdefault(f"{kernel}: {why}" if why else kernel, []).append(f"{run} {result['digest']}")
    return {key: hashlib.sha256("\n".join(runs).encode()).hexdigest()[:12] for key, runs in groups.items()}
