#!/usr/bin/python3
"""The generator of docs/reference: each kind of declaration, names that are missing, and pages that are out of date.

Ends with 77, which ctest and make take for skipped, without python3-clang.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [f"{ROOT}/docs/reference/generator", f"{ROOT}/tests"]

import check_reference  # noqa: E402
import headers  # noqa: E402
import package  # noqa: E402
import pages  # noqa: E402

CPP = """// What the header is for.
#pragma once
#include <string>

namespace anneal {

struct Forward;

// Kinds, in one comment.
enum class Kind : int {
  kFirst = 1,  // the first
  kSecond,
};
enum class Flat { kA, kB };  // no values are explained

inline constexpr int kMost = 8;  // a constant

// All of these fail
// with Error.

// A name for another type.
using Number = double;

namespace detail {
void hidden();
}

// A struct. Use *it*:
//   Options options;
struct Options {
  // Two fields, with a comment
  // of two lines.
  int first = 0, second = 0;
  std::string text = "a;b";  // behind | the field
  struct Part {
    int inner = 0;  // of the part
  };
};

// A class.
class Thing {
 public:
  explicit Thing(int size) : size_(size) {}  // REQUIRES: above 0
  ~Thing();
  bool operator==(const Thing&) const = default;
  static Thing make();  // on the heap
  // The first overload.
  void run(int a,
           int b = 2);
  // The second one.
  void run();

 private:
  void secret();
  int size_;
};

// Both of a paragraph.
template <class T>
T twice(T value) {
  return value + value;
}
int thrice(int value);

int undocumented();

}  // namespace anneal
"""

CPP_PAGE = """# Title

Generated from the comments of the public headers by `make reference`.

