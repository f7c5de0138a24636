#!/usr/bin/env python3
"""Engines that name cuDNN in another process: with the library, with another version of it, and without it.

    engine_test.py CUDNN_ENGINE_TEST FAKE_FOLDER    run it by on_virtual_card.py

No process but the first may compile: its NVRTC is hidden, and a call would end it.
"""

import os
import subprocess
import sys
import tempfile
import unittest

PROGRAM, FAKE = sys.argv[1:3]
del sys.argv[1:3]


class EngineThatNamesCudnn(unittest.TestCase):
    def run_test(self, name, library_folder, **settings):
        path = f"{library_folder}:{os.environ['ANNEAL_CUDA_LIB_PATH']}"
        done = subprocess.run([PROGRAM, f"--gtest_filter=CudnnEngine.{name}"], text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, env={**os.environ, "ANNEAL_CUDA_LIB_PATH": path, **settings})
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("[  PASSED  ] 1 test.", done.stdout)
        self.assertNotIn("SKIPPED", done.stdout)

    def test_engine(self):
        with tempfile.TemporaryDirectory() as folder:
            engine = {"ANNEAL_CUDNN_ENGINE": f"{folder}/images.engine"}
            self.run_test("IsWritten", FAKE, **engine)
            engine |= {"ANNEAL_VIRTUAL_CARD_NVRTC": f"{folder}/none.so", "ANNEAL_CACHE_DIR": f"{folder}/cache"}
            self.run_test("IsReadAndRuns", FAKE, **engine)
            runner_up = "IsReadAndRunsTheRunnerUp"
            self.run_test(runner_up, FAKE, **engine, ANNEAL_FAKE_CUDNN_VERSION="92000",
                          ANNEAL_CUDNN_WHY="the plan is of cuDNN 9.19.0, and this one is 9.20.0")
            self.run_test(runner_up, FAKE, **engine, ANNEAL_FAKE_CUDNN_FAILS="load",
                          ANNEAL_CUDNN_WHY="loading a plan: CUDNN_STATUS_NOT_SUPPORTED")
            # Without the fake. The real library, where it is installed, has no card.
            self.run_test(runner_up, folder, **engine,
                          ANNEAL_CUDNN_WHY="libcudnn.so.9: |reading the properties of .*CUDNN_STATUS_NOT_INITIALIZED")


if __name__ == "__main__":
    unittest.main()
