#!/usr/bin/env python3
"""The GPU bundle is what it says it is, and every part of it runs through on the emulated device.

    gpu_bundle_test.py BUNDLE.tar.xz

A run that is killed at any moment leaves whole JSON files, and a later one completes them; what is older than the code
that it measures is done again; a program that crashes costs one item.
"""

import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time

NEWEST_GLIBC = (2, 36)
MOST_BYTES = 50 << 20
PARTS = ("facts", "engines", "op_cases", "kernels", "torch", "networks", "tools")
KILLS = 3

problems = []


def expect(condition, problem):
    if not condition:
        problems.append(problem)
    return condition


def is_elf(path):
    return path.is_file() and path.open("rb").read(4) == b"\x7fELF"


def output_of(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def check_programs(root):
    newest = {}
    for path in sorted(p for p in root.rglob("*") if is_elf(p)):
        name = path.relative_to(root)
        expect(not re.match(r"lib(cuda|nv|cublas|cudnn)", path.name), f"{name} is NVIDIA's")
        dynamic = output_of("readelf", "-d", path)
        wanted = "$ORIGIN/../lib" if path.parent.name == "bin" else "$ORIGIN"
        expect(f"[{wanted}]" in dynamic, f"{name} has no run path {wanted}")
        for needed in re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic):
            expect((root / "lib" / needed).exists() or re.match(r"(libc|libm|ld-linux-x86-64)\.so", needed),
                   f"{name} needs {needed}, which is not in the bundle")
        versions = re.findall(r"GLIBC_(\d+)\.(\d+)", output_of("readelf", "--dyn-syms", "-W", path))
        newest[str(name)] = max(((int(a), int(b)) for a, b in versions), default=(2, 0))
    if expect(newest, "there is no program"):
        program, version = max(newest.items(), key=lambda item: item[1])
        print(f"highest GLIBC symbol version: {version[0]}.{version[1]} ({program})")
        expect(version <= NEWEST_GLIBC, f"{program} needs glibc {version[0]}.{version[1]}")
    expect(list((root / "licenses").iterdir()), "there are no licences")


