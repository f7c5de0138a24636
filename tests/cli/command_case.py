"""Running the built command on small models made here. The command is the first argument of the script.
"""

import os
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ANNEAL = sys.argv.pop(1)
F32, U8, I8, I64 = 1, 2, 3, 7


def varint(value):
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes(out) + bytes([value])


def field(number, value):
    """One protobuf field: an int, or bytes, or text."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    value = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(value)) + value


def value_info(name, dims, dtype=F32):
    sizes = b"".join(field(1, field(2 if isinstance(d, str) else 1, d)) for d in dims)
    return field(1, name) + field(2, field(1, field(1, dtype) + field(2, sizes)))


def node(op, inputs, outputs, name):
    return b"".join(field(1, i) for i in inputs) + b"".join(field(2, o) for o in outputs) + field(3, name) + field(4, op)


def model(nodes, inputs, outputs, initializers=()):
    graph = (b"".join(field(1, n) for n in nodes) + field(2, "tiny") + b"".join(field(5, i) for i in initializers) +
             b"".join(field(11, i) for i in inputs) + b"".join(field(12, o) for o in outputs))
    return field(1, 8) + field(2, "command_test") + field(7, graph) + field(8, field(2, 13))


def tensor(dims, values, dtype=F32):
    form = {F32: "f", I64: "q"}[dtype]
    return (b"".join(field(1, d) for d in dims) + field(2, dtype) +
            field(9, struct.pack(f"<{len(values)}{form}", *values)))


def npy(dims, values, descr="<f4", form="f"):
    header = repr({"descr": descr, "fortran_order": False, "shape": tuple(dims)}).encode() + b"\n"
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header + struct.pack(f"<{len(values)}{form}", *values)


ABS = model([node("Abs", ["x"], ["y"], "abs")], [value_info("x", [2, 3])], [value_info("y", [2, 3])])
ADD = model([node("Add", ["a", "b"], ["y"], "add")], [value_info("a", ["N", 3]), value_info("b", ["N", 3])],
            [value_info("y", ["N", 3])])
# A sum along an axis keeps what stands before and behind it apart; abs and neg become one step.
CHAIN = model([node("Abs", ["x"], ["a"], "abs"), node("Neg", ["a"], ["p/b"], "neg"),
               node("CumSum", ["p/b", "axis"], ["p:b"], "sum"), node("Exp", ["p:b"], ["y"], "exp")],
              [value_info("x", [2, 3])], [value_info("y", [2, 3])], [tensor([], [1], I64) + field(8, "axis")])

def graph(nodes, inputs, outputs):
    return (b"".join(field(1, n) for n in nodes) + field(2, "body") + b"".join(field(11, i) for i in inputs) +
            b"".join(field(12, o) for o in outputs))


ROW = graph([node("Softmax", ["x1"], ["s"], "softmax"), node("ReduceSum", ["s"], ["t"], "sum"),
             node("Add", ["s", "t"], ["z"], "add")], [value_info("x1", [3])], [value_info("z", [3])])
SCAN = model([node("Scan", ["x"], ["y"], "rows") + field(5, field(1, "body") + field(6, ROW) + field(20, 5)) +
              field(5, field(1, "num_scan_inputs") + field(3, 1) + field(20, 2))],
             [value_info("x", [2, 3])], [value_info("y", [2, 3])])
STRANGE = model([node("NoSuchOperator", ["x"], ["y"], "strange")], [value_info("x", [2])], [value_info("y", [2])])


# A warning of builds in int8, on machines whose CPU has none.
NO_VNNI = "has no VNNI here, so int8 may be as slow as f32"


class Command(unittest.TestCase):
    """A folder of its own, and the command run in it."""

    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory(prefix="anneal-command-")
        self.addCleanup(self.scratch.cleanup)
        self.at = Path(self.scratch.name)

    def anneal(self, *arguments, status=0, says=(), out=(), env=None):
        done = subprocess.run([ANNEAL, *map(str, arguments)], capture_output=True, text=True, cwd=self.at,
                              env={**os.environ, **(env or {})}, timeout=120)
        told = f"anneal {' '.join(map(str, arguments))}\n{done.stdout}{done.stderr}"
        self.assertEqual(done.returncode, status, told)
        if status == 0 and not says:
            unexpected = [line for line in done.stderr.splitlines() if NO_VNNI not in line]
            self.assertEqual(unexpected, [], told)
        if status not in (0, 1):
            lines = done.stderr.rstrip("\n")
            self.assertTrue(lines.startswith("anneal: error: "), told)
            self.assertNotIn("internal", lines, told)
        for text in [says] if isinstance(says, str) else says:
            self.assertIn(text, done.stderr, told)
        for text in [out] if isinstance(out, str) else out:
            self.assertIn(text, done.stdout, told)
        return done.stdout

    def skip_if_freed_memory_is_kept(self):
        if b"__asan_init" in Path(ANNEAL).read_bytes():
            self.skipTest("the address sanitizer keeps memory that was freed")

    def write(self, name, content):
        path = self.at / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    def build(self, content, name="m"):
        self.write(f"{name}.onnx", content)
        self.anneal("build", f"{name}.onnx")
        return f"{name}.engine"

    def files(self):
        return sorted(str(p.relative_to(self.at)) for p in self.at.rglob("*") if p.is_file())
