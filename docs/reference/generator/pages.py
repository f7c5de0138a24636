"""The pages of docs/reference: which symbols are on which page, in which group, and how they are written."""

import re

# The groups of a page, by task, with the headers in each.
CPP_PAGES = {
    "cpp_run.md": ("C++: load and run", {
        "Load and run": ["engine/run/engine.h", "engine/run/stream.h", "core/version.h"],
        "Memory and messages of the application": ["core/application/hooks.h"],
        "Errors": ["core/error.h"],
        "Debug": ["engine/run/debug.h"],
    }),
    "cpp_tensors.md": ("C++: tensors", {
        "Views": ["core/tensor_view.h"],
        "Tensors": ["core/tensor.h"],
        "Sizes and element types": ["core/dims.h", "core/dtype.h"],
    }),
    "cpp_build.md": ("C++: build", {
        "Build": ["engine/onnx/onnx_builder.h", "engine/onnx/onnx_model.h"],
        "Options": ["engine/builder/build_options.h", "optimizer/precision.h"],
        "Reports": ["engine/builder/build_report.h"],
    }),
    "cpp_tune.md": ("C++: calibrate, tune and data", {
        "Calibrate": ["optimizer/calibration_table.h"],
        "Tune": ["engine/tune/metric/metric.h", "engine/tune/frontier/frontier.h"],
        "Data": ["engine/data/dataset.h", "engine/data/data_format.h"],
    }),
}
C_PAGES = {
    "c.md": ("C: load and run", {
        "Load, run and errors": ["engine/run/c_api.h"],
    }),
    "c_build.md": ("C: build, and own kernels", {
        "Build and calibrate": ["engine/onnx/c_builder.h"],
        "Own kernels": ["engine/run/library/c_kernels.h"],
    }),
}
UMBRELLA = "anneal.h"  # includes the others, and declares nothing

PYTHON_GROUPS = {
    "Load and run": ["load", "Engine", "Session", "TensorInfo", "Stream", "stream_of", "Profile", "StepTime"],
    "Build": ["build", "BuildOptions", "refit", "Shapes", "Progress", "BuildReport", "Plan", "Step", "Pass", "Decision", "SelfCheck", "inspect"],
    "Debug": ["compare", "Comparison", "ComparedTensor", "Observation"],
    "Calibrate and tune": ["calibrate", "Calibration", "Range", "tune", "Metric", "Answer", "Frontier"],
    "Data": ["Samples"],
    "Errors": ["Error", "ErrorCode", "InvalidModelError", "UnsupportedError", "InvalidArgumentError",
               "IncompatiblePlanError", "ReadError", "CannotWriteError", "DeviceError", "OutOfMemoryError", "LimitError",
               "CancelledError", "InternalError"],
}


class MissingSymbol(Exception):
    pass


def anchor(heading):
    """GitHub's anchor of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def markdown(text):
    """Plain text as Markdown: code stays as it is, and names of pages are links."""
    parts = re.split(r"(`[^`\n]*`)", text)
    text = "".join(part if i % 2 else re.sub(r"([*<>|])", r"\\\1", part) for i, part in enumerate(parts))
    return re.sub(r"`?\bdocs/(\w+\.md)`?", r"[\1](../\1)", text)


def paragraphs(text, stub=""):
    """A comment or docstring: indented lines are code or tables, the others paragraphs."""
    made, block, is_code = [], [], False

    def flush():
        if block:
            code = "\n".join(block).rstrip()
            indent = min(len(line) - len(line.lstrip()) for line in code.split("\n") if line.strip())
            made.append(f"```{stub}\n" + "\n".join(line[indent:] for line in code.split("\n")) + "\n```" if is_code else
                        markdown(" ".join(block)))
        block.clear()

    for line in text.split("\n"):
        indented = line.startswith("  ")
        if not line.strip():
            if is_code:
                block.append("")
            else:
                flush()
            continue
        if block and indented != is_code:
            flush()
        is_code = indented
        block.append(line if indented else line.strip())
    flush()
    return "\n\n".join(made)


def cell(text):
    """In a row of a table."""
    return markdown(re.sub(r"\s+", " ", text)).strip()


def code_cell(text):
    return "`" + re.sub(r"\s+", " ", text).rstrip(";").replace("|", "\\|") + "`"


def table(title, rows):
    lines = [f"| {title} | meaning |", "|---|---|"]
    return "\n".join(lines + [f"| {code_cell(name)} | {cell(text)} |" for name, text in rows])


class Page:
    def __init__(self, path, title, intro):
        self.path, self.title = path, title
        self.parts = [f"# {title}", intro]
        self.index = []  # (name, heading)

    def add(self, part):
        if part:
            self.parts.append(part)

    def heading(self, level, text, names=()):
        self.parts.append("#" * level + " " + text)
        self.index += [(name, text) for name in names]

    def text(self):
        return "\n\n".join(self.parts) + "\n"


def declaration(lines, language):
    return f"```{language} (a declaration)\n" + "\n".join(lines) + "\n```"


def add_symbol(page, symbol, language, level=4, scope=""):
    if symbol.kind == "note":
        page.add(paragraphs(symbol.comment))
        return
    names = symbol.name.split(", ") if symbol.name else []
    if symbol.kind == "enum":
        heading = symbol.name or "Constants"
        page.heading(level, heading, names or [member.name for member in symbol.members])
        page.add(declaration(symbol.declarations, language) if symbol.name else "")
        page.add(paragraphs(symbol.comment))
        if any(member.comment for member in symbol.members):
            page.add(table("value", [(member.declarations[0], member.comment) for member in symbol.members]))
        else:
            page.add("Values: " + ", ".join(code_cell(member.declarations[0]) for member in symbol.members) + ".")
        return
    page.heading(level, scope + symbol.name.replace(", ", f", {scope}"), [scope + name for name in names])
    for each in [symbol, *symbol.overloads]:
        page.add(declaration(each.declarations, language))
        page.add(paragraphs(each.comment))
    if symbol.kind != "type":
        return
    fields = [member for member in symbol.members if member.kind in ("field", "constant")]
    if fields:
        page.add(table("field", [(member.declarations[0], member.comment) for member in fields]))
    others = [member for member in symbol.members if member.kind not in ("field", "constant")]
    described = [member for member in others if member.kind != "function" or member.overloads or
                 len(member.comment) > 100 or "\n" in "\n".join(member.declarations)]
    short = [member for member in others if member not in described]
    if short:
        page.index += [(f"{symbol.name}::{name}", symbol.name) for member in short for name in member.name.split(", ")]
        page.add(table("member", [(each, member.comment) for member in short for each in member.declarations]))
    for member in described:
        add_symbol(page, member, language, level + 1, scope=f"{symbol.name}::")


def header_pages(headers, groups_of_pages, language):
    """headers: by path. A header that is in no group is an error, and so is a group's header that is not public."""
    listed = [path for _, groups in groups_of_pages.values() for paths in groups.values() for path in paths]
    if missing := sorted(set(headers) - set(listed)):
        raise MissingSymbol(f"no page has {', '.join(missing)}: add it to a group in docs/reference/generator/pages.py")
    if unknown := sorted(set(listed) - set(headers)):
        raise MissingSymbol(f"{', '.join(unknown)} is on a page, but is no public header")
    pages = []
    for name, (title, groups) in groups_of_pages.items():
        contents = "\n".join(f"* [{group}](#{anchor(group)}): " + ", ".join(f"`{path}`" for path in paths)
                             for group, paths in groups.items())
        page = Page(name, title, f"Generated from the comments of the public headers by `make reference`.\n\n{contents}")
        for group, paths in groups.items():
            page.heading(2, group)
            for path in paths:
                header = headers[path]
                page.heading(3, f"anneal/{path}")
                page.add(paragraphs(header.comment, language + " (a part of a program)"))
                for symbol in header.symbols:
                    add_symbol(page, symbol, language)
        pages.append(page)
    return pages