def start(root, *arguments):
    return subprocess.Popen([sys.executable, root / "run.py", "--device", "emulated", *map(str, arguments)],
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def run(root, *arguments):
    process = start(root, *arguments)
    printed = process.communicate()[0]
    print(printed, end="", flush=True)
    return process.returncode


def results(folder):
    """Of all parts in a folder; a file that is no JSON is a problem."""
    found = {}
    for path in folder.glob("*.json"):
        try:
            found[path.stem] = json.loads(path.read_text())
        except ValueError as error:
            problems.append(f"{path.name} is damaged: {error}")
    return found


def check_whole_run(root, folder):
    out = folder / "whole"
    begin = time.monotonic()
    expect(run(root, "--out", out) == 0, "run.py did not end with 0")
    print(f"all parts took {time.monotonic() - begin:.0f} s", flush=True)
    found = results(out)
    for part in PARTS:
        if not expect(part in found, f"there is no {part}.json"):
            continue
        value = found[part]
        expect(value["status"] in ("done", "not available"), f"{part}: {value['status']} {value.get('why', '')}")
        expect(value["status"] == "done" or value["why"], f"{part} does not say why it is not available")
        for key, item in value["items"].items():
            expect("error" not in item, f"{part}, {key}: {str(item.get('error'))[:1500]}")
    least = {"engines": 10, "op_cases": 6, "kernels": 10, "networks": 4}
    for part, count in least.items():
        items = found.get(part, {}).get("items", {})
        expect(len(items) >= count, f"{part} has {len(items)} items, {count} are the least")
    for name, item in found.get("kernels", {}).get("items", {}).items():
        kind = item["shape"]["kind"]
        family = {"conv": "cuda.conv", "matmul": "cuda.matmul", "attention": "cuda.attention"}.get(kind, "cuda.")
        expect(item["kernel"].startswith(family), f"{name} is timed as {item['kernel']}")
        expect(any("us" in each for each in item["configs"]), f"{name} has no time")
    summary = (out / "summary.txt").read_text()
    expect(all(f"== {part}" in summary for part in PARTS), "the summary lacks parts")
    return out


def check_killed_runs(root, folder):
    """Killed wherever it is: files are whole, and a later run completes them."""
    chosen = ("--part", "facts", "--part", "op_cases", "--part", "kernels")
    cut = 0
    for i in range(KILLS):
        out = folder / f"killed{i}"
        for arguments in (("--out", out), ("--resume", out)):
            process = start(root, *chosen, *arguments)
            time.sleep(random.uniform(0.1, 2.5))
            process.send_signal(signal.SIGKILL)
            process.communicate()
            cut += any(value["status"] == "running" for value in results(out).values())
        expect(run(root, *chosen, "--resume", out) == 0, "a run that goes on did not end with 0")
        found = results(out)
        expect(sorted(found) == ["facts", "kernels", "op_cases"], f"killed runs were not completed: {sorted(found)}")
        for part, value in found.items():
            expect(value["status"] == "done", f"killed runs were not completed: {part} is {value['status']}")
    print(f"{cut} of {2 * KILLS} kills cut a part", flush=True)


def check_old_results(root, folder, out):
    """What is finished stays; what is older than the code is done again, and nothing else."""
    chosen = ("--part", "facts", "--part", "kernels")
    before = {path.name: path.stat().st_mtime_ns for path in out.glob("*.json")}
    expect(run(root, *chosen, "--resume", out) == 0, "a run with nothing to do did not end with 0")
    after = {path.name: path.stat().st_mtime_ns for path in out.glob("*.json")}
    expect(before == after, "finished parts were done again")
    module = root / "bundle" / "facts.py"
    module.write_text(module.read_text() + "# newer\n")
    new = folder / "new"
    expect(run(root, *chosen, "--resume", out, "--out", new) == 0, "a run over old results did not end with 0")
    expect(sorted(results(new)) == ["facts"], f"older than their code: facts; done again: {sorted(results(new))}")


BROKEN = '''#!{python}
"""Programs of a variant that crash on some cases, and print rubbish."""
import json, os, sys
print("\\xff rubbish {{", flush=True)
if "--list" in sys.argv:
    sys.exit()
if "gpu_times" in sys.argv[0]:
    for line in sys.stdin:
        name = json.loads(line)["name"]
        print(json.dumps({{"begins": name}}), flush=True)
        if "i8" in name:
            os.abort()
        print(json.dumps({{"name": name, "configs": [{{"kernel": "k", "config": "", "us": 1.0}}]}}), flush=True)
else:
    for i, name in enumerate(open(os.environ["ANNEAL_OP_CASES"][1:]).read().split()):
        if i == 1:
            os.abort()
        with open(os.environ["ANNEAL_OP_REPORT"], "a") as file:
            file.write(json.dumps({{"case": name, "kernels": {{"k": 1}}, "problems": []}}) + "\\n")
'''


def check_broken_programs(root, folder, out):
    """A second build of the programs beside the first, whose faults cost their own items only."""
    (root / "lib-broken").mkdir()
    (root / "bin-broken").mkdir()
    for name in ("anneal_gpu_times", "cuda_op_suite_test"):
        path = root / "bin-broken" / name
        path.write_text(BROKEN.format(python=sys.executable))
        path.chmod(0o755)
    expect(run(root, "--part", "kernels", "--part", "op_cases", "--out", folder / "broken") == 1,
           "a run with faults did not end with 1")
    shutil.rmtree(root / "bin-broken"), shutil.rmtree(root / "lib-broken")
    for part, value in results(folder / "broken").items():
        mine = {key: item for key, item in value["items"].items() if key.endswith(" @broken")}
        wrong = [key for key, item in mine.items() if "error" in item]
        expect(value["status"] == "failed" and wrong and len(wrong) < len(mine),
               f"{part} with faults: {value['status']}, {len(wrong)} of {len(mine)} items failed")
        expect(len(mine) == len(value["items"]) - len(mine), f"{part}: not every case was run by both builds")
        expect(part != "kernels" or all(" i8" not in key and ".i8." in key for key in wrong),
               f"{part}: {wrong} failed, only those of 8 bits crash")


TOOL = '''#!/bin/sh
case "$*" in
  *--tool*) echo "========= ERROR SUMMARY: 0 errors" ;;
  *--query-gpu=*,*--format*) exit 6 ;;
  *--query-gpu*) echo "a card" ;;
  *--csv*) echo '"ID","Kernel Name"'; echo '"0","conv"' ;;
  *) echo "clocks" ;;
esac
'''


def check_parts_of_a_card(root, folder):
    """The code that only a card runs, with tools that print what NVIDIA's do."""
    tools = folder / "tools"
    tools.mkdir()
    for name in ("compute-sanitizer", "ncu", "nvidia-smi"):
        (tools / name).write_text(TOOL)
        (tools / name).chmod(0o755)
    program = ("import sys, pathlib; sys.path.insert(0, sys.argv[1])\n"
               "from bundle import facts, main, parts, record, setting\n"
               "out = pathlib.Path(sys.argv[2]); out.mkdir()\n"
               "s = setting.Setting(pathlib.Path(sys.argv[1]), 'cuda', out, out, 60, False)\n"
               "facts.torch_is_here = lambda: False\n"
               "for part in parts.PARTS:\n"
               "    if part.name in ('facts', 'tools'): main.do_part(s, part, 40)\n")
    subprocess.run([sys.executable, "-c", program, root, folder / "card"], check=True,
                   env={**os.environ, "PATH": f"{tools}:{os.environ['PATH']}", "PYTHONDONTWRITEBYTECODE": "1"})
    found = results(folder / "card")
    items = found["tools"]["items"]
    checked = [item for key, item in items.items() if key.startswith(("memcheck", "racecheck"))]
    profiled = [item for key, item in items.items() if key.startswith("ncu")]
    expect(checked and all(item["summary"] == "0 errors" for item in checked), f"sanitizer: {checked[:1]}")
    expect(len(profiled) == 6 and all(item["csv"].count("\n") == 1 for item in profiled), f"ncu: {profiled[:1]}")
    expect(found["facts"]["items"]["card"]["name"] == "a card", f"card: {found['facts']['items']['card']}")


def check_limits(root):
    """A program that ignores being asked to end, prints without end and leaves children behind."""
    program = ("import sys, time; sys.path.insert(0, sys.argv[1])\n"
               "from bundle import process\n"
               "begin = time.monotonic()\n"
               "script = 'trap \"\" TERM; sleep 100 & while true; do echo aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa; done'\n"
               "ended = process.run(['bash', '-c', script], 1, process.Running())\n"
               "assert ended.timed_out and time.monotonic() - begin < 10, ended\n"
               "assert 1000 < len(ended.output) <= process.MOST_OUTPUT, len(ended.output)\n"
               "ended = process.run(['bash', '-c', 'sleep 100 & echo done'], 5, process.Running())\n"
               "assert ended.ok and ended.output == 'done\\n' and ended.seconds < 4, ended\n"
               "assert process.run(['/no/such/program'], 5, process.Running()).status == 127\n")
    expect(subprocess.run([sys.executable, "-c", program, root]).returncode == 0, "limits of programs do not hold")


def check_floors(root):
    """The least time of a layer by measured ceilings, and by the card's attributes where nothing was measured."""
    program = ("import sys; sys.path.insert(0, sys.argv[1])\n"
               "from bundle import kernels\n"
               "shape = {'name': 'n', 'kind': 'matmul', 'dtype': 'f16', 'batch': 1, 'm': 1000, 'n': 1000, 'depth': 1000}\n"
               "def item(): return {'bytes': 6e6, 'configs': [{'kernel': 'k', 'config': 'c', 'us': 8.0, 'planned': True},"
               " {'kernel': 'k', 'config': 'd', 'us': 4.0}, {'kernel': 'k', 'config': 'e', 'us': 1.0, 'hopeless': True}]}\n"
               "one = item(); kernels.with_floor(one, shape, 3e12, {'f16': 1e15}, {})\n"
               "assert one['best']['us'] == 4 and one['planned_over_best'] == 2, one\n"
               "assert one['floor_us']['memory'] == 2 and one['floor_us']['arithmetic'] == 2, one\n"
               "assert one['configs'][1]['share_of_floor'] == 0.5 and one['teraflops'] == 500, one\n"
               "two = item(); kernels.with_floor(two, shape, None, {}, {'memory_clock_khz': 1500000, 'bus_bits': 4096})\n"
               "assert abs(two['floor_us']['memory'] - 6e6 / (2 * 1.5e9 * 512) * 1e6) < 1e-9, two\n")
    expect(subprocess.run([sys.executable, "-c", program, root]).returncode == 0, "floors of layers are wrong")


def main():
    bundle = pathlib.Path(sys.argv[1])
    print(f"{bundle.name}: {bundle.stat().st_size >> 10} KiB")
    expect(bundle.stat().st_size < MOST_BYTES, "it is over 50 MiB")
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        with tarfile.open(bundle) as archive:
            archive.extractall(folder)
        (root,) = folder.glob("anneal-gpu-*")
        check_programs(root)
        check_limits(root)
        check_floors(root)
        out = check_whole_run(root, folder)
        check_killed_runs(root, folder)
        check_broken_programs(root, folder, out)
        check_parts_of_a_card(root, folder)
        check_old_results(root, folder, out)
    for problem in problems:
        print(f"failed: {problem}", file=sys.stderr)
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
