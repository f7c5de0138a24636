#!/usr/bin/env python3
"""Runs a program with the virtual card as its GPU.

    on_virtual_card.py --command ANNEAL --card FOLDER --cache FOLDER PROGRAM [ARGUMENT...]

FOLDER of --card has the libcuda.so.1 and the libnvrtc.so.13 of tests/virtual_card. Ends with 77 where NVRTC, which compiles the
kernels, is missing. The PTX that the card runs lies in the cache beside the cubins.
"""

import argparse
import os
import re
import subprocess
import sys

SKIPPED = 77


def nvrtc_of(command):
    """The path that `anneal devices` names."""
    listed = subprocess.run([command, "devices"], text=True, capture_output=True, check=True).stdout
    found = re.search(r"^\s*NVRTC\s+[0-9.]+, (\S+)$", listed, re.MULTILINE)
    return found and found.group(1)


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--command", required=True)
    arguments.add_argument("--card", required=True)
    arguments.add_argument("--cache", required=True)
    arguments.add_argument("program", nargs=argparse.REMAINDER)
    given = arguments.parse_args()
    nvrtc = nvrtc_of(given.command)
    if nvrtc is None:
        print("NVRTC is not here, so nothing runs on the virtual card")
        return SKIPPED
    path = ":".join(filter(None, (given.card, os.environ.get("ANNEAL_CUDA_LIB_PATH"))))
    environment = {**os.environ, "ANNEAL_CUDA_LIB_PATH": path, "ANNEAL_VIRTUAL_CARD_NVRTC": nvrtc,
                   "ANNEAL_VIRTUAL_CARD_PTX": f"{given.cache}/ptx", "ANNEAL_CACHE_DIR": given.cache, "ANNEAL_TEST_DEVICE": "cuda"}
    if not any("--gtest_filter" in each for each in given.program):
        return subprocess.run(given.program, env=environment).returncode
    # GoogleTest ends well where a filter names no test.
    chosen = subprocess.run([*given.program, "--gtest_list_tests"], env=environment, text=True, capture_output=True)
    if not any(line.startswith("  ") for line in chosen.stdout.splitlines()):
        print(f"the filter names no test of {given.program[0]}", file=sys.stderr)
        return 1
    return subprocess.run(given.program, env=environment).returncode


if __name__ == "__main__":
    sys.exit(main())
