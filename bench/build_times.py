#!/usr/bin/env python3
"""Where a build spends its time, from ninja's log: seconds by folder, the slowest files, and the time that all of it takes.

    build_times.py [BUILD] [--cores N] [--target FILE ...]

BUILD is a build folder (default: build/release). A step counts with its latest entry. Steps that a compiler cache answered
count with the time of the answer, so measure with CCACHE_DISABLE=1. --target FILE counts only what these outputs need
(bin/anneal, say). With --cores the sum is divided by N: what a quiet machine would need, since ninja keeps all cores busy
until the last links.
"""

import argparse
import collections
import re
import subprocess
import sys
from pathlib import Path


def steps_of(build):
    """{output: seconds} of the latest entry of each output."""
    lines = (Path(build) / ".ninja_log").read_text().splitlines()
    if not lines or not lines[0].startswith("# ninja log"):
        raise SystemExit(f"{build}/.ninja_log is no log of ninja")
    steps = {}
    for line in lines[1:]:
        start, end, _, output, _ = line.split("\t")
        steps[output] = (int(end) - int(start)) / 1000
    return steps


def needed(build, targets):
    """All outputs that the targets need, themselves included."""
    listed = subprocess.run(["ninja", "-C", build, "-t", "inputs", *targets], check=True, capture_output=True, text=True)
    return set(listed.stdout.split("\n")) | set(targets)


def source_of(output):
    """CMakeFiles/x.dir/kernels/cpu/gemm/blocks.cc.o, tests/cli/CMakeFiles/cli_test.dir/a.cc.o -> the source's path."""
    match = re.fullmatch(r"(?:(.*)/)?CMakeFiles/[^/]+\.dir/(.*)\.o", output)
    if match is None:
        return None
    # All files of a folder as one (cmake/unity.cmake): unity/TARGET/FOLDER.cc -> FOLDER/*.cc.
    folder = re.fullmatch(r"unity/[^/]+/(.*)\.cc", match[2])
    return f"{folder[1]}/*.cc" if folder else "/".join(part for part in match.groups() if part)


def folder_of(source):
    parts = source.split("/")[:-1]
    return "/".join(parts[:2]) if parts[:1] in (["kernels"], ["engine"], ["tests"]) else "/".join(parts[:1]) or "."


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", nargs="?", default="build/release")
    parser.add_argument("--cores", type=int, default=1)
    parser.add_argument("--target", action="append", default=[])
    flags = parser.parse_args()
    steps = steps_of(flags.build)
    if flags.target:
        wanted = needed(flags.build, flags.target)
        steps = {output: seconds for output, seconds in steps.items() if output in wanted}
    folders, files = collections.Counter(), {}
    for output, seconds in steps.items():
        source = source_of(output)
        folders[folder_of(source) if source else "linking and generating"] += seconds
        if source:
            files[source] = seconds
    total = sum(steps.values())
    print(f"{len(files)} files compiled, {total:.0f} s in all; on {flags.cores} cores {total / flags.cores / 60:.1f} min")
    for folder, seconds in folders.most_common():
        print(f"{seconds:8.1f} s  {folder}")
    print("the slowest files:")
    for source, seconds in sorted(files.items(), key=lambda item: -item[1])[:20]:
        print(f"{seconds:8.1f} s  {source}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
