"""`python -m anneal` and the script `anneal`: the command line."""

from __future__ import annotations

import os
import sys
from typing import NoReturn


def main() -> NoReturn:
    """Becomes the command that the wheel contains."""
    command = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "anneal")
    os.execv(command, [command, *sys.argv[1:]])


if __name__ == "__main__":
    main()
