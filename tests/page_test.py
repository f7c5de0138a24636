#!/usr/bin/env python3
"""Compiles and runs the fenced blocks of a page, and the examples in the comments of the public headers.

    page_test.py BUILD COMPILER PAGE     a page: README.md, docs/tutorial.md
    page_test.py BUILD COMPILER headers  the installed headers
    page_test.py --self-test             feeds wrong pages and fails if one passes

The blocks of a page run in order, in one temporary folder. A block is judged by the word after its fence:

    sh      every command must succeed
    text    each line must be a line of what the sh block before it printed; `...` replaces anything
    cpp, c  a whole program is compiled, linked and run, with the arguments of a line "// arguments: ..."; other
            statements are compiled in a function that has `context` and `pixels`
    cmake   configures a program, with the installed package
    python  must compile; python/tests/test_pages.py runs it, with the package
    none    no program and no output: a formula, a grammar, a drawing

A block that cannot run has its reason in the fence: ```sh (needs a GPU). A block with the reason `(needs shared)` runs
where ../shared/data exists; one with `(needs an installed Anneal)` runs, and CMake finds it. Variables that a sh block sets keep their values in later ones. Commands that are indented
instead of fenced are refused.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import sources

ROOT = Path(sources.ROOT)

LANGUAGES = {"sh", "text", "cpp", "c", "cmake", "python", ""}
FENCED = re.compile(r"^```([a-z]*)(?: \(([^)\n]+)\))?\n(.*?)^```$", re.M | re.S)
# Whether lines without a language are a program after all.
PROGRAM = re.compile(r"^\s*(\$ )?(anneal|make|cmake|g\+\+|gcc|python3?|export|sudo|ctest|[A-Z_]+=\S+) |#include|\bmain\(", re.M)
NEEDED = {"needs shared": ROOT.parent / "shared/data"}
INSTALLED = "needs an installed Anneal"


class Page:
    def __init__(self, build, compiler, folder):
        self.build, self.compiler, self.folder = build, compiler, Path(folder)
        self.faults, self.count, self.printed = [], 0, None
        self.work = self.folder / "work"
        self.work.mkdir()
        self.prefix = self.folder / "prefix"
        tools = self.folder / "tools"
        tools.mkdir()
        # The targets of make are what CI runs; here they must exist.
        (tools / "make").write_text(f'#!/bin/sh\n{shutil.which("make")} -n -C {ROOT} "$@" > /dev/null\n')
        (tools / "make").chmod(0o755)
        self.settings = ""  # of variables
        for name in ("samples", "bench", "docs", "../shared"):  # pages give paths from the root of the sources
            if (ROOT / name).exists():
                (self.work / name).symlink_to(ROOT / name)
        (self.work / "build").mkdir()
        (self.work / "build/release").symlink_to(build)
        self.environment = dict(os.environ, PATH=f"{tools}:{build}/bin:{os.environ['PATH']}", TMPDIR=str(self.folder),
                                GLYPHS=str(ROOT / "samples/glyphs"), LD_LIBRARY_PATH=f"{self.prefix}/lib")

    def call(self, *command, **options):
        return subprocess.run(command, cwd=self.work, env=self.environment, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, **options)

    def installed(self):
        if not self.prefix.exists():
            done = subprocess.run(["cmake", "--install", self.build, "--prefix", self.prefix], capture_output=True, text=True)
            if done.returncode:
                raise RuntimeError(done.stdout + done.stderr)
            library = next(Path(folder) for folder, _, files in os.walk(self.prefix) if "libengine.so" in files)
            self.environment["LD_LIBRARY_PATH"] = str(library)
        return self.prefix

    def fault(self, what, text, output=""):
        self.faults.append(f"{what}:\n{text}{output}")

    def shell(self, text):
        done = self.call("bash", "-e", "-o", "pipefail", "-c", self.settings + text)
        self.printed = done.stdout
        self.settings += "".join(re.findall(r"^(?:export )?\w+=.*\n", text, re.M))
        if done.returncode:
            self.fault(f"status {done.returncode}", text, done.stdout)

    def compare(self, text):
        if self.printed is None:
            return self.fault("no sh block before this output", text)
        for line in text.splitlines():
            pattern = ".*".join(re.escape(part) for part in re.sub(r" +", " ", line).split("..."))
            if not re.search(f"^{pattern}$", re.sub(r" +", " ", self.printed), re.M):
                self.fault("no line of the output is", line + "\n", self.printed)

    def compile(self, language, text):
        include, library = self.installed() / "include", self.environment["LD_LIBRARY_PATH"]
        is_whole = re.search(r"\bmain\(", text)
        if not is_whole and language == "c":
            text = f"#include <anneal/engine/run/c_api.h>\nvoid example(void);\nvoid example(void) {{\n{text}}}\n"
        elif not is_whole:
            text = ("#include <anneal/anneal.h>\n#include <iostream>\n#include <vector>\n"
                    "void example(anneal::ExecutionContext& context, std::vector<float>& pixels);\n"
                    "void example(anneal::ExecutionContext& context, std::vector<float>& pixels) {\n"
                    f"(void)context, (void)pixels;\n{{\n{text}}}\n}}\n")
        source = self.work / ("page.c" if language == "c" else "page.cc")
        source.write_text(text)
        flags = ["-xc", "-std=c11"] if language == "c" else ["-xc++", "-std=c++20"]
        goal = ["-o", "page_program", f"-L{library}", "-xnone", "-lengine", "-lbuilder"] if is_whole else ["-fsyntax-only"]
        done = self.call(self.compiler, *flags, "-Wall", "-Wextra", "-Werror", "-Wno-unused-variable", f"-I{include}",
                         str(source), *goal)
        if done.returncode:
            return self.fault("does not compile", text, done.stdout)
        if is_whole:
            arguments = re.search(r"^// arguments: (.*)$", text, re.M)
            done = self.call("./page_program", *(arguments[1].split() if arguments else []))
            if done.returncode:
                self.fault(f"ends with status {done.returncode}", text, done.stdout)

    def configure(self, text):
        folder = self.work / "page_cmake"
        folder.mkdir(exist_ok=True)
        (folder / "main.cc").write_text("#include <anneal/anneal.h>\nint main() {}\n")
        (folder / "CMakeLists.txt").write_text("cmake_minimum_required(VERSION 3.20)\nproject(app CXX)\n"
                                               f"add_executable(app main.cc)\ntarget_compile_features(app PRIVATE cxx_std_20)\n{text}")
        for step in (["-S", folder, "-B", folder / "build", f"-DCMAKE_PREFIX_PATH={self.installed()}",
                      f"-DCMAKE_CXX_COMPILER={self.compiler}"], ["--build", folder / "build"]):
            done = self.call("cmake", *step)
            if done.returncode:
                return self.fault("does not build", text, done.stdout)

    def compile_python(self, text):
        try:
            compile(text, "page.py", "exec")
        except SyntaxError as error:
            self.fault(f"does not compile ({error})", text)

    def run(self, page):
        for language, reason, text in FENCED.findall(page):
            if language not in LANGUAGES:
                self.fault(f"a block of \"{language}\", which nothing checks", text)
            if reason == INSTALLED:
                self.environment["CMAKE_PREFIX_PATH"] = str(self.installed())
            elif reason and not (reason in NEEDED and NEEDED[reason].exists()):
                continue
            self.count += 1
            if language == "sh":
                self.shell(text)
            elif language == "text":
                self.compare(text)
            elif language in ("cpp", "c"):
                self.compile(language, text)
            elif language == "cmake":
                self.configure(text)
            elif language == "python":
                self.compile_python(text)
            elif PROGRAM.search(text):
                self.fault("a program in a block without a language", text)
        for line in FENCED.sub("", page).splitlines():
            if re.match(r"    \S", line) and PROGRAM.search(line):
                self.fault("commands that are indented instead of fenced", line + "\n")
        return self

    def run_headers(self):
        """Runs of lines that a comment indents by three spaces, as in anneal.h."""
        for header in sorted((self.installed() / "include").rglob("*.h")):
            for lines in re.findall(r"(?:^//   .*\n)+", header.read_text(), re.M):
                code = re.sub(r"^//   ", "", lines, flags=re.M)
                if re.search(r";$", code, re.M):
                    self.count += 1
                    self.compile("cpp", code)
        return self


def self_test(compiler):
    def page(shell, text):
        return f"```sh\n{shell}\n```\n\n```text\n{text}\n```\n"

    wrong = []
    for name, text, expected in [
            ("a right page", page("echo one  two 3", "one two ..."), 0),
            ("a command that fails", page("false\necho x", "x"), 2),
            ("a command that fails in a pipe", "```sh\nfalse | cat\n```\n", 1),
            ("a missing line", page("echo one", "two"), 1),
            ("a part of a line", page("echo one two", "one"), 1),
            ("dots that are no pattern", page("echo 1x2", "1.2"), 1),
            ("an output without a command", "```text\none\n```\n", 1),
            ("a reason", "```sh (needs a GPU)\nfalse\n```\n", 0),
            ("a target of make that does not exist", "```sh\nmake nothing\n```\n", 1),
            ("Python that does not compile", "```python\nx = = 1\n```\n", 1),
            ("Python that compiles", "```python\nimport anneal\n```\n", 0),
            ("an unknown language", "```perl\n1\n```\n", 1),
            ("a program without a language", "```\nanneal build x.onnx\n```\n", 1),
            ("an indented command", "text\n\n    anneal build x.onnx\n", 1),
            ("an indented formula", "text\n\n    y = x * s\n", 0)]:
        with tempfile.TemporaryDirectory() as folder:
            if len(Page("/nowhere", compiler, folder).run(text).faults) != expected:
                wrong.append(f"{name} is not judged right")
    return wrong


def main():
    if sys.argv[1] == "--self-test":
        faults, count = self_test("c++"), 15
    else:
        build, compiler, page = sys.argv[1:]
        with tempfile.TemporaryDirectory(prefix="anneal-page-") as folder:
            judged = Page(build, compiler, folder)
            judged.run_headers() if page == "headers" else judged.run((ROOT / page).read_text())
        faults, count = judged.faults, judged.count
    print("\n".join(faults) or f"{count} blocks are right")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
