#!/usr/bin/python3
"""Small models that once failed: one of each kind of fault that public bug reports found.

    repro_test.py ANNEAL FOLDER

FOLDER has a folder for each: model.onnx with in_NAME.npy and expected_N.npy or expected0.npz, or with test_data_set_0. Each is
built plainly, with --exact, without passes, for AVX2 and for the emulated GPU; the half_* also in 16 and 8 bits. Needs numpy.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

try:
    import numpy
except ImportError:
    print("numpy is not here")
    sys.exit(77)

WAYS = {"plain": [], "exact": ["--exact"], "without passes": ["--skip-pass", "all"], "AVX2": ["--target", "cpu:avx2"],
        "emulated": ["--target", "emulated"]}
REDUCED = {"fp16": ["--fp16"], "bf16": ["--bf16"], "best": ["--best"], "int8": ["--int8", "--calibrate"]}
# A model whose fault needs a range of sizes, and one whose default value the caller replaces.
FLAGS = {"range_fixed_inputs": ["--min-shapes", "x:1x4x8", "--opt-shapes", "x:1x16x8", "--max-shapes", "x:1x32x8"],
         "io_default_overridden": ["--default-inputs", "all"]}
# The file has results of onnxruntime, which differ from its own without optimizations, and ONNX's evaluator, by 0.7 %.
LOOSE = {"int4_value_info": 0.01}
# Caches that onnxruntime left unwritten in part: the file has NaN there.
UNKNOWN = {("gqa_sliding_window_cache", "ok"), ("gqa_sliding_window_cache", "ov")}
# The largest difference, as a share of the largest value.
F32, REDUCED_LOSS = 1e-4, 0.02


def call(*command):
    done = subprocess.run([str(each) for each in command], capture_output=True, text=True, timeout=600)
    return done.returncode, (done.stdout + done.stderr).strip()


def difference(right, value):
    """As a share of the largest right value; infinite where shapes, integers, NaN or infinities differ."""
    if right.shape != value.shape:
        return numpy.inf
    if right.dtype.kind not in "fc":
        return 0 if numpy.array_equal(right, value) else numpy.inf
    right, value = right.astype("float64"), value.astype("float64")
    finite = numpy.isfinite(right)
    if not numpy.array_equal(right[~finite], value[~finite], equal_nan=True):
        return numpy.inf
    if not finite.any():
        return 0
    return numpy.abs(right[finite] - value[finite]).max() / max(1e-30, numpy.abs(right[finite]).max())


class Case:
    def __init__(self, folder):
        self.folder, self.name, self.model = folder, folder.name, folder / "model.onnx"
        self.inputs = {path.stem[3:]: path for path in sorted(folder.glob("in_*.npy"))}
        self.right = [numpy.load(path) for path in sorted(folder.glob("expected_*.npy"))]
        if (folder / "expected0.npz").exists():
            self.right = list(numpy.load(folder / "expected0.npz").values())

    def fault(self, anneal, scratch, flags, most):
        engine, results = scratch / "model.engine", scratch / "results"
        status, text = call(anneal, "build", self.model, "-o", engine, *flags, *FLAGS.get(self.name, []))
        if status != 0:
            return f"cannot be built: {text[-300:]}"
        if not self.right:
            return ""
        for old in results.glob("*"):
            old.unlink()
        device = ["--device", "emulated"] if "emulated" in flags else []
        given = [part for name, path in self.inputs.items() for part in ("--input", f"{name}={path}")]
        status, text = call(anneal, "run", engine, "--save", results, *device, *given)
        if status != 0:
            return f"cannot be run: {text[-300:]}"
        outputs = json.loads(call(anneal, "inspect", engine, "--json")[1])["plans"][0]["outputs"]
        for port, right in zip(outputs, self.right):
            if (self.name, port["name"]) in UNKNOWN:
                continue
            found = difference(right, numpy.load(results / f"{port['name']}.npy"))
            if not found <= most:
                return f"output {port['name']} differs by {100 * found:.2g} % of its largest value"
        return ""

    def faults(self, anneal, scratch):
        if (self.folder / "test_data_set_0").exists():
            for way, flags in WAYS.items():
                status, text = call(anneal, "check", self.folder, "--atol", "1e-4", *flags)
                yield way, "" if status == 0 else text[-300:]
            return
        for way, flags in WAYS.items():
            yield way, self.fault(anneal, scratch, flags, LOOSE.get(self.name, F32))
        if self.name.startswith("half_"):
            samples = scratch / f"{self.name}_samples"
            samples.mkdir()
            for name, path in self.inputs.items():
                (samples / f"{name}.npy").write_bytes(path.read_bytes())
            has_floats = any(numpy.load(path).dtype.kind == "f" for path in self.inputs.values())
            for way, flags in REDUCED.items():
                if way != "int8" or has_floats:
                    yield way, self.fault(anneal, scratch, [*flags, *([samples] if way == "int8" else [])], REDUCED_LOSS)


def main(anneal, folder):
    cases = [Case(path.parent) for path in sorted(Path(folder).glob("*/model.onnx"))]
    if not cases:
        print(f"{folder} has no models")
        return 77
    wrong = 0
    for case in cases:
        with tempfile.TemporaryDirectory(prefix="anneal-repro-") as scratch:
            for way, fault in case.faults(anneal, Path(scratch)):
                wrong += bool(fault)
                print(f"{case.name}, {way}: {fault or 'right'}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
