"""The public names of the Python package with their docstrings, from its sources: nothing is built or imported."""

import ast
import dataclasses
import re


@dataclasses.dataclass
class Member:
    signature: str  # "load(source: Path | bytes, *, device: str = 'auto') -> Engine"
    text: str


@dataclasses.dataclass
class Name:
    name: str
    kind: str  # "class" or "function"
    signature: str
    text: str
    members: list[Member] = dataclasses.field(default_factory=list)


def _docstring(node):
    return ast.get_docstring(node) or ""


def _type_text(node):
    """Classes of the compiled module are exported by the package."""
    return ast.unparse(node).replace("_core.", "")


def _spaced(arguments):
    """`a: int=0` as `a: int = 0`."""
    return re.sub(r"(\w: (?:[^,=\[\]]|\[[^\]]*\])+?)=", r"\1 = ", arguments)


def _signature(node, is_method=False):
    arguments = node.args
    if is_method:
        both = arguments.posonlyargs or arguments.args
        if both and both[0].arg in ("self", "cls"):
            both.pop(0)
    returns = f" -> {_type_text(node.returns)}" if node.returns else ""
    return f"{node.name}({_spaced(_type_text(arguments))}){returns}"


def _has_decorator(node, name):
    return any(ast.unparse(each).split("(")[0].endswith(name) for each in node.decorator_list)


def _members_of(node):
    members = []
    is_data = _has_decorator(node, "dataclass") or any(ast.unparse(base).endswith("IntEnum") for base in node.bases)
    for item in node.body:
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name) and not item.target.id.startswith("_"):
            members.append(Member(ast.unparse(item), ""))
        elif is_data and isinstance(item, ast.Assign):
            members.append(Member(ast.unparse(item), ""))
        elif isinstance(item, ast.FunctionDef) and (not item.name.startswith("_") or item.name == "__call__"):
            if _has_decorator(item, "property"):
                members.append(Member(f"{item.name}: {_type_text(item.returns)}", _docstring(item)))
            else:
                members.append(Member(_signature(item, is_method=not _has_decorator(item, "staticmethod")), _docstring(item)))
    # Overloads have the text of the last.
    merged = []
    for member in members:
        if merged and not merged[-1].text and merged[-1].signature.split("(")[0] == member.signature.split("(")[0]:
            if member.signature.startswith(merged[-1].signature.split("(")[0] + "(first: Any"):
                merged[-1].text = member.text
            else:
                merged[-1].signature += "\n" + member.signature
                merged[-1].text = member.text
        else:
            merged.append(member)
    return merged


def _names_in(path):
    with open(path, encoding="utf-8") as source:
        tree = ast.parse(source.read())
    names = {}
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            bases = [ast.unparse(base) for base in node.bases]
            shown = f"({', '.join(base for base in bases if base[0] != '_')})" if any(base[0] != "_" for base in bases) else ""
            text = "\n\n".join([_docstring(node)] + [f"`{member.signature}`: {member.text}" for base in bases
                                                    if base[0] == "_" and base in names for member in names[base].members])
            names[node.name] = Name(node.name, "class", f"class {node.name}{shown}", text, _members_of(node))
        elif isinstance(node, ast.FunctionDef):
            names[node.name] = Name(node.name, "function", _signature(node), _docstring(node))
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            names[name] = Name(name, "constant", ast.unparse(node), "")
    return tree, names


STRING = r'"(?:\\.|[^"\\])*"'


def _text_of(literals):
    return "".join(ast.literal_eval(each) for each in re.findall(STRING, literals))


def _bound_class(source, name):
    """A class of nanobind: its text and members, from the source of the binding."""
    begin = re.search(rf'nb::class_<\w+>\(\s*module, "{name}",\s*((?:{STRING}\s*)+)\)', source)
    if not begin:
        raise SystemExit(f"no binding of {name} was found")
    made = Name(name, "class", f"class {name}", _text_of(begin.group(1)))
    chain = source[begin.end(): source.index(";\n}", begin.end())]
    if next_class := re.search(r"\n\s*nb::class_<", chain):
        chain = chain[: next_class.start()]
    for call in re.split(r"\n\s*(?=\.def)", chain):
        head = re.match(rf"\s*\.(def\w*)\(\s*({STRING})", call)
        if not head or _text_of(head.group(2)).startswith("__"):
            continue
        written = re.search(rf"nb::sig\(({STRING})\)", call)
        texts = [each.group() for each in re.finditer(rf",\s*((?:{STRING}\s*)+)\)", re.sub(rf"nb::sig\({STRING}\)", "", call))]
        member = _text_of(head.group(2))
        if written:
            member = re.sub(r"^def (\w+)\(self\) -> ", r"\1: ", _text_of(written.group(1)))
        elif head.group(1) in ("def", "def_static"):
            member += "(" + ", ".join(re.findall(r'"(\w+)"_a', call)) + ")"
        made.members.append(Member(member, _text_of(texts[-1]) if texts else ""))
    return made


def read_package(root, module="anneal"):
    """The Names of __all__, from the modules that __init__ imports them from."""
    folder = f"{root}/python/{module.replace('.', '/')}"
    tree, own = _names_in(f"{folder}/__init__.py")
    found, wanted = {}, ast.literal_eval(own["__all__"].signature.split("=", 1)[1].strip())
    for node in tree.body:
        if not isinstance(node, ast.ImportFrom) or not node.module.startswith("anneal"):
            continue
        source = f"{root}/python/{node.module.replace('.', '/')}.py"
        if node.module == "anneal._core":
            with open(f"{root}/python/src/bind_engine.cc", encoding="utf-8") as binding:
                text = binding.read()
            found |= {alias.name: _bound_class(text, alias.name) for alias in node.names}
        elif node.module != "anneal":
            names = _names_in(source)[1]
            found |= {alias.name: names[alias.name] for alias in node.names if alias.name in names}
    return [found[name] for name in wanted if not name.startswith("__")]
