#!/usr/bin/env python3
"""Follows docs/howto.md: makes the changes of its blocks in a copy of the sources, and compares what the compiler, the
linker and tests/check_lists.py say after each step with the page.

    howto_test.py BUILD "## A pass"    one section; BUILD has compile_commands.json
    howto_test.py --self-test BUILD    spoils steps and messages, and fails if the test does not notice

Only the named files are compiled. A name that a patched file needs must be in another patched file or in the sources.
"""

import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from compile_commands import compile_commands

ROOT = Path(__file__).resolve().parent.parent
PAGE = "docs/howto.md"
FOLDERS = ("core", "graph", "kernels", "engine", "importer", "optimizer", "cli", "tests", "docs")


class Fault(Exception):
    pass


def steps_of(section):
    """("edit", first line, lines) or ("command", command, expected lines), in the order of the page."""
    steps, lines, at = [], section.splitlines(), 0
    while at < len(lines):
        if lines[at].startswith("```"):
            end = lines.index("```", at + 1)
            steps.append(("edit", lines[at + 1], lines[at + 2:end]))
            at = end
        elif lines[at].startswith("    $ "):
            expected = []
            while at + 1 + len(expected) < len(lines) and re.match(r"    [^$]", lines[at + 1 + len(expected)]):
                expected.append(lines[at + 1 + len(expected)].strip())
            steps.append(("command", lines[at][6:], expected))
            at += len(expected)
        at += 1
    return steps


def matches(expected, text):
    """`...` replaces anything; quotes of the compiler are plain ones."""
    return re.search(".*".join(map(re.escape, expected.split("..."))), text) is not None


class Tree:
    """A copy of the sources with the compiler commands of a build."""

    def __init__(self, folder, build):
        self.root, self.build = Path(folder) / "include/anneal", Path(build).resolve()
        for name in FOLDERS:
            shutil.copytree(ROOT / name, self.root / name)
        self.new = []
        self.commands = compile_commands(self.build)

    def edit(self, first, lines):
        found = re.fullmatch(r"(?://|#) (\S+?), (new|(?:after|before|in place of) \"(.*)\"):", first)
        if not found:
            raise Fault(f"a block begins with neither a file nor a place: {first}")
        path, place, anchor = self.root / found[1], found[2].split(" \"")[0], found[3]
        if place == "new":
            if path.exists():
                raise Fault(f"{found[1]} is not new")
            path.write_text("\n".join(lines) + "\n")
            self.new.append(found[1])
            return
        old = path.read_text().splitlines()
        at = [number for number, line in enumerate(old) if anchor in line]
        if len(at) != 1:
            raise Fault(f"{found[1]}: {len(at)} lines have {anchor!r}, and a place is one line")
        start, end = {"before": (at[0], at[0]), "after": (at[0] + 1, at[0] + 1), "in place of": (at[0], at[0] + 1)}[place]
        path.write_text("\n".join(old[:start] + lines + old[end:]) + "\n")

    def compiler(self, path, *further):
        """The command of the file, or of its neighbour for a new file."""
        entry = self.commands.get(path) or next(
            (self.commands[each] for each in sorted(self.commands) if Path(each).parent == Path(path).parent), None)
        if not entry:
            raise Fault(f"no command compiles {path}")
        words = shlex.split(entry["command"])
        kept = [word for i, word in enumerate(words) if word not in ("-c", "-o") and words[i - 1] not in ("-c", "-o")]
        kept = [f"-I{self.root.parent}" if word.startswith("-I") and word.endswith("/include") else word for word in kept]
        result = subprocess.run([*kept, "-fdiagnostics-color=never", *further, str(self.root / path)], cwd=entry["directory"],
                                capture_output=True, text=True)
        return result.returncode, result.stderr.replace("‘", "'").replace("’", "'")

    def compile(self, path):
        status, errors = self.compiler(path, "-O0", "-S", "-o", "/dev/null")
        return ["ok"] if status == 0 else [line for line in errors.splitlines() if "error:" in line]

    def link(self, path):
        """The names of the example that neither a patched source nor the sources define."""
        listed = (self.root / "optimizer/CMakeLists.txt").read_text()
        defines = [each for each in self.new if not each.startswith("optimizer/") or Path(each).name in listed]
        undefined = self.names(path, "U")
        changed = [str(each.relative_to(self.root)) for each in self.root.rglob("*.cc")
                   if (ROOT / each.relative_to(self.root)).is_file()
                   and each.read_bytes() != (ROOT / each.relative_to(self.root)).read_bytes()]
        defined = set().union(*(self.names(each, "TW") for each in [*changed, *defines] if not each.startswith("tests/")))
        own = {name for name in undefined if re.search(r"Mirror const&|remove_flat_transpose\(|max_square_metric\(", name)}
        return [f"undefined reference to `{name}'" for name in sorted(own - defined)] or ["ok"]

    def names(self, path, kinds):
        with tempfile.NamedTemporaryFile(suffix=".o") as compiled:
            status, errors = self.compiler(path, "-O0", "-w", "-c", "-o", compiled.name)
            if status != 0:
                raise Fault(f"{path} does not compile:\n{errors}")
            listed = subprocess.run(["nm", "-C", compiled.name], capture_output=True, text=True, check=True).stdout
        return {found[2] for found in re.finditer(r"(?:^[0-9a-f]+| +) ([A-Z]) (.*)$", listed, re.M) if found[1] in kinds}

    def check(self):
        result = subprocess.run([sys.executable, self.root / "tests/check_lists.py"], capture_output=True, text=True)
        return result.stdout.splitlines()


def follow(section, build):
    """Raises Fault where the page and the tools differ; the number of edits and commands."""
    steps, edits = steps_of(section), 0
    with tempfile.TemporaryDirectory() as folder:
        tree = Tree(folder, build)
        for kind, first, lines in steps:
            if kind == "edit":
                tree.edit(first, lines)
                edits += 1
                continue
            words = first.split()
            said = tree.check() if words == ["check"] else {"compile": tree.compile, "link": tree.link}[words[0]](words[1])
            wrong = [line for line in lines if not any(matches(line, each) for each in said)]
            wrong += [each for each in said if words[0] == "check" and not any(matches(line, each) for line in lines)]
            if wrong or (("ok" in lines) != (said == ["ok"])):
                raise Fault(f"{PAGE}: `{first}` says\n  " + "\n  ".join(said[:8]) + "\nand the page says\n  " + "\n  ".join(lines))
    return edits, len(steps) - edits


def sections():
    parts = re.split(r"^(## .*)$", (ROOT / PAGE).read_text(), flags=re.M)
    return dict(zip(parts[1::2], parts[2::2]))


def self_test(build):
    section = sections()["## An ONNX operator that existing ops can express"]
    for old, new in [("Celu", "Celuloid"), ("import_cube...defined", "import_square...defined"),
                     ("    ok", "    error: ...import_cube"), ("import_cube},", "import_square},")]:
        spoiled = section.replace(old, new)
        try:
            follow(spoiled, build)
        except Fault:
            continue
        raise Fault(f"the test does not notice {new!r} in place of {old!r}")


def main():
    try:
        if "--self-test" in sys.argv[1:]:
            self_test(sys.argv[-1])
            print("spoiled steps were noticed")
        else:
            edits, commands = follow(sections()[sys.argv[2]], sys.argv[1])
            print(f"{sys.argv[2]}: {edits} edits, {commands} commands as on the page")
    except Fault as fault:
        print(fault)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
