#!/usr/bin/env python3
"""Counts places whose words a reader must guess at: comments and messages of C++ files, and pages.

    dialect_report.py               a table: kinds of places, and what each pattern counts
    dialect_report.py --list        every place as file:line: pattern: text
    dialect_report.py --rev COMMIT  the same of an older commit
    dialect_report.py FOLDER...     only files below these folders
    dialect_report.py --most 29     fails, with a list, if "words" has more places

"words" are phrases that hide the noun or the actor; a few are right. "clauses" are a softer sign: relative clauses in place
of a noun, chains of "of", long sentences. Many are right, so their number is only compared with earlier ones.
"""

import argparse
import io
import os
import re
import subprocess
import sys
import tarfile
import tempfile

from sources import ROOT, sources

WORDS = {
    "told": r"\b(?:is|are|was|were|be|been|being|as|gets?) told\b|\btold (?:in|by|as|with|of|from|apart|which|what)\b|^told\b",
    "tells": r"\btells? (?:of|what|which|how|the|whether|nothing|apart|more|us|it|them|a)\b|\bcan(?:not)? tell\b|\bas \w+(?: \w+)? tells?\b",
    "nobody": r"\b(?:no|any|some)body\b",
    "so many": r"\bso (?:many|few|much)\b(?! that\b)",
    "lies behind": r"\bl(?:ies?|ay|ying) (?:behind|before)\b|\bstands? (?:behind|before|in|at|where|beside|for itself)\b",
    "of them": r"\b(?:all|some|most|one|none|any|first|last|many|few|each|which|part|half|both) of (?:them|those)\b|\bof them all\b",
    "gone": r"\b(?:is|are|was|were) gone\b|\bgone\b",
    "as it is": r"\bas (?:it|they) (?:is|are|lies?|was|were)\b(?! \w+(?:ed|en|un|t)\b)",
    "is there to": r"\b(?:is|are) there (?:to|only|anyway|twice|once|for|after|before)\b|\bwhat (?:is|are) (?:not )?(?:here|there|left)\b",
    "looked at": r"\b(?:is|are|was|were) (?:not )?looked at\b|\blooks? at (?:it|them)\b|\bbelieved\b|\bto be had\b|\bmanieth\b|\ba clock\b|\bgood for nothing\b",
    "the same of": r"\bthe same of\b|\bone behind the other\b|\bwhich of them\b",
}
CLAUSES = {
    "opening": r"^(?:What|Whose|Of (?!the\b|all\b|course\b)\w+)\b[^?]*$",
    "what": r"\b(?:by|of|with|from|to|in|for|on|is|are|than|and|or|as|into|at) what\b",
    "whose": r"\bwhose\b[^.]*\bwhose\b|\bof which\b",
    "of-chain": r"\bof (?:[\w-]+ ){1,3}of (?:[\w-]+ ){1,3}of\b",
    "long": None,  # sentences above 35 words
}
LONG = 35

TOKENS = re.compile(r'//[^\n]*(?:\n[ \t]*//[^\n]*)*|/\*.*?\*/|R"(\w*)\((.*?)\)\1"|(?:"(?:\\.|[^"\\\n])*"\s*)+|\'(?:\\.|[^\'\\\n])+\'', re.S)
PUBLIC = "cmake/public_headers.cmake"
KINDS = ["public headers", "private headers", "sources", "messages", "help and command texts", "tests and benchmarks", "pages"]


def words_of(comment):
    return re.sub(r"(?m)^[ \t]*//+ ?", "", comment).strip("/* \n")


def places_of_code(text):
    """(offset, is a message, text) of comments and strings."""
    for found in TOKENS.finditer(text):
        token = found.group()
        if token.startswith("/"):
            yield found.start(), False, words_of(token)
        elif token.startswith('"'):
            joined = "".join(re.findall(r'"((?:\\.|[^"\\\n])*)"', token))
            if len(joined.split()) >= 3:
                yield found.start(), True, joined


