"""Kernels of cuBLASLt and cuDNN: each op case that one of them accepts, and tests of engines whose plans name them."""

import bundle.engines as engines
import bundle.facts as facts
import bundle.op_cases as op_cases

KERNELS = {"cuBLASLt": "cublaslt", "cuDNN": "cudnn"}
QUICK = ("matmul_", "conv_", "attention_")
TESTS = ("cublas_lt_test", "cudnn_engine_test")


def run(setting, record, end):
    if setting.emulated:
        return "the emulated device has no libraries"
    libraries = facts.devices(setting)[0].get("libraries", {})
    record.set("libraries", {name: libraries.get(name, {}) for name in KERNELS})
    here = {name: kernels for name, kernels in KERNELS.items() if libraries.get(name, {}).get("here")}
    if not here:
        return f"neither {' nor '.join(KERNELS)} is here"
    batches = op_cases.batches_of(setting, end, QUICK)
    if not batches:
        record.add("list", {"error": "cuda_op_suite_test does not list its cases"})
        return None
    for program in TESTS:
        engines.Tests(setting, record, end, program).run_all()
    for kernels in here.values():
        op_cases.Batches(setting, record, end, setting.variants()[0], kernels).run_all(batches)
    op_cases.count_kernels(record)
    for name, kernels in here.items():
        if end.left() > 0 and not any(kernel.startswith(kernels) for kernel in record.value["runs_of_kernels"]):
            record.add(name, {"error": f"no case runs on {kernels}"})
    return None
