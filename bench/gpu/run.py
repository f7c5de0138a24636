#!/usr/bin/env python3
"""Runs Anneal's GPU suite on this machine; `run.py --help` and docs/gpu.md say how."""

import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))

from bundle.main import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main())
