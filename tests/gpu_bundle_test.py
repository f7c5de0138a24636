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
ROOT = pathlib.Path(__file__).resolve().parent.parent
PARTS = ("facts", "engines", "op_cases", "libraries", "kernels", "torch", "networks", "tools")
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
    # What is looked at is whether all runs through, so no part may be cut on a slow machine.
    expect(run(root, "--out", out, "--limit", 1800) == 0, "run.py did not end with 0")
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
        checked = [each for each in item["configs"] if "differs_by" in each]
        expect(len(checked) == len(item["configs"]) - 1, f"{name}: {len(checked)} of {len(item['configs'])} compared")
    networks = found.get("networks", {}).get("items", {})
    compared = [item for name, item in networks.items() if name.endswith(".compared")]
    expect(len(compared) >= 4 and all(item["tensors"] > 0 and item["outputs"] for item in compared), f"{len(compared)} networks are compared")
    expect(all("latency_spin_ms" in item for name, item in networks.items() if name.endswith(".b1")), "nothing spins")
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
            file.write(json.dumps({{"case": name, "kernels": {{"k": 1}}, "problems": [], "results": {{}}}}) + "\\n")
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
  *--tool*)
    while read -r name; do
      echo "{{\\"case\\": \\"$name\\", \\"memory\\": \\"$ANNEAL_OP_MEMORY\\", \\"kernels\\": {{\\"k\\": 1}}}}" >>"$ANNEAL_OP_REPORT"
    done <"${{ANNEAL_OP_CASES#@}}"
    echo "========= ERROR SUMMARY: {errors} errors"
    [ {errors} = 0 ] || exit 9 ;;
  *--query-gpu=*,*--format*) exit 6 ;;
  *--query-gpu*) echo "a card" ;;
  *--csv*) echo '"ID","Kernel Name"'; echo '"0","conv"' ;;
  *) echo "clocks" ;;