* [All](#all): `one.h`

## All

### anneal/one.h

What the header is for.

#### Kind

```cpp (a declaration)
enum class Kind : int
```

Kinds, in one comment.

| value | meaning |
|---|---|
| `kFirst = 1` | the first |
| `kSecond` |  |

#### Flat

```cpp (a declaration)
enum class Flat
```

no values are explained

Values: `kA`, `kB`.

#### kMost

```cpp (a declaration)
inline constexpr int kMost = 8;
```

a constant

All of these fail with Error.

#### Number

```cpp (a declaration)
using Number = double;
```

A name for another type.

#### Options

```cpp (a declaration)
struct Options
```

A struct. Use \\*it\\*:

```
Options options;
```

| field | meaning |
|---|---|
| `int first = 0, second = 0` | Two fields, with a comment of two lines. |
| `std::string text = "a;b"` | behind \\| the field |

##### Options::Part

```cpp (a declaration)
struct Part
```

| field | meaning |
|---|---|
| `int inner = 0` | of the part |

#### Thing

```cpp (a declaration)
class Thing
```

A class.

| member | meaning |
|---|---|
| `explicit Thing(int size)` | REQUIRES: above 0 |
| `static Thing make()` | on the heap |

##### Thing::run

```cpp (a declaration)
void run(int a,
         int b = 2);
```

The first overload.

```cpp (a declaration)
void run();
```

The second one.

#### twice, thrice

```cpp (a declaration)
template <class T>
T twice(T value);
int thrice(int value);
```

Both of a paragraph.

#### undocumented

```cpp (a declaration)
int undocumented();
```
"""

C = """/* What the C header
 * is for. */
#ifndef ONE_H_
#define ONE_H_
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif
enum { MOST = 8 }; /* of arrays */
#define OPEN_SIZE INT64_MIN /* a macro */
typedef enum {
  FIRST = 1,
  SECOND = 2, /* the second */
} one_kind; /* kinds */
/* A struct. */
typedef struct {
  uint64_t size;
  int32_t a, b;
  /* *Called* once. */
  int32_t (*call)(void* argument, int32_t value);
} one_struct;
typedef struct one_opaque one_opaque; /* opaque */
typedef int32_t (*one_callback)(void* argument); /* a function of the caller */
/* A function. */
int32_t one_run(const one_struct* given,
                int32_t count);
static inline int32_t one_twice(int32_t value) { return 2 * value; } /* defined here */
#ifdef __cplusplus
}
#endif
#endif
"""

C_SYMBOLS = [
    ("enum", "", "of arrays"), ("macro", "OPEN_SIZE", "a macro"), ("enum", "one_kind", "kinds"),
    ("type", "one_struct", "A struct."), ("alias", "one_opaque", "opaque"),
    ("alias", "one_callback", "a function of the caller"), ("function", "one_run", "A function."),
    ("function", "one_twice", "defined here"),
]


class Generator(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="reference_test_")
        self.addCleanup(shutil.rmtree, self.folder)

    def read(self, path, text):
        with open(f"{self.folder}/{path}", "w", encoding="utf-8") as header:
            header.write(text)
        return headers.read_headers(self.folder, [path])[0]

    def page(self, header):
        return pages.header_pages({header.path: header}, {"one.md": ("Title", {"All": [header.path]})}, "cpp")[0]

    def test_each_kind_of_cpp(self):
        self.maxDiff = None
        page = self.page(self.read("one.h", CPP))
        self.assertEqual(page.text(), CPP_PAGE)
        self.assertIn(("Thing::run", "Thing::run"), page.index)

    def test_each_kind_of_c(self):
        header = self.read("c_one.h", C)
        self.assertEqual([(each.kind, each.name, each.comment) for each in header.symbols], C_SYMBOLS)
        self.assertEqual(header.comment, "What the C header\nis for.")
        fields = [member for each in header.symbols if each.name == "one_struct" for member in each.members]
        self.assertEqual([(each.declarations[0], each.comment) for each in fields], [
            ("uint64_t size;", ""), ("int32_t a, b;", ""),
            ("int32_t (*call)(void* argument, int32_t value);", "*Called* once.")])

    def test_symbols_without_a_comment_are_found(self):
        import make_reference
        self.assertEqual(make_reference.undocumented(self.read("one.h", CPP)), ["undocumented"])

    def test_missing_headers_are_noticed(self):
        header = self.read("one.h", CPP)
        with self.assertRaisesRegex(pages.MissingSymbol, "no page has one.h"):
            pages.header_pages({"one.h": header}, {"one.md": ("Title", {"All": []})}, "cpp")
        with self.assertRaisesRegex(pages.MissingSymbol, "gone.h is on a page"):
            pages.header_pages({"one.h": header}, {"one.md": ("Title", {"All": ["one.h", "gone.h"]})}, "cpp")

    def test_missing_names_of_python_are_noticed(self):
        names = package.read_package(ROOT)
        with self.assertRaisesRegex(pages.MissingSymbol, "python.md lacks new"):
            pages.python_page([*names, package.Name("new", "function", "new()", "")], [])
        with self.assertRaisesRegex(pages.MissingSymbol, "tune is on python.md"):
            pages.python_page([name for name in names if name.name != "tune"], [])

    def test_headers_that_do_not_parse_are_refused(self):
        with self.assertRaises(SystemExit):
            self.read("one.h", "struct Half {\n")


class Pages(unittest.TestCase):
    def test_are_what_the_generator_writes(self):
        made = subprocess.run([sys.executable, f"{ROOT}/docs/reference/generator/make_reference.py", "--check"],
                              capture_output=True, text=True)
        self.assertEqual(made.returncode, 0, made.stdout + made.stderr)

    def test_every_exported_name_is_on_a_page(self):
        text = ""
        for path in os.listdir(f"{ROOT}/docs/reference"):
            if path.endswith(".md"):
                with open(f"{ROOT}/docs/reference/{path}", encoding="utf-8") as page:
                    text += page.read()
        for library in ("engine", "builder"):
            with open(f"{ROOT}/tests/golden/exports_{library}.txt", encoding="utf-8") as names:
                for line in names:
                    called = re.match(r"(?:anneal::)?((?:\w+::)*\w+)(?:\[abi:\w+\])?\(?", line.strip())
                    name = called.group(1).split("::")[-1] if called else ""
                    if name and "detail::" not in line and not line.startswith(("typeinfo", "vtable")):
                        self.assertIn(name.lstrip("~"), text, f"{line.strip()} of lib{library}")

    def test_links_lead_to_headings(self):
        folder = f"{ROOT}/docs/reference"
        anchors = {}
        for path in os.listdir(folder):
            if path.endswith(".md"):
                with open(f"{folder}/{path}", encoding="utf-8") as page:
                    anchors[path] = {pages.anchor(each) for each in re.findall(r"^#+ (.*)$", page.read(), re.M)}
        for path in anchors:
            with open(f"{folder}/{path}", encoding="utf-8") as page:
                for target, name in re.findall(r"\]\(([\w./]*)#([^)]*)\)", page.read()):
                    self.assertIn(name, anchors[target or path], f"{path}: {target}#{name}")

    def test_a_changed_header_makes_them_out_of_date(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in ("anneal", "src"):
                shutil.copytree(f"{ROOT}/python/{name}", f"{folder}/python/{name}")
            for path in check_reference.sources_of(ROOT) + [f"{ROOT}/cmake/public_headers.cmake"]:
                target = folder + path[len(ROOT):]
                os.makedirs(os.path.dirname(target), exist_ok=True)
                shutil.copy(path, target)
            shutil.copytree(f"{ROOT}/docs/reference", f"{folder}/docs/reference", dirs_exist_ok=True)
            self.assertEqual(check_reference.problems_of(folder), [])
            with open(f"{folder}/docs/reference/c.md", "a", encoding="utf-8") as page:
                page.write("by hand\n")
            self.assertRegex(" ".join(check_reference.problems_of(folder)), "c.md: edited by hand")
            with open(f"{folder}/core/error.h", "a", encoding="utf-8") as header:
                header.write("// new\n")
            self.assertRegex(" ".join(check_reference.problems_of(folder)), "cpp_run.md: a public header or a docstring changed")


if __name__ == "__main__":
    if headers.cindex is None:
        print("skipped: python3-clang is not installed")
        sys.exit(77)
    unittest.main()
