#!/usr/bin/env python3
"""Machine code of the plans of the bundle's networks: what it must not contain, and a table of what it does.

    machine_code_test.py DEVICE_CODE ANNEAL [--whole] [--write] [--case PART_OF_NAME] [--keep FOLDER]

DEVICE_CODE is the program of tests/cuda/device_code.cc. ANNEAL builds the networks of bench/gpu/bundle/made_networks.py, with
two blocks of each transformer, for sm_90: seven plans. --whole: in f16 and int8 at batch 1, 8 and 64, for sm_80, sm_90 and
sm_100. The layers of machine_code_cases.py, which no network has, come with both. nvdisasm takes the result apart.

The table is tests/golden/machine_code.txt, of what runs without --whole; --write writes it again. Exit status 77, with a
message, where NVRTC, nvdisasm or a Python with onnx is missing (`make machine-code-tools` installs nvdisasm).

Columns: registers of a thread; bytes of stack; of the main loop its instructions, its matrix instructions, the first over the
second, loads of matrices from shared memory, asynchronous copies, global loads by width in bytes; behind the loop, global
stores by width; the steps that launch the function.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatchcase
from pathlib import Path

import sass
from machine_code_cases import CASES
from machine_code_exceptions import EXCEPTIONS, WHOLE_EXCEPTIONS

sys.dont_write_bytecode = True
sys.path[:0] = [str(sass.ROOT / "bench/gpu"), str(sass.ROOT / "bench")]
from bundle.networks import INPUTS  # noqa: E402

GOLDEN = sass.ROOT / "tests/golden/machine_code.txt"
# NVRTC's version decides the numbers: the table is compared where this one compiled.
GOLDEN_NVRTC = "13.0"
ALWAYS = [("resnet50", "f16", 1), ("resnet50", "f16", 8), ("resnet50", "int8", 8), ("bert_base", "f16", 8), ("vit_b16", "f16", 8),
          ("yolo", "f16", 8), ("unet", "f16", 8)]
WHOLE = [(name, dtype, batch) for name in INPUTS for dtype in ("f16", "int8") for batch in (1, 8, 64)]
ARCHITECTURE, ARCHITECTURES = "sm_90", ("sm_80", "sm_90", "sm_100")
LARGE_TILE = 64
MOST_PER_MATRIX_INSTRUCTION = {"large": 6, "small": 12}
MOST_REGISTERS = 128  # with which kernels/cuda/cost/mma_config.cc counts resident blocks
# CUDA's own, of a division or root of rare operands, and of lanes that have diverged: of a shuffle, or within the function.
RARE_CALL = re.compile(r"__cuda_\w*(slowpath|div_rn_f64_full|shflsync)|`\(\.L_x_")
ON_CUDA_CORES = ("cuda.conv.direct", "cuda.matmul.simt")


def widths_text(widths):
    return " ".join(f"{width}B:{count}" for width, count in sorted(widths.items(), reverse=True)) or "-"


def is_large(tile):
    rows, columns = tile.split(",")[0].split("x")[:2]
    return min(int(rows), int(columns)) >= LARGE_TILE


class Row:
    """One function of a case, with the steps that launch it."""

    def __init__(self, steps, resources, function):
        self.family = resources["name"].rsplit("_", 1)[0]
        self.tile = next((step["tile"] for step in steps if step["kernel"].endswith(".mma")), "")
        self.steps = [step["name"] for step in steps]
        self.registers, self.stack = resources["registers"], resources["stack_bytes"]
        loop = function.main_loop()
        inside = function.opcodes(loop) if loop else []
        behind = function.opcodes((loop[1] + 1, len(function.instructions) - 1)) if loop else function.opcodes()
        everywhere = function.opcodes()
        self.loop, self.matrix = len(inside), sum(map(sass.is_matrix, inside))
        self.ldmatrix = sum(o.startswith("LDSM") for o in inside)
        self.copies = sum(o.startswith("LDGSTS") for o in inside)
        self.loads, self.stores = sass.widths(inside, "LDG"), sass.widths(behind, "STG")
        self.local = sum(o.startswith(("LDL", "STL")) for o in everywhere)
        self.calls_in_loops = sum(opcode.startswith("CALL") and not RARE_CALL.search(operands) for first, last in function.loops
                                  for opcode, operands in function.instructions[first:last + 1])
        self.all_copies = sum(o.startswith("LDGSTS") for o in everywhere)

    def text(self):
        per = f"{self.loop / self.matrix:.1f}" if self.matrix else "-"
        return (f"  {self.family:<18} {self.tile:<32} {self.registers:>4} {self.stack:>6} {self.loop:>6} {self.matrix:>4} {per:>6}"
                f" {self.ldmatrix:>5} {self.copies:>5}  loads {widths_text(self.loads):<12}  stores {widths_text(self.stores):<18}"
                f"  {self.where()}")

    def where(self):
        return self.steps[0] + (f" and {len(self.steps) - 1} more" if len(self.steps) > 1 else "")

    def broken_rules(self):
        """(rule, what breaks it)."""
        if self.local or self.stack:
            yield "local memory", f"{self.local} accesses, {self.stack} bytes of stack"
        if self.calls_in_loops:
            yield "calls in loops", f"{self.calls_in_loops}"
        if not self.matrix:
            return
        if self.registers > MOST_REGISTERS:
            yield "registers", f"{self.registers} of a thread, at most {MOST_REGISTERS} are wanted"
        narrow = sum(count for width, count in self.loads.items() if width < 4)
        if narrow:
            yield "narrow loads", f"{narrow} global loads of 1 or 2 bytes in the loop of matrix instructions"
        most = MOST_PER_MATRIX_INSTRUCTION["large" if self.tile and is_large(self.tile) else "small"]
        if self.loop > most * self.matrix:
            yield "instructions", f"{self.loop / self.matrix:.1f} for a matrix instruction, at most {most} are wanted"
        if not self.all_copies:  # all stages of a shallow product are filled before the loop
            yield "asynchronous copies", "there are none"
        if self.stores and min(self.stores) < 8:
            yield "narrow stores", f"the narrowest store has {min(self.stores)} bytes, at least 8 are wanted"


def has_variables(cubin):
    """Whether a module has memory of its own, which every constant of a type or namespace would get."""
    return b".nv.global" in Path(cubin).read_bytes()


def rows_of(case, nvdisasm):
    for program in case["programs"]:
        functions = None
        for resources in program["functions"]:
            steps = [step for step in case["steps"] if resources["name"] in step["functions"]]
            if not steps:
                continue  # of a kernel that takes the place of the planned one where that is refused
            functions = functions or sass.functions_of(program["file"], nvdisasm)
            yield Row(steps, resources, functions[resources["name"]])


def run(command, **more):
    done = subprocess.run([str(each) for each in command], capture_output=True, text=True, **more)
    if done.returncode not in (0, 77):
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done


def device_code(*command):
    """The cases that device_code prints, and NVRTC's version; None where there is no NVRTC."""
    done = run(command)
    if done.returncode == 77:
        print(f"skipped: {done.stderr.strip()}")
        return None
    report = json.loads(done.stdout)
    return report["cases"], report["nvrtc"]


