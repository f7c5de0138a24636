"""Machine code of a cubin: functions, loops, and the instructions in them, from what nvdisasm prints."""

import os
import re
import shutil
import subprocess
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,6}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)\s*([^;]*);")
LABEL = re.compile(r"^\.(L_x_\d+):")
BRANCH = re.compile(r"BRA\S*\s.*`\(\.(L_x_\d+)\)")
MATRIX = ("HMMA", "IMMA", "QGMMA", "HGMMA", "IGMMA")


def find_nvdisasm():
    """ANNEAL_NVDISASM, the one in PATH, or the one that `make machine-code-tools` has installed; None if there is none."""
    installed = sorted(ROOT.glob("build/machine-code-tools/**/nvdisasm"))
    return os.environ.get("ANNEAL_NVDISASM") or shutil.which("nvdisasm") or (str(installed[0]) if installed else None)


def is_matrix(opcode):
    return opcode.startswith(MATRIX)


@dataclass
class Function:
    name: str
    instructions: list = field(default_factory=list)  # (opcode, operands)
    loops: list = field(default_factory=list)         # (first, last) instruction of each

    def opcodes(self, loop=None):
        first, last = loop or (0, len(self.instructions) - 1)
        return [opcode for opcode, _ in self.instructions[first:last + 1]]

    def main_loop(self):
        """First and last instruction of the innermost loop that multiplies matrices. Where that is unrolled whole: from the
        first copy or load of a matrix to the last multiplication. Else the loop with the most multiplications, if any."""
        def weight(loop):
            opcodes = self.opcodes(loop)
            matrices = sum(map(is_matrix, opcodes))
            products = sum(o.startswith(("FFMA", "FMUL", "IMAD", "IDP")) for o in opcodes)
            return (matrices > 0, matrices, products, -len(opcodes))
        opcodes, loop = self.opcodes(), max(self.loops, key=weight, default=None)
        if any(map(is_matrix, opcodes)) and not (loop and weight(loop)[0]):
            parts = [i for i, opcode in enumerate(opcodes) if is_matrix(opcode) or opcode.startswith(("LDSM", "LDGSTS"))]
            return parts[0], max(i for i in parts if is_matrix(opcodes[i]))
        return loop


def functions_of(cubin, nvdisasm):
    """The functions of a cubin that can be launched, by name."""
    text = subprocess.run([nvdisasm, "-c", cubin], check=True, capture_output=True, text=True).stdout
    found = {}
    for part in re.split(r"(?=\.section\s+\.text\.)", text):
        head = re.match(r"\.section\s+\.text\.(\w+)", part)
        if not head:
            continue
        function, labels = Function(head.group(1)), {}
        for line in part.splitlines():
            label, instruction = LABEL.match(line), INSTRUCTION.search(line)
            if label:
                labels[label.group(1)] = len(function.instructions)
            if instruction:
                branch = BRANCH.search(line)
                here = len(function.instructions)
                if branch and labels.get(branch.group(1), here + 1) <= here:
                    function.loops.append((labels[branch.group(1)], here))
                if instruction.group(1) != "NOP":
                    function.instructions.append((instruction.group(1), instruction.group(2)))
        # An instruction that branches to itself ends a function and is no loop.
        function.loops = [loop for loop in function.loops if loop[0] < loop[1]]
        found[function.name] = function
    return found


def width_of(opcode):
    """Bytes that a load or store of one thread moves: "LDG.E.U16" 2, "STG.E.128" 16."""
    for suffix, width in (("128", 16), ("64", 8), ("U16", 2), ("S16", 2), ("U8", 1), ("S8", 1), ("16", 2), ("8", 1)):
        if suffix in opcode.split("."):
            return width
    return 4


def widths(opcodes, kind):
    """How many loads or stores of each width: {16: 4, 2: 1}."""
    return Counter(width_of(opcode) for opcode in opcodes if opcode.split(".")[0] == kind)
