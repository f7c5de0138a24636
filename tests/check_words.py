#!/usr/bin/env python3
"""Plain words: no sentence above 35 words and none of the worst patterns in the pages listed here.

    check_words.py              checks the pages; prints file:line, the fault and the better word
    check_words.py --self-test  feeds the check wrong and right sentences and fails if it errs

Code blocks, inline code and quotations are not read. A page that passes may be added to PAGES.
"""

import re
import sys

from sources import ROOT

PAGES = ["CHANGELOG.md", "README.md", "CONTRIBUTING.md", "docs/README.md", "docs/accuracy.md", "docs/architecture.md", "docs/cpu.md", "docs/data.md",
         "docs/deployment.md", "docs/environment.md", "docs/from_tensorrt.md", "docs/glossary.md", "docs/gpu.md",
         "docs/graph_text.md", "docs/howto.md", "docs/limits.md", "docs/optimizer.md", "docs/quantization.md", "docs/tuning.md", "docs/tutorial.md"]
WORDS = 35

# (pattern in a sentence, what to write instead, a sentence that has it)
PATTERNS = [
    (r"^What\b.*[^?]$", "begin with a noun instead of a relative clause", "What is not here is packed at load."),
    (r"\bwhat (?:is|are) (?:not )?(?:here|there|left)\b", "name the things", "It takes what is there."),
    (r"\bwhat (?:lies|comes|stands) (?:behind|before|between)\b", "name the layers", "It keeps what lies behind the product."),
    (r"\bso (?:many|few|much) (?:\w+ )?(?:that|as)\b|\bso (?:many|few|much)$", "give the number or the limit", "It runs so many rows as fit."),
    (r"\b(?:all|some|most|one|first|last) of them\b", "repeat the noun", "It checks all of them."),
    (r"\b(?:is|are|was|were|be) told\b|\btold (?:in|by|as|with)\b", "is reported, is recorded", "Each is told in the record."),
    (r"\btells? (?:what|which|how|the)\b", "shows, returns", "It tells the time of each step."),
    (r"\b(?:is|are|was|were) (?:not )?looked at\b", "is checked, is measured", "Places are looked at before the work."),
    (r"\bbelieved\b", "trusted", "Files are not believed."),
    (r"\b(?:to|may|can) be had\b", "available", "The kernel was not to be had."),
    (r"\b(?:no|any|some)body\b", "name the user, the caller or the test", "Nobody reads it."),
    (r"\bmanieth\b", "index", "The how manieth of this name."),
    (r"\bcosts? and buys?\b", "costs and gains, accuracy against latency", "What does each precision cost and buy?"),
    (r"\b(?:by|with|then) (?:a|the) clock\b", "by measured times", "Kernels are chosen by a clock."),
    (r"\bthe house\b|\brooms?\b", "the project, the folder", "Every folder is a room."),
    (r"\bstands? (?:in|on|at|where|before|beside)\b", "is", "The reason stands in the record."),
    (r"\bas (?:it|they) lies?\b|\bwhere (?:it|they) lies?\b", "in place, with its strides", "It reads windows where they lie."),
    (r"\bis (?:worth|good) for (?:nothing|little)\b|\bwill not do\b", "does not suffice", "Eight bits will not do."),
    (r"\bin the manner of\b", "like", "An optimizer in the manner of others."),
    (r"\ba thing\b|\bthe thing\b", "name it", "It is the thing that runs."),
]


def sentences(text):
    """(line, sentence) of a page: of paragraphs, list items and table cells."""
    text = re.sub(r"^```.*?^```", lambda block: "\n" * block.group().count("\n"), text, flags=re.M | re.S)
    paragraphs, open_list = [], False
    for number, line in enumerate(text.split("\n"), 1):
        is_item = bool(re.match(r"\s*(?:[-*]|\d+\.) ", line))
        is_code = line.startswith("    ") and not open_list
        is_heading = line.startswith("#")
        if line.startswith("|"):
            cells = re.split(r"(?<!\\)\|", line.strip().strip("|"))
            paragraphs += [[(number, cell)] for cell in cells] + [[]]
        elif not line.strip() or is_code or is_heading:
            paragraphs.append([])
        elif is_item or not paragraphs:
            paragraphs.append([(number, line)])
        else:
            paragraphs[-1].append((number, line))
        if line.strip():
            open_list = is_item or (open_list and line.startswith("  "))
    for paragraph in paragraphs:
        starts, joined = [], ""
        for number, line in paragraph:
            starts.append((len(joined), number))
            joined += re.sub(r"^\s*(?:[-*]|\d+\.) ", "", line).strip() + " "
        same_length = lambda found: "x" * len(found.group())  # one word, and offsets stay
        joined = re.sub(r"`[^`]*`|\"[^\"]*\"", same_length, joined)
        for found in re.finditer(r"\S.*?(?:[.!?](?:\*\*)?(?=\s)|$)", joined):
            line = [number for start, number in starts if start <= found.start()][-1]
            yield line, found.group().strip()


def problems(text):
    """(line, fault) in the order of the page."""
    for line, sentence in sentences(text):
        count = len(re.findall(r"[^\s*]*\w[^\s]*", sentence))
        if count > WORDS:
            yield line, f"a sentence of {count} words, {WORDS} allowed: split \"{sentence[:50]}...\""
        for pattern, better, _ in PATTERNS:
            found = re.search(pattern, sentence.strip("* "), re.I)
            if found:
                yield line, f"\"{found.group()[:40]}\": {better}"


def self_test():
    wrong = [f"{example}: not refused by {pattern}" for pattern, _, example in PATTERNS
             if not re.search(pattern, example, re.I) or not list(problems(example))]
    long, limit = " ".join(["word"] * (WORDS + 1)), " ".join(["word"] * WORDS)
    for text, expected in [(f"Right.\n\n{long}.", [3]), (f"{limit}.", []), (f"{limit}. {limit}.", []),
                           (f"One\ntwo. {long}.", [2]), (f"- {limit}.\n- {limit}.", []), (f"| a | {long} |", [1]),
                           (f"# {long}", []), (f"```\n{long}\n```\n", []), (f"    {long}\n", []), (f"- a\n  {long}.", [1]),
                           (f"`{long}` is code.", []), ("It says \"all of them\".", []), ("`nobody` is code.", []),
                           ("What does it cost?", []), ("**What is so.** Right.", [1]), ("a\nnobody\nsomebody", [1])]:
        lines = [line for line, _ in problems(text)]
        if lines != expected:
            wrong.append(f"{text[:40]!r}: faults in lines {lines}, expected {expected}")
    return wrong


def main():
    if "--self-test" in sys.argv[1:]:
        found = self_test()
        print("\n".join(found) if found else f"words: self-test of {len(PATTERNS)} patterns passed")
        return 1 if found else 0
    found = []
    for page in PAGES:
        with open(f"{ROOT}/{page}", encoding="utf-8") as file:
            found += [f"{page}:{line}: {fault}" for line, fault in problems(file.read())]
    print("\n".join(found + [f"words: {len(PAGES)} pages, {len(found)} problems"]))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