def python_with_onnx():
    for program in dict.fromkeys((sys.executable, "/usr/bin/python3", "python3")):
        if subprocess.run([program, "-c", "import onnx, numpy"], capture_output=True).returncode == 0:
            return program
    return None


def build_networks(anneal, python, networks, targets, folder):
    """The engine files, "NETWORK TYPE bBATCH.engine"."""
    environment = {**os.environ, "PYTHONPATH": f"{sass.ROOT / 'bench/gpu'}:{sass.ROOT / 'bench'}", "PYTHONDONTWRITEBYTECODE": "1"}

    def write(model):
        name, dtype = model
        run([python, sass.ROOT / "bench/gpu/bundle/made_networks.py", name, folder / f"{name}.{dtype}.onnx", "--shallow",
             *(["--int8"] if dtype == "int8" else [])], env=environment)

    def build(network):
        name, dtype, batch = network
        engine = folder / f"{name} {dtype} b{batch}.engine"
        run([anneal, "build", "-q", folder / f"{name}.{dtype}.onnx", "--fp16", "--no-self-check", "--target", targets, "--shapes",
             INPUTS[name].format(n=batch), "-o", engine])
        return engine

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        list(pool.map(write, sorted({network[:2] for network in networks})))
        return list(pool.map(build, networks))


