"""The commands that are written on the public interface, and the other headers that they include."""

import re

# These commands are written on the public interface. All files of cli/ that they reach, also those that they share with
# other commands, include these headers beside it, each once.
PUBLIC_COMMANDS = ["bench", "build", "calibrate", "eval", "inspect", "run", "tune"]
MOST = 10  # headers that are not public
NOT_PUBLIC = {
    "core/file.h": "files are written whole or not at all, and errors name the system's reason",
    "core/parallel.h": "the number of threads that 0 stands for",
    "core/refuse.h": "errors of the command itself",
    "engine/builder/inputs/choose_inputs.h": "--input random: sizes and numbers that an engine accepts",
    "engine/data/data_keys.h": "a flag for each key of dataset.json",
    "engine/data/elements.h": "values of tensors are printed",
    "engine/data/sample_file.h": "--input FILE, --save",
    "engine/onnx/inspection.h": "inspect; the plan that a loaded engine runs",
    "engine/run/counted_steps.h": "--profile on the emulated device",
    "engine/tune/metric/classify.h": "eval; the best classes of an output that run prints",
}


def reached_in_cli(files, starts):
    """The files of cli/ that these include, and the sources of the headers that they include."""
    seen, todo = set(), list(starts)
    while todo:
        path = todo.pop()
        if path in seen or path not in files:
            continue
        seen.add(path)
        todo += [path[:-2] + ".cc"] * path.endswith(".h")
        todo += [header for header in re.findall(r'^#include "anneal/(cli/[^"]+)"', files[path], re.M)
                 if header != "cli/commands/commands.h"]
    return seen


def problems_of(files, public, allowed=NOT_PUBLIC):
    """files: path -> text. public: the public headers. Returns the messages."""
    ours = {f"cli/commands/{name}_command.cc" for name in PUBLIC_COMMANDS}
    commands = f"the commands {', '.join(PUBLIC_COMMANDS)}"
    problems, includers = [], {}
    for path in sorted(reached_in_cli(files, ours)):
        for header in re.findall(r'^#include "anneal/([^"]+)"', files[path], re.M):
            if not header.startswith("cli/") and header not in public:
                includers.setdefault(header, []).append(path)
    for header, paths in sorted(includers.items()):
        if header not in allowed:
            problems.append(f"{paths[0]}: includes {header}, which is not public, and {commands} reach this file")
        problems += [f"{path}: includes {header}: {commands} get it from {paths[0]}" for path in paths[1:]]
    if len(allowed) > MOST:
        problems.append(f"tests/public_commands.py: NOT_PUBLIC has {len(allowed)} headers, {MOST} are allowed")
    return problems + [f"tests/public_commands.py: NOT_PUBLIC has {header}, which {commands} do not include"
                       for header in sorted(set(allowed) - set(includers))]


RUNS = {"cli/commands/run_command.cc": '#include "anneal/cli/output/text.h"\n#include "anneal/core/error.h"\n',
        "cli/commands/check_command.cc": '#include "anneal/cli/output/text.h"\n#include "anneal/core/fail.h"\n',
        "cli/output/text.h": "", "cli/output/text.cc": '#include "anneal/core/file.h"\n'}
# (name, files that differ from RUNS, the text that one message must hold; None: no message at all); core/file.h is allowed
SELF_TESTS = [
    ("a shared file includes what is allowed", {}, None),
    ("a shared file includes another header", {"cli/output/text.h": '#include "anneal/engine/plan.h"\n'},
     "cli/output/text.h: includes engine/plan.h, which is not public"),
    ("two files include one header", {"cli/output/text.h": '#include "anneal/core/file.h"\n'},
     "cli/output/text.h: includes core/file.h: the commands"),
    ("a header is allowed that none includes", {"cli/output/text.cc": ""}, "NOT_PUBLIC has core/file.h"),
]


def self_test(public):
    wrong = []
    for name, changed, expected in SELF_TESTS:
        found = problems_of(RUNS | changed, public, {"core/file.h"})
        if bool(found) != bool(expected) or (expected and not any(expected in message for message in found)):
            wrong.append(f"{name}: expected {expected}, got {found}")
    return wrong