def sentences(text):
    return [part for part in re.split(r"(?<=[.;:!?])\s+|\n\s*\n|\n\s*[-*|]", re.sub(r"`[^`\n]*`", "code", text)) if part.strip()]


def matches(text):
    """(group, pattern) of one sentence, each as often as it occurs."""
    plain = " ".join(text.split())
    for group, patterns in (("words", WORDS), ("clauses", CLAUSES)):
        for name, pattern in patterns.items():
            if pattern is None:
                count = len(re.findall(r"\b[a-zA-Z][\w'-]*", plain)) > LONG
            else:
                count = len(re.findall(pattern, plain, re.I if name != "opening" else 0))
            for _ in range(count):
                yield group, name


def kind_of(path, is_message, public):
    if path.startswith(("tests/", "bench/")):
        return "tests and benchmarks"
    if is_message:
        return "help and command texts" if path.startswith("cli/") else "messages"
    if path in public:
        return "public headers"
    return "private headers" if path.endswith(".h") else "sources"


def report(root, files):
    """(kind, group, pattern, path, line, sentence) of every place."""
    with open(f"{root}/{PUBLIC}", encoding="utf-8") as file:
        public = {name for name in re.findall(r"include/anneal/([\w/.]+\.h)", file.read())}
    for path in files:
        with open(f"{root}/{path}", encoding="utf-8") as file:
            text = file.read()
        if path.endswith(".md"):
            prose = re.sub(r"^```.*?^```", lambda block: re.sub(r"[^\n]", "", block.group()), text, flags=re.M | re.S)
            parts = [(found.start(), False, found.group()) for found in re.finditer(r"(?:[^\n]+\n?)+", prose)]
        else:
            parts = places_of_code(text)
        for offset, is_message, part in parts:
            kind = "pages" if path.endswith(".md") else kind_of(path, is_message, public)
            for sentence in sentences(part):
                for group, name in matches(sentence):
                    yield kind, group, name, path, text.count("\n", 0, offset) + 1, " ".join(sentence.split())


def table(found):
    rows = []
    for group, patterns in (("words", WORDS), ("clauses", CLAUSES)):
        of_group = [place for place in found if place[1] == group]
        rows.append([group] + [str(sum(place[0] == kind for place in of_group)) for kind in KINDS] + [str(len(of_group))])
        for name in patterns:
            of_name = [place for place in of_group if place[2] == name]
            rows.append(["  " + name] + [str(sum(place[0] == kind for place in of_name)) for kind in KINDS] + [str(len(of_name))])
    heads = ["", "public", "private", "sources", "messages", "cli", "tests", "pages", "all"]
    return "\n".join(row[0].ljust(14) + "".join(cell.rjust(10) for cell in row[1:]) for row in [heads] + rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--words", action="store_true", help="only the first group in the list")
    parser.add_argument("--rev")
    parser.add_argument("--most", type=int, metavar="N", help="of the first group")
    options = parser.parse_args()
    suffixes = (".h", ".cc", ".cpp", ".c", ".md")
    with tempfile.TemporaryDirectory() as folder:
        root, files = ROOT, sources(*suffixes)
        if options.rev:
            archive = subprocess.run(["git", "-C", ROOT, "archive", options.rev], check=True, capture_output=True).stdout
            tarfile.open(fileobj=io.BytesIO(archive)).extractall(folder)
            root = folder
            files = sorted(os.path.relpath(f"{where}/{name}", folder) for where, _, names in os.walk(folder)
                           for name in names if name.endswith(suffixes))
        if options.folders:
            files = [path for path in files if path.startswith(tuple(options.folders))]
        found = list(report(root, files))
    words = sum(place[1] == "words" for place in found)
    if options.most is not None:
        if words > options.most:
            print("\n".join(f"{path}:{line}: {name}: {sentence}" for _, group, name, path, line, sentence in found if group == "words"))
        print(f"dialect: {words} places, {options.most} are allowed")
        return words > options.most
    if options.list:
        for kind, group, name, path, line, sentence in found:
            if group == "words" or not options.words:
                print(f"{path}:{line}: {name}: {sentence}")
    print(table(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