def add_name(page, name, scope):
    page.heading(3, f"{scope}.{name.name}", [f"{scope}.{name.name}"])
    page.add(declaration(name.signature.split("\n"), "python"))
    page.add(paragraphs(name.text))
    fields = [member for member in name.members if "(" not in member.signature.split(":")[0]]
    methods = [member for member in name.members if member not in fields]
    if fields and any(member.text for member in fields):
        page.add(table("attribute", [(member.signature, member.text) for member in fields]))
    elif fields:
        page.add("Attributes: " + ", ".join(code_cell(member.signature) for member in fields) + ".")
    for member in methods:
        page.heading(4, f"{name.name}.{member.signature.split('(')[0]}")
        page.add(declaration(member.signature.split("\n"), "python"))
        page.add(paragraphs(member.text))


def python_page(names, torch_names):
    by_name = {name.name: name for name in names}
    listed = [name for group in PYTHON_GROUPS.values() for name in group]
    if missing := sorted(set(by_name) - set(listed)):
        raise MissingSymbol(f"python.md lacks {', '.join(missing)}: add it to a group in docs/reference/generator/pages.py")
    if unknown := sorted(set(listed) - set(by_name)):
        raise MissingSymbol(f"{', '.join(unknown)} is on python.md, but not in anneal.__all__")
    contents = "\n".join(f"* [{group}](#{anchor(group)})" for group in [*PYTHON_GROUPS, "torch"])
    page = Page("python.md", "Python", "Generated from the docstrings of the package by `make reference`. "
                f"[python.md](../python.md) has examples.\n\n{contents}")
    for group, group_names in PYTHON_GROUPS.items():
        page.heading(2, group)
        errors = [by_name[name] for name in group_names if name.endswith("Error") and not by_name[name].members]
        for name in group_names:
            if by_name[name] not in errors:
                add_name(page, by_name[name], "anneal")
        if errors:
            page.index += [(f"anneal.{error.name}", group) for error in errors]
            page.add(table("class", [(error.signature.removeprefix("class "), error.text) for error in errors]))
    page.heading(2, "torch")
    for name in torch_names:
        add_name(page, name, "anneal.torch")
    return page


def index_page(pages):
    """All names in alphabetical order, by page."""
    page = Page("README.md", "Reference", "Every public name, generated from the comments of the headers and the docstrings "
                "of the package by `make reference`. The commands are in [cli.md](../cli.md) and in `anneal COMMAND --help`.")
    for each in pages:
        page.heading(2, each.title)
        entries = sorted({(name, heading) for name, heading in each.index}, key=lambda entry: (entry[0].lower(), entry))
        page.add(f"[{each.path}]({each.path}): " + ", ".join(f"[{name}]({each.path}#{anchor(heading)})"
                                                          for name, heading in entries) + ".")
    return page
