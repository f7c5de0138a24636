#!/usr/bin/env python3
"""Checks that each source compiles alone, though cmake/unity.cmake compiles those of a folder as one file.

    compile_alone.py BUILD [FOLDER]...    of a unity build, with its flags; without folders: all of its sources

A file that lacks an include, or uses another file's local name, compiles in the unity build only. Nothing is written:
the compiler stops after checking.
"""

import json
import os
import re
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from sources import ROOT


def commands(build, folders):
    """(source, command, where to run it) for each source that a unity file includes."""
    with open(f"{build}/compile_commands.json", encoding="utf-8") as file:
        entries = json.load(file)
    for entry in entries:
        if not entry["file"].startswith(f"{os.path.abspath(build)}/unity/"):
            continue
        words = shlex.split(entry["command"])
        # Without the compiler cache, the output and the unity file.
        while not re.search(r"(\+\+|g\+\+-\d+|clang\+\+(-\d+)?)$", words[0]):
            words = words[1:]
        at = words.index("-o")
        flags = [word for word in words[:at] + words[at + 2:] if word not in ("-c", entry["file"])]
        with open(entry["file"], encoding="utf-8") as unity:
            for path in re.findall(r'^#include "anneal/(.+)"$', unity.read(), re.MULTILINE):
                if not folders or path.startswith(tuple(folders)):
                    yield path, [*flags, "-Werror", "-fsyntax-only", f"{ROOT}/{path}"], entry["directory"]


def main(build, *folders):
    jobs = sorted(commands(build, folders))
    if not jobs:
        print(f"{build} is no unity build, or has no sources in {' '.join(folders)}")
        return 1

    def compile_alone(job):
        path, command, folder = job
        done = subprocess.run(command, cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        return f"{path} does not compile alone:\n{done.stdout}" if done.returncode != 0 else ""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        failed = [text for text in pool.map(compile_alone, jobs) if text]
    print(*failed, sep="\n", end="")
    print(f"{len(jobs) - len(failed)} of {len(jobs)} sources compile alone")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
