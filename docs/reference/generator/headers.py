"""The public symbols of C and C++ headers with their comments, by libclang (python3-clang)."""

import dataclasses
import os
import re
import subprocess
import tempfile

try:
    from clang import cindex
except ImportError:  # tests are skipped then
    cindex = None


@dataclasses.dataclass
class Symbol:
    kind: str  # "note" (a comment of the declarations that follow), "type", "enum", "function", "field", "constant", "enumerator", "alias", "macro"
    name: str
    declarations: list[str]  # several: overloads and neighbours that share the comment
    comment: str
    line: int
    last_line: int
    members: list["Symbol"] = dataclasses.field(default_factory=list)
    overloads: list["Symbol"] = dataclasses.field(default_factory=list)  # of the same name, with comments of their own
    is_in_paragraph: bool = False  # no blank line and no comment are before it


@dataclasses.dataclass
class Header:
    path: str  # "engine/run/engine.h"
    comment: str
    symbols: list[Symbol]


@dataclasses.dataclass
class _Comment:
    first: int
    last: int
    column: int
    is_trailing: bool
    lines: list[str]

    def text(self):
        return "\n".join(self.lines).strip("\n")


def _lines_of(token_text):
    """The text of a comment, without its marks."""
    if token_text.startswith("//"):
        return [re.sub(r"^// ?", "", token_text)]
    body = re.sub(r"^/\*+ ?|\s*\*+/$", "", token_text, flags=re.S)
    first, *others = body.split("\n")
    return [first] + [re.sub(r"^\s*\* ?", "", line) for line in others]


class _Comments:
    """The comments of a file: blocks that stand alone, and those behind declarations."""

    def __init__(self, unit, path, source):
        extent = unit.get_extent(path, (0, len(source.encode())))
        lines = source.split("\n")
        self.all = []
        for token in unit.get_tokens(extent=extent):
            if token.kind != cindex.TokenKind.COMMENT or token.spelling.startswith("// NOLINT"):
                continue
            start, end = token.extent.start, token.extent.end
            trailing = bool(lines[start.line - 1][: start.column - 1].strip())
            made = _Comment(start.line, end.line, start.column, trailing, _lines_of(token.spelling))
            last = self.all[-1] if self.all else None
            if last and not trailing and last.last == start.line - 1 and last.column == start.column:
                last.lines += made.lines
                last.last = made.last
            else:
                self.all.append(made)

    def leading(self, line):
        return next((each for each in self.all if not each.is_trailing and each.last == line - 1), None)

    def trailing(self, first, last):
        found = [each for each in self.all if each.is_trailing and first <= each.first <= last]
        return "\n".join(each.text() for each in found)


def _without_comments(text):
    text = re.sub(r"[ \t]*//[^\n]*", "", text)
    text = re.sub(r"[ \t]*/\*.*?\*/", "", text, flags=re.S)
    return "\n".join(line.rstrip() for line in text.split("\n") if line.strip())


def _dedented(text, column):
    """Lines after the first lose the indent of the declaration."""
    lines = text.split("\n")
    return "\n".join([lines[0]] + [line[min(column, len(line) - len(line.lstrip())):] for line in lines[1:]])


