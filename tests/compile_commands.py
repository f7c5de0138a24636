"""How a build compiles each source of the project."""

import json
import os
import re
from pathlib import Path

from sources import ROOT


def compile_commands(build):
    """Entries of compile_commands.json by a file's path in the project.

    A file that is compiled as a part of its folder (cmake/unity.cmake) gets the folder's command
    with its own path.
    """
    entries = {}
    for entry in json.loads((Path(build) / "compile_commands.json").read_text(encoding="utf-8")):
        file = Path(entry["file"])
        if file.is_relative_to(Path(build).resolve() / "unity"):
            for path in re.findall(r'^#include "anneal/(.+)"$', file.read_text(encoding="utf-8"), re.MULTILINE):
                own = f"{ROOT}/{path}"
                entries.setdefault(path, entry | {"file": own, "command": entry["command"].replace(str(file), own)})
        elif file.is_relative_to(ROOT):
            entries.setdefault(os.path.relpath(file, ROOT), entry)
    return entries
