#!/usr/bin/env python3
"""An op without traits does not compile, and the compiler names the op and every missing trait.

    op_traits_test.py COMPILER INCLUDE

COMPILER compiles C++20; INCLUDE: the folder in which "anneal/graph/op/op.h" is found.
"""

import os
import re
import subprocess
import sys
import tempfile
import unittest

GRAPH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "graph", "op")
STRUCT = """struct Scratch {
  static void fields(auto&, auto&&) {}
  bool operator==(const Scratch&) const = default;
};
"""


def read(name):
    with open(os.path.join(GRAPH, name), encoding="utf-8") as file:
        return file.read()


def traits():
    fields = re.search(r"struct OpTraits \{(.*?)\n\};", read("op_traits.h"), re.S).group(1)
    return re.findall(r"^  std::optional<\w+> (\w+);", fields, re.M)


class OpTraits(unittest.TestCase):
    def compile(self, ops, op_traits):
        """What the compiler says of op_traits.cc with these texts of the two headers."""
        with tempfile.TemporaryDirectory() as scratch:
            folder = os.path.join(scratch, "anneal", "graph", "op")
            os.makedirs(folder)
            for name, text in (("ops.h", ops), ("op_traits.h", op_traits)):
                with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                    file.write(text)
            done = subprocess.run(
                [COMPILER, "-std=c++20", "-fsyntax-only", "-I", scratch, "-I", INCLUDE, os.path.join(GRAPH, "op_traits.cc")],
                capture_output=True, text=True, check=False, env={**os.environ, "LC_ALL": "C"})
            return done.returncode, done.stderr

    def with_scratch(self):
        ops = read("ops.h").replace("#define ANNEAL_FOR_EACH_OP(X) \\\n",
                                    STRUCT + "#define ANNEAL_FOR_EACH_OP(X) \\\n  X(Scratch) \\\n")
        self.assertNotEqual(ops, read("ops.h"))
        return ops

    def test_all_ops_have_all_traits(self):
        status, said = self.compile(read("ops.h"), read("op_traits.h"))
        self.assertEqual(status, 0, said)

    def test_an_op_without_traits(self):
        status, said = self.compile(self.with_scratch(), read("op_traits.h"))
        self.assertNotEqual(status, 0)
        self.assertIn("Scratch", said)
        self.assertGreaterEqual(len(traits()), 9)
        for trait in traits():
            self.assertIn(f"the trait `{trait}` is missing", said)

    def test_an_op_without_one_trait(self):
        """Each of them left out of the entry of an op that is there."""
        entry = re.search(r"op_traits<Transpose> = \{.*?\};", read("op_traits.h"), re.S).group(0)
        for left_out in traits()[1:3]:
            without = re.sub(rf"\.{left_out} = [^.]*?(,|(?=\}};))\s*(?=\.|\}};)", "", entry)
            self.assertNotEqual(without, entry)
            status, said = self.compile(read("ops.h"), read("op_traits.h").replace(entry, without))
            self.assertNotEqual(status, 0, left_out)
            self.assertIn("Transpose", said)
            for trait in traits():
                self.assertEqual(f"the trait `{trait}` is missing" in said, trait == left_out, said)


if __name__ == "__main__":
    COMPILER, INCLUDE = sys.argv[1:3]
    unittest.main(argv=sys.argv[:1])
