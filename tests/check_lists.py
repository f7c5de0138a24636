#!/usr/bin/env python3
"""Lists that nothing else compares: a file, kernel family, pass, op or metric that a list lacks would be silently unused.
Filters of test presets that CTest would silently ignore.

    check_lists.py [--root DIR]    prints what is missing and the list that lacks it
    check_lists.py --self-test     removes an entry from each list and fails if the check does not name it

docs/howto.md relies on these messages.
"""

import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("core", "graph", "kernels", "engine", "importer", "optimizer", "cli", "python")
# Ops that the run time computes itself, which have no kernel, and the op whose kernels are those of libraries
# (tests/engine/custom/).
WITHOUT_KERNEL = {"SizeTensor", "Require", "If", "Loop", "Scan", "Custom"}
MOST_GROUPS = 9  # NSUBEXP of CMake's RegularExpression, less the whole match

# (what, file that declares it, pattern of a name there, file that lists it)
LISTED = [
    ("the pass", "optimizer/passes/passes.h", r"^  X\((\w+), k", "docs/optimizer.md"),
    ("the pass", "optimizer/passes/passes.h", r"^  X\((\w+), k", "cli/ablation/pass_families.cc"),
    ("the metric", "engine/tune/metric/make_metric.cc", r"^    \{\"([\w-]+)\",", "engine/tune/metric/metric.h"),
    ("the metric", "engine/tune/metric/make_metric.cc", r"^    \{\"([\w-]+)\",", "docs/tuning.md"),
]


def has_word(text, name):
    return re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text) is not None


def problems(read, exists, sources):
    """read(path): its text; exists(path); sources: the paths of all C++ files in FOLDERS."""
    for what, declares, pattern, lists in LISTED:
        names = re.findall(pattern, read(declares), re.M)
        if not names:
            yield f"{declares}: no name matches {pattern}"
        text = read(lists)
        yield from (f"{lists}: {what} \"{name}\" of {declares} is missing" for name in names if not has_word(text, name))
    for path in sources:
        if path.startswith("optimizer/passes/") and not has_word(read("optimizer/passes/passes.h"), Path(path).stem):
            yield f"optimizer/passes/passes.h: the pass of {path} is missing"
    for name in re.findall(r"^  X\((\w+), k", read("optimizer/passes/passes.h"), re.M):
        if not exists(f"tests/golden/passes/{name}.txt"):
            yield f"tests/golden/passes/{name}.txt: the cases of the pass are missing"
    ops = re.search(r"#define ANNEAL_FOR_EACH_OP\(X\)((?:.*\\\n)*.*)", read("graph/op/ops.h")).group(1)
    references = "".join(read(path) for path in sources if path.startswith("kernels/cpu/reference/"))
    cases = "".join(read(path) for path in sources if path.startswith("tests/kernels/op_cases"))
    for op in re.findall(r"X\((\w+)\)", ops):
        if op in WITHOUT_KERNEL:
            continue
        if not re.search(rf"<{op}\b", references):
            yield f"kernels/cpu/reference/: the op {op} has no reference kernel"
        if not has_word(cases, op):
            yield f"tests/kernels/op_cases_*.cc: the op {op} has no case"
    for path in sources:
        if path.endswith(".cc") and path.startswith(FOLDERS):
            folders = [str(folder) for folder in Path(path).parents]
            lists = [folder for folder in folders if exists(f"{folder}/CMakeLists.txt")]
            if not any(has_word(read(f"{folder}/CMakeLists.txt"), str(Path(path).relative_to(folder))) for folder in lists):
                yield f"{lists[0]}/CMakeLists.txt: {path} is missing"
    if exists("CMakePresets.json"):  # the copies of docs/howto.md have none
        yield from long_filters(json.loads(read("CMakePresets.json")))


def long_filters(presets):
    for preset in presets["testPresets"]:
        for filtered in preset.get("filter", {}).values():
            if (groups := filtered.get("name", "").count("(")) > MOST_GROUPS:
                yield (f"CMakePresets.json: the filter of the test preset {preset['name']} has {groups} groups. CTest compiles "
                       f"{MOST_GROUPS}; it ignores a filter with more and runs all tests")


def problems_of(root):
    paths = [str(path.relative_to(root)) for folder in (*FOLDERS, "tests/kernels") for path in (root / folder).rglob("*")
             if path.suffix in (".cc", ".h")]
    return list(problems(lambda path: (root / path).read_text(encoding="utf-8"), lambda path: (root / path).exists(),
                         sorted(paths)))


def self_test():
    def read(path):
        return (ROOT / path).read_text(encoding="utf-8")

    def with_change(path, old, new):
        return lambda asked: read(asked).replace(old, new) if asked == path else read(asked)

    def exists(path):
        return (ROOT / path).exists()

    paths = [str(path.relative_to(ROOT)) for folder in (*FOLDERS, "tests/kernels") for path in (ROOT / folder).rglob("*.cc")]
    wrong = []
    for path, old, new, message in [
            ("docs/optimizer.md", "fold_pad", "", "docs/optimizer.md: the pass \"fold_pad\""),
            ("cli/ablation/pass_families.cc", "fold_pad", "", "cli/ablation/pass_families.cc: the pass \"fold_pad\""),
            ("optimizer/passes/passes.h", "X(fold_pad,", "X(fold_pads,", "tests/golden/passes/fold_pads.txt: the cases"),
            ("optimizer/passes/passes.h", "fold_pad", "", "optimizer/passes/passes.h: the pass of optimizer/passes/fold_pad.cc"),
            ("docs/tuning.md", "max-error", "", "docs/tuning.md: the metric \"max-error\""),
            ("graph/op/ops.h", "X(TopK)", "X(TopKs)", "kernels/cpu/reference/: the op TopKs has no reference"),
            ("graph/op/ops.h", "X(TopK)", "X(TopKs)", "tests/kernels/op_cases_*.cc: the op TopKs has no case"),
            ("CMakePresets.json", "_shard_|", "(" * MOST_GROUPS + ")" * MOST_GROUPS, "CMakePresets.json: the filter of the test preset asan"),
            ("optimizer/CMakeLists.txt", "passes/fold_pad.cc", "", "optimizer/CMakeLists.txt: optimizer/passes/fold_pad.cc")]:
        found = list(problems(with_change(path, old, new), exists, paths))
        if not any(each.startswith(message) for each in found):
            wrong.append(f"{path} without {old}: the check does not say \"{message}\", but {found}")
    return wrong


def main():
    if "--self-test" in sys.argv[1:]:
        found = self_test()
    else:
        found = problems_of(Path(sys.argv[sys.argv.index("--root") + 1]) if "--root" in sys.argv else ROOT)
    print("\n".join(found) if found else "lists: complete")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
