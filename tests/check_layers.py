#!/usr/bin/env python3
"""Who may include whom: the table of rooms, and the check that every include obeys it.

    check_layers.py              checks the sources; prints file:line, the arrow and the rule broken
    check_layers.py --self-test  feeds the check wrong sources and fails if it accepts one

A room is a folder; a file belongs to the longest room that is a prefix of its path.
"""

import functools
import re
import sys

import public_commands
from module_circles import module_circles
from sources import ROOT, sources

# room: (level, rooms it may see beside itself)
ENGINE = ["core", "graph", "kernels", "engine"]
BELOW_BUILD = ENGINE + ["importer", "optimizer", "kernels/cpu", "kernels/cuda"]
BELOW_ONNX = BELOW_BUILD + ["engine/run", "engine/data", "engine/builder", "engine/tune"]
LIBRARIES = BELOW_ONNX + ["engine/compare", "engine/onnx"]
ROOMS = {
    "cmake": (0, []),
    "core": (0, []),
    "graph": (1, ["core"]),
    "kernels": (2, ["core", "graph"]),
    "engine": (2, ["core", "graph"]),
    "importer": (2, ["core", "graph"]),
    "kernels/cpu": (3, ["core", "graph", "kernels"]),
    "kernels/cuda": (3, ["core", "graph", "kernels"]),
    "optimizer": (4, ["core", "graph", "kernels", "kernels/cpu"]),
    "engine/data": (4, ["core", "graph", "importer"]),
    "engine/run": (4, ENGINE + ["kernels/cpu", "kernels/cuda"]),
    "engine/builder": (5, BELOW_BUILD + ["engine/run", "engine/data"]),
    "engine/compare": (6, BELOW_ONNX),
    "engine/tune": (6, BELOW_ONNX),
    "engine/onnx": (7, BELOW_ONNX + ["engine/compare"]),  # the interface of libbuilder, from an ONNX model to an engine
    "anneal.h": (8, LIBRARIES),  # the umbrella header, for applications
    "cli": (8, LIBRARIES),
    "python": (8, LIBRARIES),  # public headers alone: PUBLIC_ONLY
    "samples": (9, LIBRARIES + ["anneal.h"]),
    "bench": (9, LIBRARIES),
    "tests": (10, LIBRARIES + ["anneal.h", "cli", "bench"]),
}

