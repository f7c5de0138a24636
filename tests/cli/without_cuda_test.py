#!/usr/bin/env python3
"""The command where there is nothing of NVIDIA: engines for CPUs as ever, one sentence about the rest.

NVIDIA's libraries are hidden by ANNEAL_CUDA=0, and, where this process may mount, by empty folders over the toolkit's.

Arguments: the command `anneal`, a model.
"""

import glob
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ANNEAL, MODEL = sys.argv.pop(1), os.path.abspath(sys.argv.pop(1))


def switched_off(*arguments, **options):
    return subprocess.run([ANNEAL, *arguments], env={**os.environ, "ANNEAL_CUDA": "0"}, capture_output=True, text=True,
                          **options)


def hidden(*arguments, **options):
    """In a mount namespace of its own, without the toolkit's folders."""
    empty = tempfile.mkdtemp()
    folders = [folder for folder in {os.path.realpath(f) for f in glob.glob("/usr/local/cuda*")} if os.path.isdir(folder)]
    mounts = [f"mount --bind {empty} {shlex.quote(folder)}" for folder in folders]
    command = " && ".join(mounts + [shlex.join([ANNEAL, *arguments])])
    environment = {name: value for name, value in os.environ.items()
                   if name not in ("LD_LIBRARY_PATH", "ANNEAL_CUDA_LIB_PATH", "CUDA_HOME")}
    return subprocess.run(["unshare", "--mount", "sh", "-c", command], env=environment, capture_output=True, text=True,
                          **options)


class WithoutCuda(unittest.TestCase):
    anneal = staticmethod(switched_off)

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def call(self, *arguments):
        return type(self).anneal(*arguments, cwd=self.folder.name)

    def test_shows_what_is_missing(self):
        shown = self.call("devices")
        self.assertEqual(shown.returncode, 0, shown.stderr)
        for missing in ("cuda:0", "driver", "NVRTC", "cuBLASLt", "cuDNN", "NVML"):
            self.assertRegex(shown.stdout, rf"(?m)^  {missing} +none: ")
        self.assertRegex(shown.stdout, r"(?m)^  cpu +[^n]")

    def test_saves_properties_of_cards_alone(self):
        refused = self.call("devices", "--save-properties", "card.json")
        self.assertNotEqual(refused.returncode, 0)
        self.assertIn("there is no CUDA driver here", refused.stderr)
        refused = self.call("devices", "--save-properties", "card.json", "--device", "emulated")
        self.assertNotEqual(refused.returncode, 0)
        self.assertIn("emulated is no card whose properties can be read", refused.stderr)
        self.assertFalse(Path(self.folder.name, "card.json").exists())

    def test_builds_and_runs_for_the_cpu(self):
        built = self.call("build", MODEL, "-o", "x.engine")
        self.assertEqual(built.returncode, 0, built.stderr)
        ran = self.call("run", "x.engine", "--input", "random")
        self.assertEqual((ran.returncode, ran.stderr), (0, ""))

    def test_refuses_gpus_in_one_sentence(self):
        refused = self.call("build", MODEL, "--target", "sm_90", "-o", "x.engine")
        self.assertNotEqual(refused.returncode, 0)
        self.assertEqual(len(refused.stderr.strip().splitlines()), 1, refused.stderr)
        self.assertIn("NVRTC", refused.stderr)
        self.assertFalse(Path(self.folder.name, "x.engine").exists())
        self.assertEqual(self.call("build", MODEL, "-o", "x.engine").returncode, 0)
        refused = self.call("run", "x.engine", "--input", "random", "--device", "cuda")
        self.assertNotEqual(refused.returncode, 0)
        self.assertEqual(len(refused.stderr.strip().splitlines()), 1, refused.stderr)
        self.assertIn("there is no CUDA driver here", refused.stderr)


class WithoutEmulatedDevice(unittest.TestCase):
    def test_names_the_library_and_where_it_belongs(self):
        with tempfile.TemporaryDirectory() as folder:
            shutil.copy(ANNEAL, f"{folder}/anneal")
            built = subprocess.run([f"{folder}/anneal", "build", MODEL, "--target", "emulated", "-o", f"{folder}/x.engine"],
                                   env={**os.environ, "LD_LIBRARY_PATH": ""}, capture_output=True, text=True)
            self.assertNotEqual(built.returncode, 0)
            self.assertEqual(len(built.stderr.strip().splitlines()), 1, built.stderr)
            self.assertRegex(built.stderr, r"libanneal_emulated\.so.* install it in the folder of libengine")
            built = subprocess.run([f"{folder}/anneal", "build", MODEL, "-o", f"{folder}/x.engine"], capture_output=True)
            self.assertEqual(built.returncode, 0, built.stderr)


def may_hide():
    """Whether all that the loader finds by itself lies in the toolkit's folders, and this process may mount."""
    known = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True).stdout
    paths = re.findall(r"lib(?:cuda|nvrtc|cublasLt|cudnn|nvidia-ml)\.so.* => (.*)", known)
    elsewhere = [path for path in paths if not os.path.realpath(path).startswith("/usr/local/cuda")]
    return not elsewhere and subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode == 0


@unittest.skipUnless(may_hide(), "NVIDIA's libraries cannot be hidden here")
class Hidden(WithoutCuda):
    anneal = staticmethod(hidden)


if __name__ == "__main__":
    unittest.main()
