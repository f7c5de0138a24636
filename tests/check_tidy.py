#!/usr/bin/env python3
"""clang-tidy finds nothing in any source that build/release compiles, or the newest wheel's build if there is one.

A file is looked at again only when something it includes, its flags or .clang-tidy changed:
what passed is remembered in build/release/tidy, under a hash of the preprocessed text.
Names of files as arguments: only those.
"""

import hashlib
import json
import os
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from compile_commands import compile_commands
from sources import ROOT, sources

BUILD = f"{ROOT}/build/release"
PASSED = f"{BUILD}/tidy"
# Clang reads flags that were chosen for GCC; those that it does not know are left out.
GCC_ONLY = ("-fno-ipa-sra", "-fno-partial-inlining", "-fno-tree-loop-distribute-patterns")
TIDY = ["clang-tidy", "--quiet", "-p", PASSED, "--extra-arg=-Wno-unknown-warning-option", "--extra-arg=-Wno-unknown-attributes"]


def for_clang(command):
    return shlex.join(word for word in shlex.split(command) if word not in GCC_ONLY)


def fingerprint(entry, rules):
    command = shlex.split(entry["command"])
    output = command.index("-o")
    del command[output:output + 2]
    text = subprocess.run(command + ["-E", "-C", "-dD"], cwd=entry["directory"], check=True, capture_output=True).stdout
    return hashlib.sha256(b"\0".join([rules, entry["command"].encode(), text])).hexdigest()


def check(entry, rules):
    """What is wrong with a file, or nothing."""
    passed = f"{PASSED}/{fingerprint(entry, rules)}"
    if os.path.exists(passed):
        return ""
    tidy = subprocess.run(TIDY + [entry["file"]], capture_output=True, text=True)
    if tidy.returncode == 0:
        open(passed, "w", encoding="utf-8").close()
        return ""
    return tidy.stdout + (tidy.stderr if "error:" not in tidy.stdout else "")


def main():
    entries = compile_commands(BUILD)
    for database in sorted(Path(f"{ROOT}/build/python").glob("*/compile_commands.json"), key=os.path.getmtime):
        entries |= {name: entry for name, entry in compile_commands(database.parent).items() if name.startswith("python/")}
    wanted = [os.path.relpath(name, ROOT) for name in sys.argv[1:]] or sources(".cc")
    wanted = [name for name in wanted if name in entries]
    with open(f"{ROOT}/.clang-tidy", "rb") as config:
        rules = config.read() + subprocess.run(["clang-tidy", "--version"], check=True, capture_output=True).stdout
    os.makedirs(PASSED, exist_ok=True)
    with open(f"{PASSED}/compile_commands.json", "w", encoding="utf-8") as file:
        json.dump([entry | {"command": for_clang(entry["command"])} for entry in entries.values()], file)
    wrong = 0
    with ThreadPoolExecutor(int(os.environ.get("JOBS") or os.cpu_count())) as pool:
        for findings in pool.map(lambda name: check(entries[name], rules), wanted):
            if findings:
                wrong += 1
                print(findings, end="", flush=True)
    print(f"tidy: {wrong} of {len(wanted)} files have findings" if wrong else f"tidy: {len(wanted)} files, clean")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