# room: its sub-folders, each with the sub-folders of the same room that it may see. "" stands for the files of the room
# itself. A sub-folder sees only sub-folders that stand before it, so that there is no cycle; other rooms see all of them.
PARTS = {
    # What the application gives is below what uses it. Sizes are expressions; shapes hold ids of them.
    "core": {
        "application": [],
        "hash": [],
        "": ["application"],
        "size": [""],
        "files": [""],
    },
    # Programs are fields of ops, and ops of layers.
    "graph": {
        "program": [],
        "op": ["program"],
        "": ["program", "op"],
        "text": ["program", "op", ""],
    },
    "importer": {
        "onnx": [],
        "node": ["onnx"],
        "ops": ["onnx", "node"],
        "ml": ["onnx", "node", "ops"],
        "graph": ["onnx", "node", "ops"],
        "": ["onnx", "node", "graph"],
    },
    # The arena's layout, the memory of a context and queues of work are below what runs steps.
    # Operators from outside are behind engine/kernel_library.h, on the structs of the C interface; load_engine.cc calls them.
    "engine/run": {
        "memory": [],
        "async": [],
        "": ["memory", "async"],
        "context": ["", "memory", "async"],
        "library": [""],
    },
    # What counts the operations of steps, what compares two plans, what takes decisions of an earlier plan again, what times
    # kernels, and what a plan is fed without data, is below
    # what builds plans.
    "engine/builder": {
        "inputs": [],
        "work": [],
        "self_check": ["inputs", "work"],
        "replay": [],
        "timing": ["replay"],
        "": ["inputs", "work", "self_check", "replay", "timing"],
    },
    "kernels/cpu": {
        "base": [],
        "reference": ["base"],
        "program": ["base", "reference"],
        "gemm": ["base", "program"],
        "conv": ["base", "program", "gemm"],
        "movement": ["base", "reference", "program", "conv"],
        "recurrent": ["base", "reference", "program", "gemm"],
        "reduce": ["base", "reference", "program", "gemm"],
        "onednn": ["base", "program", "conv"],
        "": ["base", "onednn"],
    },
    "kernels/cuda": {
        "device": [],
        "api": [],
        "cost": [],
        "code": ["api", "device"],
        "runtime": ["api", "cost", "code"],
        "emulated": ["api", "cost", "code", "device", "runtime"],  # a library of its own, which runtime opens
        "text": ["cost", "runtime"],
        "kernels": ["cost", "text"],
        "recurrent": ["runtime", "text", "kernels"],
        "cudnn": ["api", "cost", "runtime", "text", "kernels"],  # kernels of libraries, which the table of kernels/entries.h lists
        "cublas_lt": ["api", "cost", "runtime", "kernels"],
        # images of code are joined for the builder; texts of tactics; memory that cuDNN refuses
        "": ["cost", "code", "runtime", "kernels", "cudnn"],
    },
    "optimizer": {
        "": [],
        "programs": [""],
        "analysis": ["", "programs"],
        "precision": ["", "programs", "analysis"],
        "passes": ["", "programs", "analysis", "precision"],
        "pipeline": ["", "passes"],
    },
    "engine/tune": {
        "samples": [],
        "calibration": ["samples"],
        "metric": ["samples"],
        "frontier": [],
        "search": ["samples", "calibration", "metric", "frontier"],
    },
    "cli": {
        "output": [],
        "flags": ["output"],
        "measure": ["output"],
        "monitor": ["output", "flags", "measure"],
        "model": ["output", "flags", "measure"],
        "roofline": ["output", "flags", "measure", "model"],
        "compare": ["output", "measure", "model"],
        "check": ["output", "measure", "model", "compare"],
        "ablation": ["output", "measure", "model"],
        "commands": ["output", "flags", "measure", "model", "roofline", "compare", "check", "monitor", "ablation"],
        "": ["output", "flags", "monitor", "commands"],
    },
}

# Of the backends, these rooms see the entry alone.
ENTRY_ONLY = {"engine/run": r"kernels/(cpu|cuda)/backend\.h", "engine/builder": r"kernels/(cpu|cuda)/backend\.h"}

# Rooms that are peers of an application: they see the public headers alone.
PUBLIC_ONLY = {"python"}

# (files, header that they must not reach, even through other headers)
UNREACHABLE = [(r"kernels/.*", "graph/graph.h")]

# header: the files that may include it
VENDORS = [
    (r"google/protobuf/.*|.*\.pb\.h", r"importer/.*|tests/.*"),
    (r"onnx/.*", r"tests/.*"),
    (r"(cuda|cudnn|cublas|cublasLt|nvrtc|nvml|nvToolsExt).*\.h", r"kernels/cuda/.*|tests/.*|bench/gpu/.*"),
    (r"dnnl.*|oneapi/.*", r"kernels/cpu/.*|tests/.*"),
    (r"hwy/.*", r"core/.*|kernels/cpu/.*|optimizer/precision/.*|tests/.*|bench/.*"),
    (r"archive(_entry)?\.h|CLI/.*", r"cli/.*|tests/.*|bench/.*"),
    (r"nlohmann/.*", r"cli/.*|engine/(data|onnx|tune)/.*|samples/.*|tests/.*|bench/.*"),
    (r"nanobind/.*", r"python/.*"),
    (r"jpeglib\.h|jerror\.h|png\.h|zlib\.h", r"engine/data/.*|samples/pipeline/.*|tests/.*"),
]