def compile_cases(flags, python, folder):
    """The cases and NVRTC's version, or None where there is no NVRTC."""
    graphs = folder / "graphs.txt"
    graphs.write_text("".join(f"== {name}\n{text}" for name, text in CASES.items() if flags.case in name))
    layers, engines = folder / "layers", folder / "engines"
    layers.mkdir(), engines.mkdir()
    found = device_code(flags.program, ARCHITECTURE, graphs, layers)
    networks = [each for each in (WHOLE if flags.whole else ALWAYS) if flags.case in "{} {} b{}".format(*each)]
    if found is None or not networks:
        return found
    built = build_networks(flags.anneal, python, networks, ",".join(ARCHITECTURES) if flags.whole else ARCHITECTURE, folder)
    cases, version = device_code(flags.program, engines, *built)
    return found[0] + cases, version


def broken_by_steps(case):
    """Products that keep tensor cores idle. Of the networks alone: the other layers are there for their own kernels."""
    if case["case"] in CASES:
        return
    for step in case["steps"]:
        if step["kernel"] in ON_CUDA_CORES:
            yield f"step {step['name']}", "tensor cores", f"it runs on {step['kernel']}"


def broken_by_modules(case):
    if any(has_variables(program["file"]) for program in case["programs"]):
        yield "module", "variables", "constants of the text have memory in the module; enumerators have none"


def steps_on_cpu(case):
    return [f"{step['op']} {step['name']}" for step in case["steps"] if step["kernel"].startswith("cpu.")]


def is_of(pattern, function):
    """Whether the function is the one of an exception: "... of Conv_3", or "... of Conv_3 and 2 more"."""
    return fnmatchcase(function, pattern) or fnmatchcase(function, pattern + " and * more")


def check(cases, nvdisasm, exceptions):
    """The lines of the table, and what is wrong."""
    lines, problems, unused = [], [], set(exceptions)
    for case in cases:
        lines.append(case["case"])
        rows = sorted(rows_of(case, nvdisasm), key=Row.text)
        lines += [row.text().rstrip() for row in rows]
        lines += [f"  on the CPU: {step}" for step in steps_on_cpu(case)]
        broken = [(f"{row.family} of {row.where()}", *each) for row in rows for each in row.broken_rules()]
        for where, rule, what in [*broken, *broken_by_steps(case), *broken_by_modules(case)]:
            excused = [key for key in exceptions if is_of(key[0], f"{case['case']} {where}") and key[1] == rule]
            unused -= set(excused)
            if not excused:
                problems.append(f"{case['case']}: {where}: {rule}: {what}")
    return lines, problems, unused


def differences(lines, written):
    problems = [f"not in the table: {line}" for line in lines if line not in written]
    problems += [f"in the table only: {line}" for line in written if line not in lines]
    return problems


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("anneal")
    parser.add_argument("--whole", action="store_true")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--case", default="")
    parser.add_argument("--keep", type=Path)
    flags = parser.parse_args()
    nvdisasm, python = sass.find_nvdisasm(), python_with_onnx()
    if nvdisasm is None:
        print("skipped: nvdisasm is not here; `make machine-code-tools` installs it")
        return 77
    if python is None:
        print("skipped: no Python here has onnx and numpy, which write the networks")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        found = compile_cases(flags, python, flags.keep or Path(folder))
        if found is None:
            return 77
        cases, version = found
        lines, problems, unused = check(cases, nvdisasm, {**EXCEPTIONS, **(WHOLE_EXCEPTIONS if flags.whole else {})})
    print("\n".join(lines))
    has_table = not flags.case and not flags.whole
    if has_table and version != GOLDEN_NVRTC:
        print(f"the table is of NVRTC {GOLDEN_NVRTC}, this is {version}: only the rules are checked")
        has_table = False
    if not flags.case:
        problems += [f"no case needs the exception {key}" for key in sorted(unused)]
    if flags.write and has_table:
        GOLDEN.write_text("\n".join(lines) + "\n")
    elif has_table:
        problems += differences(lines, GOLDEN.read_text().splitlines())
    for problem in problems:
        print(f"failed: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
