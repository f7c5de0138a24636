#!/usr/bin/env python3
"""Engines that name cuBLASLt where the library is another one or missing: they run the recorded runner-up.

    cublas_lt_test.py CUBLAS_LT_TEST FAKE_FOLDER    run it by on_virtual_card.py
"""

import os
import subprocess
import sys
import tempfile
import unittest

PROGRAM, FAKE = sys.argv[1], sys.argv.pop(2)
sys.argv.pop(1)


class EngineOfTheLibrary(unittest.TestCase):
    def run_test(self, name, **settings):
        environment = {**os.environ, **settings}
        done = subprocess.run([PROGRAM, f"--gtest_filter=CublasLtEngine.{name}"], text=True, env=environment,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("[  PASSED  ] 1 test.", done.stdout)
        self.assertNotIn("SKIPPED", done.stdout)

    def test_the_runner_up_runs(self):
        with_fake = {"ANNEAL_CUDA_LIB_PATH": f"{os.environ['ANNEAL_CUDA_LIB_PATH']}:{FAKE}"}
        with tempfile.TemporaryDirectory() as folder:
            engine = {"ANNEAL_CUBLAS_LT_ENGINE": f"{folder}/two.engine"}
            self.run_test("RunsAPlanThatNamesTheLibrary", **engine, **with_fake)
            other = "RunsTheRunnerUpWhereTheLibraryRefuses"
            # No NVRTC: a call of it would end the process. The code of the runner-up is in the file.
            no_compiler = {"ANNEAL_VIRTUAL_CARD_NVRTC": f"{folder}/none.so", "ANNEAL_CACHE_DIR": f"{folder}/cache"}
            self.run_test(other, **engine, **with_fake, **no_compiler, ANNEAL_FAKE_CUBLAS_LT_VERSION="130200",
                          ANNEAL_CUBLAS_LT_WHY="recorded by cuBLASLt 13.1.0, and 13.2.0 is installed")
            # Without the fake. The real library, where it is installed, has no card.
            self.run_test(other, **engine, **no_compiler, ANNEAL_CUBLAS_LT_WHY="cuBLASLt is missing|cublasLtCreate: ")


if __name__ == "__main__":
    unittest.main()