# Circles of modules (a header with its .cc) that stay, and why.
CIRCLES = {
    # A size may hold the rounding of a real expression, whose parts are sizes.
    ("core/size/real", "core/size/size"),
    # Members of Graph that have a file and a helper class of their own.
    ("graph/graph", "graph/refine", "graph/size_dependencies"),
    # The questions that are asked of every op: its name, its traits, its inference.
    ("graph/op/infer", "graph/op/infer_rules", "graph/op/op", "graph/op/op_names", "graph/op/op_traits"),
    ("graph/program/program", "graph/program/program_rules", "graph/program/program_simplify"),
    # Layers of control flow have bodies, which are walked, imported and run as the graph around them is.
    ("engine/builder/inputs/range_readers", "engine/builder/inputs/range_rules", "engine/builder/inputs/value_ranges",
     "engine/builder/inputs/value_walk"),
    ("engine/run/control_flow", "engine/run/plan_run"),
    # The text of device functions calls the emulator, which runs them.
    ("kernels/cuda/emulated/block", "kernels/cuda/emulated/calls"),
    ("importer/graph/control_flow", "importer/graph/node_importer"),
}

# The only files with state of the process: the worker budget, the opened libraries, the emulated device, the calls of Python.
PROCESS_STATE = {"core/parallel.cc", "core/library.cc", "kernels/cuda/emulated/driver.cc", "python/src/calls.cc"}

INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"([^"]+)"|<([^>]+)>)')
LOCAL_STATE = re.compile(r"\b(?:static|thread_local)\s+(?!(?:inline\s+)?const(?:expr)?\b)[\w:<>,*&\s]*[\w>*&]\s+[*&]*\w+\s*[=;{]")
GENERATED = re.compile(r"importer/onnx/onnx\.pb\.h")


def room_of(path):
    if path in ROOMS:
        return path
    folders = path.split("/")[:-1]
    while folders and "/".join(folders) not in ROOMS:
        folders.pop()
    return "/".join(folders)


def part_of(path, room):
    """The sub-folder of its room that a file lies in; "" for the room itself."""
    return "/".join(path.split("/")[:-1])[len(room) + 1:]


def without_comments(text):
    """Comments and the insides of strings are blanked; line numbers stay."""
    token = re.compile(
        r'//[^\n]*|/\*.*?\*/|R"(?P<tag>[^()\s\\]*)\(.*?\)(?P=tag)"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'', re.S)

    def blank(match):
        found = match.group()
        if found.startswith("/"):
            return re.sub(r"[^\n]", " ", found)
        return '""' + "\n" * found.count("\n")

    return token.sub(blank, re.sub(r"(?<=[0-9a-fA-F])'(?=[0-9a-fA-F])", "", text))


def mutable_globals(text):
    """(line, declaration) of variables that live as long as the process and are not constant.

    Statics inside functions and types are found by their first word, the others by their place.

    Walks the braces: a brace opened by `namespace` or `extern "C"` stays at namespace scope. A
    statement there that ends in ';' is a variable if it has an initialiser or no parenthesis, and
    is no type, alias or template. Thread-locals and atomics count: they are state as well.
    """
    text = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", lambda m: "\n" * m.group().count("\n"),
                  without_comments(text), flags=re.M)
    found = [(text.count("\n", 0, m.start()) + 1, m.group().strip(" ={;")) for m in LOCAL_STATE.finditer(text)]
    depth, nest, statement, start, line, opened_initialiser = 0, [], "", 1, 1, False
    for c in text:
        if c == "\n":
            line += 1
        if c == "{" and depth == 0:
            head = " ".join(statement.split())
            if re.match(r'(inline )?namespace\b|extern ""$', head):
                nest.append("namespace")
                statement = ""
                continue
            depth = 1
            # `, b{y} {}` are the last members that a constructor initialises, and its body
            opened_initialiser = head[:1] not in ("", ",") and not re.search(r"\)|\b(class|struct|union|enum)\b|\boperator\b", head.split("=")[0])
            continue
        if depth:
            depth += {"{": 1, "}": -1}.get(c, 0)
            if depth == 0 and not opened_initialiser:
                # the body of a function ends a statement, that of a type waits for its ';'
                if not re.search(r"\b(class|struct|union|enum)\b", statement):
                    statement = ""
            continue
        if c == "}":
            if nest:
                nest.pop()
            statement = ""
            continue
        if c == ";":
            if not LOCAL_STATE.match(statement.strip() + ";") and is_mutable_variable(" ".join(statement.split())):
                found.append((start, " ".join(statement.split())))
            statement = ""
            continue
        if not statement.strip() and not c.isspace():
            start = line
        statement += c
    return found