class _Reader:
    def __init__(self, unit, root, path):
        self.file = os.path.join(root, path)
        with open(self.file, encoding="utf-8") as source:
            self.source = source.read()
        self.bytes = self.source.encode()
        self.path = path
        self.comments = _Comments(unit, self.file, self.source)

    def read(self, cursors):
        first = next((each for each in self.comments.all if not each.is_trailing), None)
        symbols = self.symbols_in(cursors)
        notes = [self.note(each) for each in self.comments.all if each is not first and self.is_note(each, cursors)]
        symbols = sorted(symbols + notes, key=lambda each: each.line)
        return Header(self.path, first.text() if first and first.first == 1 else "", symbols)

    def is_note(self, comment, cursors):
        """Whether the comment is of no declaration and in none, but of those that follow."""
        if comment.is_trailing:
            return False
        lines = self.source.split("\n")
        following = lines[comment.last].strip() if comment.last < len(lines) else ""
        if following:
            return False
        kinds = cindex.CursorKind
        for cursor in cursors:
            if cursor.kind in (kinds.NAMESPACE, kinds.LINKAGE_SPEC) and cursor.spelling != "detail":
                if not self.is_note(comment, list(cursor.get_children())):
                    return False
            elif cursor.extent.start.line <= comment.first <= cursor.extent.end.line:
                return False
        return True

    @staticmethod
    def note(comment):
        return Symbol("note", "", [], comment.text(), comment.first, comment.last)

    def text(self, begin, end):
        return self.bytes[begin:end].decode()

    def symbols_in(self, cursors):
        """The public declarations in a file, namespace or type; neighbours without comments join those before them."""
        made = []
        last_line = 0
        for cursor in sorted(self.declarations(cursors), key=lambda each: each.extent.start.offset):
            symbol = self.symbol_of(cursor)
            if symbol is None:
                continue
            end = cursor.extent.end.line
            before = made[-1] if made else None
            if before and before.start == cursor.extent.start.offset:  # `int a = 0, b = 0;`
                if cursor.kind == cindex.CursorKind.FIELD_DECL:
                    before.name += ", " + symbol.name
                    before.declarations = symbol.declarations
                continue
            is_next = before and cursor.extent.start.line <= last_line + 1 and not self.comments.leading(symbol.line)
            symbol.is_in_paragraph = bool(is_next)
            if is_next and not symbol.comment and before.leads and before.kind == symbol.kind == "function":
                before.declarations += symbol.declarations
                if symbol.name not in before.name.split(", "):
                    before.name += ", " + symbol.name
            elif before and before.kind == symbol.kind == "function" and before.name == symbol.name:
                before.overloads.append(symbol)
            else:
                symbol.leads = self.comments.leading(symbol.line) is not None
                made.append(symbol)
            last_line = max(last_line, end)
        return made

    def declarations(self, cursors):
        kinds = cindex.CursorKind
        for cursor in cursors:
            if cursor.kind == kinds.NAMESPACE:
                if cursor.spelling != "detail":
                    yield from self.declarations(cursor.get_children())
            elif cursor.kind == kinds.LINKAGE_SPEC or (cursor.kind == kinds.UNEXPOSED_DECL and not cursor.spelling):
                yield from self.declarations(cursor.get_children())
            elif cursor.access_specifier in (cindex.AccessSpecifier.PRIVATE, cindex.AccessSpecifier.PROTECTED):
                continue
            else:
                yield cursor

    def symbol_of(self, cursor):
        kinds = cindex.CursorKind
        kind = {kinds.STRUCT_DECL: "type", kinds.CLASS_DECL: "type", kinds.CLASS_TEMPLATE: "type", kinds.ENUM_DECL: "enum",
                kinds.FUNCTION_DECL: "function", kinds.FUNCTION_TEMPLATE: "function", kinds.CXX_METHOD: "function",
                kinds.CONSTRUCTOR: "function", kinds.CONVERSION_FUNCTION: "function", kinds.FIELD_DECL: "field",
                kinds.VAR_DECL: "constant", kinds.UNEXPOSED_DECL: "constant", kinds.MACRO_DEFINITION: "macro", kinds.ENUM_CONSTANT_DECL: "enumerator", kinds.TYPE_ALIAS_DECL: "alias",
                kinds.TYPE_ALIAS_TEMPLATE_DECL: "alias", kinds.TYPEDEF_DECL: "alias"}.get(cursor.kind)
        if kind is None:
            return None
        if kind in ("type", "enum"):
            return self.type_of(cursor, kind)
        name = cursor.spelling
        if kind == "function":
            name = re.sub(r"<.*", "", name) if not name.startswith("operator") else name
            if self.is_hidden_function(cursor):
                return None
        if kind == "alias":
            return self.alias_of(cursor)
        if kind == "macro":
            text = self.text(cursor.extent.start.offset, cursor.extent.end.offset)
            is_guard = name.endswith("_H_")
            return None if is_guard else self.made(kind, name, f"#define {text}", cursor, cursor.extent.end.line)
        text, last = self.declaration(cursor, kind)
        return self.made(kind, name, text, cursor, last)

    def made(self, kind, name, text, cursor, last_line, members=()):
        first = cursor.extent.start.line
        before = self.source.split("\n")[first - 1][: cursor.extent.start.column - 1].strip()
        leading = self.comments.leading(first) if before in ("", "typedef", "#define") else None
        # Values on the line of their enum have no comments of their own.
        trailing = "" if kind == "enumerator" and "{" in before else self.comments.trailing(first, last_line)
        comment = "\n".join(part for part in (leading.text() if leading else "", trailing) if part)
        symbol = Symbol(kind, name, [text], comment, first, last_line, list(members))
        symbol.start = cursor.extent.start.offset
        symbol.leads = leading is not None
        return symbol

    def is_hidden_function(self, cursor):
        text = self.text(cursor.extent.start.offset, cursor.extent.end.offset + 12)
        return (cursor.kind == cindex.CursorKind.DESTRUCTOR or cursor.spelling in ("operator==", "operator=") or
                "= default" in text or "&&)" in text)

    def declaration(self, cursor, kind):
        """The text without body and comments, and its last line."""
        begin, end = cursor.extent.start.offset, cursor.extent.end.offset
        body = self.body_of(cursor) if kind == "function" else None
        if body is not None:
            end = body
        elif kind != "enumerator":
            end = self.bytes.index(b";", end)
        text = self.text(begin, end)
        last_line = cursor.extent.start.line + text.count("\n")
        if kind == "function":
            text = self.without_initializers(_without_comments(text))
        text = _dedented(_without_comments(text), cursor.extent.start.column - 1).strip()
        if kind == "constant" and "{" in text and "\n" in text:
            text = text[: text.index("=")].strip()
        return text + (";" if kind != "enumerator" else ""), last_line

    @staticmethod
    def without_initializers(text):
        depth = 0
        for i, letter in enumerate(text):
            depth += {"(": 1, ")": -1}.get(letter, 0)
            if letter == ":" and depth == 0 and text[i - 1: i] in (" ", "\n") and text[i + 1: i + 2] != ":":
                return text[:i].rstrip()
        return text.rstrip()

    def body_of(self, cursor):
        for child in cursor.get_children():
            if child.kind == cindex.CursorKind.COMPOUND_STMT:
                return child.extent.start.offset
        return None

    def type_of(self, cursor, kind):
        if not cursor.is_definition():
            return None
        begin, end = cursor.extent.start, cursor.extent.end
        brace = self.bytes.index(b"{", begin.offset)
        name = cursor.spelling if cursor.spelling and " at " not in cursor.spelling else ""
        after = self.text(end.offset, self.bytes.index(b";", end.offset)).strip()
        text = re.sub(r"\s+", " ", _without_comments(self.text(begin.offset, brace))).strip()
        is_typedef = self.bytes[: begin.offset].rstrip().endswith(b"typedef")
        if is_typedef:
            name, text = after, f"typedef {text} {after}"
        members = self.symbols_in(cursor.get_children())
        first_line = begin.line + self.text(begin.offset, brace).count("\n")
        symbol = self.made(kind, name, text, cursor, first_line, members)
        behind = self.comments.trailing(end.line, end.line) if end.line > first_line else ""
        symbol.comment = "\n".join(part for part in (symbol.comment, behind) if part)
        symbol.last_line = end.line
        return symbol

    def alias_of(self, cursor):
        begin = cursor.extent.start.offset
        text = self.text(begin, self.bytes.index(b";", cursor.extent.end.offset))
        if re.match(r"typedef\s+(struct|enum)\b[^;{]*\{", text):
            return None  # its definition is a symbol
        text = _dedented(_without_comments(text), cursor.extent.start.column - 1).strip() + ";"
        return self.made("alias", cursor.spelling, text, cursor, cursor.extent.end.line)


