#!/usr/bin/env python3
"""Machine code of the main GPU kernels: what it must not contain, and a table of what it does.

    machine_code_test.py DEVICE_CODE [--write] [--case PART_OF_NAME] [--target sm_90] [--keep FOLDER]

DEVICE_CODE is the program of tests/cuda/device_code.cc. NVRTC compiles the layers of machine_code_cases.py and nvdisasm
takes the result apart. The table is tests/golden/machine_code.txt; --write writes it again. Exit status 77, with a
message, where NVRTC or nvdisasm is missing (`make machine-code-tools` installs nvdisasm).

Columns: registers of a thread; bytes of stack; of the main loop its instructions, its matrix instructions, the first over the
second, loads of matrices from shared memory, asynchronous copies, global loads by width in bytes; behind the loop, global
stores by width.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import sass
from machine_code_cases import CASES

GOLDEN = sass.ROOT / "tests/golden/machine_code.txt"
# NVRTC's version decides the numbers: the table is compared where this one compiled.
GOLDEN_NVRTC = "13.0"
LARGE_TILE = 64
MOST_PER_MATRIX_INSTRUCTION = {"large": 6, "small": 12}
# (part of the case's name, rule): why the case may break the rule.
EXCEPTIONS = {
    ("conv i8 8x3x224x224", "instructions"): "a pixel of three bytes allows no copy of more than 4 bytes",
    ("256 of 3x3 in 32 groups", "narrow stores"): "NVRTC splits the store of 16 bytes into four of 4",
}


def widths_text(widths):
    return " ".join(f"{width}B:{count}" for width, count in sorted(widths.items(), reverse=True)) or "-"


def is_large(tile):
    rows, columns = tile.split(",")[0].split("x")[:2]
    return min(int(rows), int(columns)) >= LARGE_TILE


class Row:
    """One function of a case."""

    def __init__(self, tile, resources, function):
        self.family = resources["name"].rsplit("_", 1)[0]
        self.tile, self.registers, self.stack = tile, resources["registers"], resources["stack_bytes"]
        loop = function.main_loop()
        inside = function.opcodes(loop) if loop else []
        behind = function.opcodes((loop[1] + 1, len(function.instructions) - 1)) if loop else function.opcodes()
        everywhere = function.opcodes()
        self.loop, self.matrix = len(inside), sum(map(sass.is_matrix, inside))
        self.ldmatrix = sum(o.startswith("LDSM") for o in inside)
        self.copies = sum(o.startswith("LDGSTS") for o in inside)
        self.loads, self.stores = sass.widths(inside, "LDG"), sass.widths(behind, "STG")
        self.local = sum(o.startswith(("LDL", "STL")) for o in everywhere)
        self.calls_in_loops = sum(o.startswith("CALL") for each in function.loops for o in function.opcodes(each))

    def text(self):
        per = f"{self.loop / self.matrix:.1f}" if self.matrix else "-"
        return (f"  {self.family:<18} {self.tile:<32} {self.registers:>4} {self.stack:>6} {self.loop:>6} {self.matrix:>4} {per:>6}"
                f" {self.ldmatrix:>5} {self.copies:>5}  loads {widths_text(self.loads)}  stores {widths_text(self.stores)}")

    def broken_rules(self):
        """(rule, what breaks it)."""
        if self.local or self.stack:
            yield "local memory", f"{self.local} accesses, {self.stack} bytes of stack"
        if self.calls_in_loops:
            yield "calls in loops", f"{self.calls_in_loops}"
        if not self.matrix:
            return
        narrow = sum(count for width, count in self.loads.items() if width < 4)
        if narrow:
            yield "narrow loads", f"{narrow} global loads of 1 or 2 bytes in the loop of matrix instructions"
        most = MOST_PER_MATRIX_INSTRUCTION["large" if self.tile and is_large(self.tile) else "small"]
        if self.loop > most * self.matrix:
            yield "instructions", f"{self.loop / self.matrix:.1f} for a matrix instruction, at most {most} are wanted"
        if not self.copies:
            yield "asynchronous copies", "there are none"
        if self.stores and min(self.stores) < 8:
            yield "narrow stores", f"the narrowest store has {min(self.stores)} bytes, at least 8 are wanted"


def rows_of(case, nvdisasm):
    tiles = {step["kernel"]: step["tile"] for step in case["steps"] if step["tile"]}
    for program in case["programs"]:
        functions = sass.functions_of(program["file"], nvdisasm)
        for resources in program["functions"]:
            family = resources["name"].rsplit("_", 1)[0]
            tile = next((tile for kernel, tile in tiles.items() if kernel == "cuda." + family.replace("_", ".")), "")
            yield Row(tile, resources, functions[resources["name"]])


def compile_cases(program, target, names, folder):
    """What device_code prints, or None where there is no NVRTC."""
    graphs = Path(folder) / "graphs.txt"
    graphs.write_text("".join(f"== {name}\n{CASES[name]}" for name in names))
    done = subprocess.run([program, target, graphs, folder], capture_output=True, text=True)
    if done.returncode == 77:
        print(f"skipped: {done.stderr.strip()}")
        return None
    if done.returncode != 0:
        sys.exit(done.stderr)
    return json.loads(done.stdout)


def check(cases, nvdisasm):
    """The lines of the table, and what is wrong."""
    lines, problems, unused = [], [], set(EXCEPTIONS)
    for case in cases:
        lines.append(case["case"])
        for row in sorted(rows_of(case, nvdisasm), key=Row.text):
            lines.append(row.text().rstrip())
            for rule, what in row.broken_rules():
                excused = [key for key in EXCEPTIONS if key[0] in case["case"] and key[1] == rule]
                unused -= set(excused)
                if not excused:
                    problems.append(f"{case['case']}: {row.family}: {rule}: {what}")
    return lines, problems, unused


def differences(lines, written):
    problems = [f"not in the table: {line}" for line in lines if line not in written]
    problems += [f"in the table only: {line}" for line in written if line not in lines]
    return problems


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--case", default="")
    parser.add_argument("--target", default="sm_90")
    parser.add_argument("--keep")
    arguments = parser.parse_args()
    nvdisasm = sass.find_nvdisasm()
    if nvdisasm is None:
        print("skipped: nvdisasm is not here; `make machine-code-tools` installs it")
        return 77
    names = [name for name in CASES if arguments.case in name]
    if not names:
        sys.exit(f"no case has \"{arguments.case}\" in its name")
    with tempfile.TemporaryDirectory() as folder:
        report = compile_cases(arguments.program, arguments.target, names, arguments.keep or folder)
        if report is None:
            return 77
        lines, problems, unused = check(report["cases"], nvdisasm)
    print("\n".join(lines))
    is_whole = not arguments.case and arguments.target == "sm_90"
    if is_whole and report["nvrtc"] != GOLDEN_NVRTC:
        print(f"the table is of NVRTC {GOLDEN_NVRTC}, this is {report['nvrtc']}: only the rules are checked")
        is_whole = False
    if is_whole:
        problems += [f"no case needs the exception {key}" for key in sorted(unused)]
    if arguments.write and is_whole:
        GOLDEN.write_text("\n".join(lines) + "\n")
    elif is_whole:
        problems += differences(lines, GOLDEN.read_text().splitlines())
    for problem in problems:
        print(f"failed: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