def is_mutable_variable(statement):
    first = statement.split("=")[0].strip()
    if not first or re.match(
            r"(using|typedef|template|friend|static_assert|namespace|class|struct|union|enum|asm|extern template|return|public|private|protected)\b", first):
        return bool(re.match(r"(struct|class|union|enum)\b.*\}\s*\w", statement))
    if re.search(r"\b(constexpr|constinit const|operator)\b", first):
        return False
    before_parenthesis = first.split("(")[0].strip()
    if "(" in first and "=" not in statement:
        # `type name(...)` is a function; macros such as TEST(a, b) have a body and do not come here
        return False
    if "(" in first:
        return False
    if len(before_parenthesis.split()) < 2:
        return False
    if re.match(r"extern\b", first):
        return True
    if re.search(r"\bconst\s+[\w:<>,\s]*\*(?!\s*const)\s*\w+(\[[^\]]*\])*$", first):
        return True  # a pointer that may be changed to another constant
    return not re.search(r"\bconst\b", first)


@functools.cache
def public_headers():
    with open(f"{ROOT}/cmake/public_headers.cmake", encoding="utf-8") as listed:
        return set(re.findall(r"include/anneal/(\S+)", listed.read()))


def problems_of(files):
    """files: path -> text. Returns the messages, sorted."""
    problems = []
    includes = {}  # path -> [(line, header of ours)]
    for path, text in files.items():
        includes[path] = []
        if not room_of(path):
            problems.append(f"{path}:1: in no room: add its folder to the table in tests/check_layers.py")
        clean = re.sub(r"/\*.*?\*/", lambda m: "\n" * m.group().count("\n"), text, flags=re.S)
        for number, line in enumerate(clean.split("\n"), 1):
            match = INCLUDE.match(line)
            if not match:
                continue
            header = match.group(1) or match.group(2)
            where = f"{path}:{number}: includes {header}"
            if header.startswith("."):
                problems.append(f"{where}: a relative include; write \"anneal/folder/file.h\"")
            elif match.group(2) and header.startswith("anneal/"):
                # outside our tree the same line is how a user writes it
                if room_of(path) not in ("samples", "tests"):
                    problems.append(f"{where}: our own headers are included with quotes")
            if header.startswith("anneal/"):
                includes[path].append((number, header[len("anneal/"):]))
            # A sample is a user's project, with files of its own.
            elif (match.group(1) and room_of(path) != "samples" and
                  f"{path.rsplit('/', 1)[0]}/{header}" in files):
                problems.append(f"{where}: a relative include; write \"anneal/folder/file.h\"")
            for vendor, homes in VENDORS:
                if re.fullmatch(vendor, header) and not re.fullmatch(homes, path):
                    problems.append(f"{where}: only {homes.split('|')[0]} may include it")
        if path not in PROCESS_STATE and room_of(path) not in ("tests", "samples"):
            for number, statement in mutable_globals(text):
                problems.append(f"{path}:{number}: `{statement[:60]}`: a mutable global; "
                                f"only {' and '.join(sorted(PROCESS_STATE))} may hold process-wide state")

    for path, found in includes.items():
        room = room_of(path)
        for number, header in found:
            where = f"{path}:{number}: includes {header}"
            target = room_of(header)
            if header not in files and not GENERATED.fullmatch(header):
                problems.append(f"{where}: there is no such file")
            if room and target == room and room in PARTS:
                part, other = part_of(path, room), part_of(header, room)
                unknown = {part, other} - set(PARTS[room])
                if unknown:
                    problems.append(f"{where}: {room} has no sub-folder \"{unknown.pop()}\" in the table of parts")
                elif part != other and other not in PARTS[room][part]:
                    sees = ", ".join(each or "its own files" for each in PARTS[room][part]) or "nothing else"
                    problems.append(f"{where}: within {room}, \"{part}\" sees {sees}")
            if not room or target == room:
                continue
            if not target:
                problems.append(f"{where}: in no room")
            elif target not in ROOMS[room][1]:
                level, other = ROOMS[room][0], ROOMS[target][0]
                way = "up" if other > level else "sideways" if other == level else "not allowed"
                sees = ", ".join(ROOMS[room][1]) or "nothing else"
                problems.append(f"{where}: {room} -> {target} is {way}: {room} sees {sees}")
            elif target.startswith("kernels/") and room in ENTRY_ONLY and not re.fullmatch(ENTRY_ONLY[room], header):
                problems.append(f"{where}: {room} sees a backend through its backend.h only")
            elif room in PUBLIC_ONLY and header not in public_headers():
                problems.append(f"{where}: {room} sees public headers only")

    for pattern, header in UNREACHABLE:
        for path in includes:
            chain = path_to(includes, path, header) if re.fullmatch(pattern, path) else None
            if chain:
                number = next(n for n, h in includes[path] if h == chain[1])
                problems.append(f"{path}:{number}: reaches {header} ({' -> '.join(chain)}): "
                                f"kernels see ops and types, never the graph")

    ours = {path: {header for _, header in found if header in files} for path, found in includes.items()
            if room_of(path) not in ("tests", "samples", "bench")}
    problems += [f"{circle[0]}: circle of modules: {', '.join(circle)}: move what they share to a header of its own"
                 for circle in module_circles(ours) if tuple(circle) not in CIRCLES]
    edges = {path: {h for _, h in found} for path, found in includes.items()}
    problems += [f"{cycle[0]}:1: include cycle: {' -> '.join(cycle)}" for cycle in cycles(edges)]
    folders = {}
    for path, found in edges.items():
        folders.setdefault(room_of(path), set()).update(room_of(h) for h in found if room_of(h) != room_of(path))
    problems += [f"{cycle[0]}: cycle of folders: {' -> '.join(cycle)}" for cycle in cycles(folders)]
    return sorted(set(problems))