esac
'''


REFUSING = """#!/bin/sh
case "$*" in
  *compute-sanitizer*|*--tool*) echo "========= Error: Device not supported. Please refer to the documentation"; exit 255 ;;
  *) echo "==ERROR== Failed to initialize the profiler: LibraryNotLoaded"; exit 9 ;;
esac
"""

DO_PARTS = """
import pathlib, sys
sys.path.insert(0, sys.argv[1])
from bundle import facts, main, parts, record, setting
out = pathlib.Path(sys.argv[2])
out.mkdir()
work = pathlib.Path(sys.argv[2] + '_work')
work.mkdir()
s = setting.Setting(pathlib.Path(sys.argv[1]), 'cuda', out, work, 60, False)
facts.torch_is_here = lambda: False
for part in parts.PARTS:
    if part.name in sys.argv[3:]:
        main.do_part(s, part, 40)
"""


def on_a_card(root, folder, name, tools, *chosen):
    """Parts as a card would run them, with programs in place of NVIDIA's tools; gives what they found."""
    path = folder / f"{name}_tools"
    path.mkdir()
    for tool, text in tools.items():
        (path / tool).write_text(text)
        (path / tool).chmod(0o755)
    subprocess.run([sys.executable, "-c", DO_PARTS, root, folder / name, *chosen], check=True,
                   env={**os.environ, "PATH": f"{path}:{os.environ['PATH']}", "PYTHONDONTWRITEBYTECODE": "1"})
    return results(folder / name)


def check_facts_of_images(root, folder):
    """What a program says of a layer decides whether images are taken, and run."""
    program = ("import pathlib, sys; sys.path.insert(0, sys.argv[1])\n"
               "from bundle import facts, kernels, process, setting\n"
               "work = pathlib.Path(sys.argv[2]); work.mkdir()\n"
               "(work / 'images').mkdir()\n"
               "s = setting.Setting(work, 'cuda', work, work, 60, False)\n"
               "end = setting.Deadline(s, 60)\n"
               "def answers(line, adds):\n"
               "    def program(setting, variant, cases, limit, on_line, *flags):\n"
               "        on_line(line)\n"
               "        if adds: (work / 'images' / f'{adds}.image').write_text('')\n"
               "        return process.Ended(0, 0.1, False, '')\n"
               "    kernels.run_program = program\n"
               "    return facts.images_here(s, {'architecture': 'sm_90', 'nvrtc': '13.0'}, end)\n"
               "card = {'cuda:0': {'here': True, 'what': 'a card'}, 'cuda:1': {'here': False, 'what': 'none'}}\n"
               "found = {'devices': card, 'libraries': {'driver': {'what': 'for CUDA 12.2'}}}\n"
               "assert facts.why_not(s, found) == facts.why_not(s, {}) == ''\n"
               "s.device = 'cuda:1'\n"
               "assert facts.why_not(s, found) == 'none (the driver is for CUDA 12.2)'\n"
               "s.device = 'cuda:2'\n"
               "assert facts.why_not(s, found) == 'there is no cuda:2'\n"
               "assert answers('{\"name\": \"n\"}', '')['why'] == 'the bundle has none'\n"
               "(work / 'images' / 'a.image').write_text('')\n"
               "assert answers('{\"name\": \"n\"}', '')['taken']\n"
               "found = answers('{\"name\": \"n\"}', 'b')\n"
               "assert not found['taken'] and 'sm_90' in found['why'], found\n"
               "found = answers('{\"name\": \"n\", \"error\": \"no kernel image\"}', '')\n"
               "assert found['error'] == 'no kernel image', found\n")
    ended = subprocess.run([sys.executable, "-c", program, root, folder / "images_here"])
    expect(ended.returncode == 0, "images_here is wrong")


def check_parts_of_a_card(root, folder):
    """The code that only a card runs, with tools that print what NVIDIA's do."""
    names = ("compute-sanitizer", "ncu", "nvidia-smi")
    found = on_a_card(root, folder, "card", {each: TOOL.format(errors=0) for each in names}, "facts", "tools")
    items = found["tools"]["items"]
    checked = [item for key, item in items.items() if key.startswith(("memcheck", "racecheck"))]
    profiled = [item for key, item in items.items() if key.startswith("ncu")]
    expect(found["tools"]["status"] == "done", f"tools: {found['tools'].get('why')}")
    expect(checked and all(item["summary"] == "0 errors" and item["separate_allocations"] and item["runs"] > 1
                           for item in checked), f"sanitizer: {checked[:1]}")
    expect(len({name for item in checked for name in item["cases"]}) >= 15, f"a twentieth: {len(checked)} checks")
    expect(len(profiled) == 6 and all(item["csv"].count("\n") == 1 for item in profiled), f"ncu: {profiled[:1]}")
    expect(found["facts"]["items"]["card"]["name"] == "a card", f"card: {found['facts']['items']['card']}")
    check_facts_of_images(root, folder)
    check_tables_of_samples(root)

    found = on_a_card(root, folder, "faulty", {"compute-sanitizer": TOOL.format(errors=3)}, "tools")["tools"]
    wrong = [item for key, item in found["items"].items() if key.startswith("memcheck") and "error" in item]
    expect(wrong and found["status"] == "failed" and "ncu" in found["why"], f"errors of the sanitizer: {found}")

    found = on_a_card(root, folder, "refusing", {"compute-sanitizer": REFUSING, "ncu": REFUSING}, "tools")["tools"]
    expect(sorted(found["items"]) == ["compute-sanitizer", "ncu"] and found["status"] == "failed",
           f"tools that do not work: {sorted(found['items'])}")
    expect(all("does not work here" in item["error"] for item in found["items"].values()), f"tools: {found['items']}")

    found = on_a_card(root, folder, "bare", {}, "tools", "torch", "compile")
    for part, value in found.items():
        expect(value["status"] == "not available" and value["why"], f"{part} without its tools: {value}")


def check_machine_without_a_card(root, folder):
    """Each part says why it has nothing, within seconds."""
    if pathlib.Path("/dev/nvidiactl").exists():
        return
    begin, out = time.monotonic(), folder / "no_card"
    process = subprocess.run([sys.executable, root / "run.py", "--out", out], capture_output=True, text=True)
    expect(process.returncode == 1 and "cannot be used" in process.stderr, f"without a card: {process}")
    expect(time.monotonic() - begin < 60, "a run without a card takes long")
    found = results(out)
    expect(sorted(found) == sorted(PARTS), f"parts without a card: {sorted(found)}")
    for part, value in found.items():
        expect(part == "facts" or value["status"] == "not available" and "driver" in value["why"],
               f"{part} without a card: {value['status']} {value.get('why')}")


def check_shares(root):
    """However long parts take, each has its share, and all of them end by the limit."""
    program = ("import sys; sys.path.insert(0, sys.argv[1])\n"
               "from bundle import parts\n"
               "class Setting:\n"
               "    emulated, unprepared = False, sys.argv[2] == 'unprepared'\n"
               "    @classmethod\n"
               "    def is_unprepared(cls): return cls.unprepared\n"
               "chosen = parts.ordered([each for each in parts.PARTS if each.is_default], Setting)\n"
               "names = [each.name for each in chosen]\n"
               "assert names[2] == ('networks' if Setting.unprepared else 'op_cases') and len(names) == 8, names\n"
               "assert sum(each.weight(Setting) for each in chosen) == 540\n"
               "for used in (0, 0.5, 1):\n"
               "    left, rest = 540, list(chosen)\n"
               "    while rest:\n"
               "        part = rest.pop(0)\n"
               "        limit = parts.limit_of(part, rest, Setting, left)\n"
               "        assert limit >= part.weight(Setting) - 1e-6, (part.name, limit)\n"
               "        left -= used * limit\n"
               "    assert left > -1e-6, left\n"
               "assert parts.limit_of(parts.PARTS[-1], [], Setting, 540) == 540\n")
    for images in ("prepared", "unprepared"):
        expect(subprocess.run([sys.executable, "-c", program, root, images]).returncode == 0, f"{images}: shares are wrong")


def check_tables_of_samples(root):
    """Samples that are not in the form of nvidia-smi are an error; amounts may differ."""
    program = ("import sys; sys.path.insert(0, sys.argv[1])\n"
               "from bundle import commands\n"
               "header = commands.FIELDS.split(',')\n"
               "row = ['0', 'Card', 'GPU-1', '00:06.0', '580', '100 MiB', '0 %', '3 MiB', '40', '70.1 W', '345 MHz', '9 MHz']\n"
               "ours = [header] + [list(row) for _ in range(commands.SAMPLES)]\n"
               "other = [header, row[:6] + ['7 %', '5 MiB', '41', '90.0 W', '1980 MHz', '9 MHz']]\n"
               "assert commands.difference(ours, other) == '', commands.difference(ours, other)\n"
               "for column, cell in ((1, 'Other'), (5, '101 MiB'), (7, '5 KiB'), (9, '90.0'), (10, '[N/A]')):\n"
               "    wrong = [header, list(other[1])]\n"
               "    wrong[1][column] = cell\n"
               "    assert header[column] in commands.difference(ours, wrong), column\n"
               "assert commands.difference(ours[:-1], other) and commands.difference([header[:3]] + ours[1:], other)\n")
    expect(subprocess.run([sys.executable, "-c", program, root]).returncode == 0, "tables of samples are compared wrongly")


def check_short_run(root, folder):
    """A run whose limit is far too short ends by itself, and tells of each part that it was not done."""
    out = folder / "short"
    expect(run(root, "--out", out, "--limit", 12) == 1, "a run that is cut by its limit did not end with 1")
    found = results(out)
    expect("facts" in found and all(value["status"] != "running" for value in found.values()),
           f"a short run: {({part: value['status'] for part, value in found.items()})}")
    expect(any(found.get(part, {}).get("status", "cut") == "cut" for part in PARTS), "no part of a short run was cut")


def check_hanging_run(root):
    """If something in run.py itself hangs, the run ends behind its limit nevertheless."""
    program = ("import sys, time; sys.path.insert(0, sys.argv[1])\n"
               "from bundle import main, process\n"
               "import threading\n"
               "class Setting: seconds, ending, running = -main.OVERDUE[1], threading.Event(), process.Running()\n"
               "timers = list(main.enforce(Setting))\n"
               "time.sleep(300)\n")
    expect(subprocess.run([sys.executable, "-c", program, root], stderr=subprocess.DEVNULL, timeout=200).returncode == 1,
           "a run that hangs does not end")


def check_images_left_out(folder):
    """A bundle that would be too large loses its largest images, and says how many."""
    program = ("import json, pathlib, sys; sys.path.insert(0, sys.argv[1])\n"
               "import make_bundle\n"
               "root = pathlib.Path(sys.argv[2]); (root / 'images').mkdir(parents=True)\n"
               "for i in range(1, 11): (root / 'images' / f'{i}.image').write_bytes(bytes(1000 * i))\n"
               "told = {'images': 10, 'bytes': 55000}\n"
               "size = lambda: 20000 + sum(each.stat().st_size for each in (root / 'images').iterdir())\n"
               "rounds = 0\n"
               "while size() > 45000 and make_bundle.leave_out_images(root, size(), 45000, told): rounds += 1\n"
               "left = sorted(int(each.stem) for each in (root / 'images').iterdir())\n"
               "assert 0 < rounds < 5 and left == list(range(1, len(left) + 1)) and len(left) >= 4, left\n"
               "assert told['left_out'] == 10 - len(left) and told['images'] == len(left), told\n"
               "assert json.loads((root / 'images.json').read_text()) == told\n"
               "while make_bundle.leave_out_images(root, size(), 1, told): pass\n"
               "assert told['images'] == 0\n")
    ended = subprocess.run([sys.executable, "-c", program, ROOT / "bench/gpu", folder / "left_out"])
    expect(ended.returncode == 0, "images are not left out as they should be")


def check_cases_without_a_kernel(root):
    """A case that no kernel accepts is no failure, also when another one of its batch fails."""
    program = ("import sys, types; sys.path.insert(0, sys.argv[1])\n"
               "from bundle import op_cases, process\n"
               "class End: left = lambda self: 100\n"
               "class Variant: name = 'base'\n"
               "items = {}\n"
               "record = types.SimpleNamespace(items=items, add=items.__setitem__, value={})\n"
               "op_cases.has_images = lambda setting: False\n"
               "cases = op_cases.Batches(None, record, End(), Variant())\n"
               "lost = process.Ended(6, 0.1, False, 'lost'), process.Ended(0, 0.1, False, '')\n"
               "cases.process = lambda names, limit: ({}, lost[names == ['without']])\n"
               "cases.run_batch(['wrong', 'without'])\n"
               "assert 'error' in items['wrong'] and 'error' not in items['without'], items\n"
               "assert items['without']['note'] == 'no kernel accepts it', items\n")
    expect(subprocess.run([sys.executable, "-c", program, root]).returncode == 0, "a case without a kernel fails")


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
               "ended = process.run(['bash', '-c', 'echo begins; sleep 100'], 50, process.Running(), silence=1)\n"
               "assert ended.was_silent and ended.timed_out and ended.seconds < 10, ended\n"
               "over = process.Running(); over.kill_all()\n"
               "assert process.run(['sleep', '100'], 50, over).seconds < 10\n"
               "assert process.run(['/no/such/program'], 5, process.Running()).status == 127\n")
    expect(subprocess.run([sys.executable, "-c", program, root]).returncode == 0, "limits of programs do not hold")


def check_nothing_survives(root, folder):
    """Of a run that is killed, neither its programs nor those that they started go on using the card."""
    told = folder / "pids"
    program = ("import sys; sys.path.insert(0, sys.argv[1])\n"
               "from bundle import process\n"
               "script = 'sleep 100 & echo $! $$ >' + sys.argv[2] + '; wait'\n"
               "process.run(['bash', '-c', script], 90, process.Running())\n")
    killed = subprocess.Popen([sys.executable, "-c", program, root, told])
    patience = time.monotonic() + 20
    while not (told.exists() and told.read_text().endswith("\n")) and time.monotonic() < patience:
        time.sleep(0.05)
    killed.kill()
    killed.wait()
    pids = told.read_text().split()

    def lives(pid):
        try:
            return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
        except OSError:
            return False

    patience = time.monotonic() + 20
    while any(map(lives, pids)) and time.monotonic() < patience:
        time.sleep(0.05)
    expect(len(pids) == 2 and not any(map(lives, pids)), "programs of a killed run go on")


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
        check_nothing_survives(root, folder)
        check_shares(root)
        check_short_run(root, folder)
        check_hanging_run(root)
        check_images_left_out(folder)
        check_floors(root)
        check_cases_without_a_kernel(root)
        check_machine_without_a_card(root, folder)
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