def _parse(root, paths, language, include):
    arguments = ["-x", language, "-I", include, "-ferror-limit=0"]
    arguments += ["-std=c++20"] if language == "c++" else ["-std=c11"]
    for folder in subprocess.run(["gcc", "-print-file-name=include"], capture_output=True, text=True, check=True).stdout.split():
        arguments += ["-isystem", folder]
    text = "".join(f'#include "anneal/{path}"\n' for path in paths)
    unit = cindex.Index.create().parse("all.cc", args=arguments, unsaved_files=[("all.cc", text)],
                                          options=cindex.TranslationUnit.PARSE_DETAILED_PROCESSING_RECORD)
    errors = [str(each) for each in unit.diagnostics if each.severity >= cindex.Diagnostic.Error]
    if errors:
        raise SystemExit("the public headers do not parse:\n" + "\n".join(errors[:10]))
    of_file = {}
    for cursor in unit.cursor.get_children():
        if cursor.location.file is not None:
            of_file.setdefault(cursor.location.file.name, []).append(cursor)
    return [_Reader(unit, root, path).read(of_file.get(os.path.join(include, "anneal", path), [])) for path in paths]


def is_c(path):
    return os.path.basename(path).startswith("c_")


def read_headers(root, paths):
    """A Header for each path, in their order."""
    with tempfile.TemporaryDirectory() as include:
        os.symlink(os.path.abspath(root), os.path.join(include, "anneal"))
        read = {}
        for language, wanted in (("c", [p for p in paths if is_c(p)]), ("c++", [p for p in paths if not is_c(p)])):
            if wanted:
                read |= {header.path: header for header in _parse(root, wanted, language, include)}
    return [read[path] for path in paths]