def path_to(includes, start, goal):
    came_from, queue = {start: None}, [start]
    for path in queue:
        for _, header in includes.get(path, []):
            if header in came_from:
                continue
            came_from[header] = path
            if header == goal:
                chain = [goal]
                while came_from[chain[0]] is not None:
                    chain.insert(0, came_from[chain[0]])
                return chain
            queue.append(header)
    return None


def cycles(edges):
    """One cycle for each loop closed by a depth-first walk."""
    found, done = [], set()
    for start in sorted(edges):
        stack = [(start, iter(sorted(edges[start])))] if start not in done else []
        trail = [start]
        while stack:
            node, rest = stack[-1]
            for target in rest:
                if target in trail:
                    found.append(trail[trail.index(target):] + [target])
                elif target not in done:
                    trail.append(target)
                    stack.append((target, iter(sorted(edges.get(target, ())))))
                    break
            else:
                done.add(node)
                stack.pop()
                trail.pop()
    return found


def table_problems():
    return [f"the table lets {room} see {other}, which is above it"
            for room, (level, sees) in ROOMS.items() for other in sees if ROOMS[other][0] > level] + [
                f"the table lets {room}/{part} see {other}, which does not stand before it"
                for room, parts in PARTS.items() for part, sees in parts.items()
                for other in sees if other not in list(parts)[:list(parts).index(part)]]


