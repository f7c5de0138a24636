#!/usr/bin/env python3
"""The project's own files: what git tracks, and new files that git does not ignore.

As a program, prints those with the suffixes given as arguments.
"""

import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def sources(*suffixes):
    git = ["git", "-c", "safe.directory=*", "-C", ROOT, "ls-files", "-co", "--exclude-standard", "-z"]
    try:
        names = subprocess.run(git, check=True, capture_output=True).stdout.decode().split("\0")
    except (OSError, subprocess.CalledProcessError):  # an unpacked archive has no .git
        names = []
        for folder, inner, files in os.walk(ROOT):
            inner[:] = [d for d in inner if d != "build" and not d.startswith(".")]
            names += [os.path.relpath(os.path.join(folder, f), ROOT) for f in files]
    return sorted({n for n in names if n.endswith(suffixes) and os.path.isfile(os.path.join(ROOT, n))})


if __name__ == "__main__":
    print("\n".join(sources(*sys.argv[1:])))
