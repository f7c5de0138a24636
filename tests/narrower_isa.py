#!/usr/bin/env python3
"""Runs a command whose environment sets ANNEAL_MAX_ISA, on a CPU with more instructions than that.

    narrower_isa.py ANNEAL COMMAND [ARGUMENT]...

On another CPU the setting changes nothing, and the same command runs as a test without it: this one is skipped (77).
"""

import os
import re
import subprocess
import sys


def instructions(anneal, environment):
    """"avx2" of the line of `anneal devices` that names the CPU."""
    text = subprocess.run([anneal, "devices"], env=environment, text=True, stdout=subprocess.PIPE, check=True).stdout
    return re.search(r"^ *cpu .* (\S+) instructions", text, re.MULTILINE)[1]


def main(anneal, *command):
    setting = os.environ["ANNEAL_MAX_ISA"]
    unlimited = {name: value for name, value in os.environ.items() if name != "ANNEAL_MAX_ISA"}
    if instructions(anneal, os.environ) == instructions(anneal, unlimited):
        print(f"skipped: ANNEAL_MAX_ISA={setting} changes nothing on this CPU, which has no more instructions")
        return 77
    return subprocess.call(command)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