# (name, files, the text that one message must hold; None: no message at all)
SELF_TESTS = [
    ("a good arrow", {"graph/a.h": '#include "anneal/core/b.h"\n', "core/b.h": ""}, None),
    ("within a room", {"core/a.h": '#include "anneal/core/b.h"\n', "core/b.h": "#include <vector>\n"}, None),
    ("up", {"core/a.h": '#include "anneal/graph/b.h"\n', "graph/b.h": ""}, "core -> graph is up"),
    ("sideways", {"kernels/cpu/a.cc": '#include "anneal/kernels/cuda/b.h"\n', "kernels/cuda/b.h": ""}, "is sideways"),
    ("run sees build", {"engine/run/a.cc": '\n#include "anneal/engine/builder/b.h"\n', "engine/builder/b.h": ""},
     "engine/run/a.cc:2: includes engine/builder/b.h: engine/run -> engine/builder is up"),
    ("run sees optimizer", {"engine/run/a.cc": '#include "anneal/optimizer/b.h"\n', "optimizer/b.h": ""}, "is sideways"),
    ("run sees importer", {"engine/run/a.cc": '#include "anneal/importer/b.h"\n', "importer/b.h": ""}, "is not allowed"),
    ("run sees inside a backend", {"engine/run/a.cc": '#include "anneal/kernels/cpu/gemm/gemm.h"\n', "kernels/cpu/gemm/gemm.h": ""},
     "through its backend.h only"),
    ("run sees a backend's entry",
     {"engine/run/a.cc": '#include "anneal/kernels/cpu/backend.h"\n', "kernels/cpu/backend.h": ""}, None),
    ("within a room, a part above", {"kernels/cpu/gemm/a.h": '#include "anneal/kernels/cpu/conv/b.h"\n', "kernels/cpu/conv/b.h": ""},
     'kernels/cpu/gemm/a.h:1: includes kernels/cpu/conv/b.h: within kernels/cpu, "gemm" sees base, program'),
    ("within a room, a part below", {"kernels/cpu/conv/a.h": '#include "anneal/kernels/cpu/gemm/b.h"\n', "kernels/cpu/gemm/b.h": ""}, None),
    ("a kernel sees the emulated device", {"kernels/cuda/kernels/a.cc": '#include "anneal/kernels/cuda/emulated/b.h"\n',
                                           "kernels/cuda/emulated/b.h": ""}, 'within kernels/cuda, "kernels" sees'),
    ("an unknown part", {"cli/a.cc": '#include "anneal/cli/new/b.h"\n', "cli/new/b.h": ""}, 'no sub-folder "new"'),
    ("optimizer folds with kernels", {"optimizer/a.cc": '#include "anneal/kernels/cpu/b.h"\n', "kernels/cpu/b.h": ""}, None),
    ("Python sees a public header", {"python/src/a.cc": '#include "anneal/core/error.h"\n', "core/error.h": ""}, None),
    ("Python sees inside", {"python/src/a.cc": '#include "anneal/core/fail.h"\n', "core/fail.h": ""}, "public headers only"),
    ("kernel sees graph", {"kernels/cpu/a.cc": '#include "anneal/graph/graph.h"\n', "graph/graph.h": ""}, "never the graph"),
    ("kernel sees graph through ops",
     {"kernels/a.h": '#include "anneal/graph/op/op.h"\n', "graph/op/op.h": '#include "anneal/graph/graph.h"\n',
      "graph/graph.h": ""}, "kernels/a.h -> graph/op/op.h -> graph/graph.h"),
    ("kernel sees ops", {"kernels/a.h": '#include "anneal/graph/op/op.h"\n', "graph/op/op.h": ""}, None),
    ("file cycle", {"core/a.h": '#include "anneal/core/b.h"\n', "core/b.h": '#include "anneal/core/a.h"\n'}, "include cycle"),
    ("circle of modules", {"core/a.h": "", "core/a.cc": '#include "anneal/core/a.h"\n#include "anneal/core/b.h"\n',
                           "core/b.h": "", "core/b.cc": '#include "anneal/core/b.h"\n#include "anneal/core/a.h"\n'},
     "core/a: circle of modules: core/a, core/b"),
    ("folder cycle", {"kernels/a.h": '#include "anneal/engine/b.h"\n', "engine/b.h": "",
                      "engine/c.h": '#include "anneal/kernels/d.h"\n', "kernels/d.h": ""}, "cycle of folders"),
    ("relative", {"core/a.cc": '#include "../graph/b.h"\n'}, "a relative include"),
    ("relative, same folder", {"core/a.cc": '#include "b.h"\n', "core/b.h": ""}, "a relative include"),
    ("missing", {"core/a.cc": '#include "anneal/core/gone.h"\n'}, "no such file"),
    ("no room", {"utils/a.cc": ""}, "in no room"),
    ("protobuf outside", {"engine/data/a.cc": "#include <google/protobuf/message_lite.h>\n"}, "only importer/"),
    ("generated outside", {"engine/data/a.cc": '#include "anneal/importer/onnx/onnx.pb.h"\n'}, "only importer/"),
    ("generated inside", {"importer/a.cc": '#include "anneal/importer/onnx/onnx.pb.h"\n'}, None),
    ("cuda outside", {"engine/run/a.cc": "#include <cuda_runtime.h>\n"}, "only kernels/cuda/"),
    ("oneDNN outside", {"engine/run/a.cc": "#include <oneapi/dnnl/dnnl.h>\n"}, "only kernels/cpu/"),
    ("in a comment", {"core/a.h": '// #include "anneal/graph/b.h"\n/*\n#include "anneal/graph/b.h"\n*/\n'}, None),
    ("global int", {"core/a.cc": "namespace anneal {\nnamespace {\nint count = 0;\n}\n}\n"}, "core/a.cc:3"),
    ("global without value", {"core/a.cc": "namespace anneal {\nstatic std::vector<int> all;\n}\n"}, "a mutable global"),
    ("global in braces", {"core/a.cc": "namespace anneal {\nstd::atomic<int> all{0};\n}\n"}, "a mutable global"),
    ("global thread local", {"core/a.cc": "thread_local int depth = 0;\n"}, "a mutable global"),
    ("global pointer", {"core/a.cc": 'const char* name = "x";\n'}, "a mutable global"),
    ("global inline", {"core/a.h": "namespace anneal {\ninline std::mutex lock;\n}\n"}, "a mutable global"),
    ("local static", {"core/a.cc": "A& a() {\n  static A all;\n  return all;\n}\n"}, "core/a.cc:2"),
    ("static member", {"core/a.h": "struct A {\n  static inline int n = 0;\n};\n"}, "a mutable global"),
    ("after a constructor", {"core/a.cc": "A::A() : b(1), c{2} {}\nint d;\n"}, "core/a.cc:2"),
    ("process state in its place", {"core/parallel.cc": "namespace anneal { int budget = 0; }\n"}, None),
    ("constants, types and functions", {"core/a.cc": '''
namespace anneal {
class Shape;
using Ids = std::vector<int>;
enum class Kind : uint8_t { kA, kB };
struct Point { int x = 0; static constexpr int kSize = 1; };
constexpr int kMax = 3;
const std::string kName = "a;b{";
constexpr const char* kNames[] = {"a", "b"};
const char* const kOther = "c";
int f(int a, std::vector<int> b = {});
template <class T> T g(T a) { static const int kOnce = 1; int local = kOnce; return a + local; }
Point::Point(int x) : x{x} { int y = x; }
Point::Point(int x, int y) : x{x}, y{y} {}
class Later { static std::string_view name(); };
std::ostream& operator<<(std::ostream& out, const Point& p) { return out; }
bool Point::operator==(const Point&) const = default;
constexpr Entry kEntries[] = {entry<Softmax, make>("cpu.softmax"), {1, 2}};
#define X(T) int T;
}  // namespace anneal
extern "C" int anneal_version(void) { return 1'000; }
'''}, None),
]


def self_test():
    wrong = table_problems()
    wrong += public_commands.self_test(public_headers())
    for name, files, expected in SELF_TESTS:
        found = problems_of(files)
        if expected is None and found:
            wrong.append(f"{name}: expected no message, got {found}")
        if expected is not None and not any(expected in message for message in found):
            wrong.append(f"{name}: expected a message with \"{expected}\", got {found}")
    for message in wrong:
        print(f"check_layers self-test: {message}")
    return 1 if wrong else 0


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    files = {}
    for path in sources(".h", ".cc", ".cuh"):
        with open(f"{ROOT}/{path}", encoding="utf-8") as source:
            files[path] = source.read()
    problems = problems_of(files) + public_commands.problems_of(files, public_headers())
    for message in problems:
        print(message)
    print(f"layers: {len(files)} files, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
