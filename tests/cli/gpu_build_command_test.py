#!/usr/bin/env python3
"""What `anneal build` says about plans of GPUs.

    gpu_build_command_test.py PATH_OF_ANNEAL
"""

import json
import unittest

from command_case import Command, model, node, value_info

# An input that is an output, too, is copied.
PASSED_ON = model([node("Abs", ["x"], ["y"], "abs"), node("Identity", ["x"], ["z"], "same")], [value_info("x", [2, 3])],
                  [value_info("y", [2, 3]), value_info("z", [2, 3])])


class GpuBuild(Command):
    def test_copies_of_ports_are_no_steps_of_the_cpu(self):
        self.write("m.onnx", PASSED_ON)
        self.anneal("build", "m.onnx", "--target", "emulated", "--no-fallback", "--report", "r.json",
                    out="emulated: 1 of 1 step run on the GPU, with 3 copy steps")
        [plan] = json.loads((self.at / "r.json").read_text())["plans"]
        self.assertEqual((plan["gpu_steps"], plan["cpu_steps"], plan["transfers"], plan["on_the_cpu"]), (1, 0, 3, []))


if __name__ == "__main__":
    unittest.main()
