#!/usr/bin/env python3
"""Writes dist/anneal-gpu-VERSION.tar.xz from a release build: programs, the shared libraries that they need (never one
of NVIDIA's) with their licences, small models of our own, prebuilt engines, images of device functions for one card,
and the program that runs it all (bench/gpu/run.py). docs/gpu.md says what is in it and how to use it.

    bench/gpu/make_bundle.py build/release [--images N|networks|all] [--variant NAME=BUILD]... [--architecture sm_90]

Images are kept in build/gpu-images, so that the next bundle compiles only what changed. A variant is another build
folder: its programs are carried as bin-NAME and compared with the first ones.
"""

import argparse
import json
import os
import queue
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))

from bundle import kernels, networks, shapes  # noqa: E402
from bundle.op_cases import spread  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent.parent
CACHE = ROOT / "build/gpu-images"
PROGRAMS = ("bin/anneal", "bin/anneal_gpu_times", "bin/pipeline", "tests/bin/gpu_test", "tests/bin/cuda_op_suite_test",
            "tests/bin/cublas_lt_test", "tests/bin/cudnn_engine_test")
MOST_MIB = 50  # 64 MiB travel to the machine, the project's own files among them
MOST_DICTIONARY = 384  # MiB; xz takes eleven times as much memory
CASES_OF_BATCH = 4
OF_THE_MACHINE = re.compile(r"(libc|libm|libdl|libpthread|librt|ld-linux-x86-64)\.so")
NVIDIAS = re.compile(r"lib(cuda|nv|cublas|cudnn)")


def output_of(*command, **more):
    return subprocess.run([str(each) for each in command], check=True, capture_output=True, text=True, **more).stdout


def version():
    return re.search(r"^project\(anneal VERSION ([0-9.]*)", (ROOT / "CMakeLists.txt").read_text(), re.MULTILINE)[1]


def stage_programs(root, build, suffix, licenses):
    """The programs of one build, and the libraries beside them."""
    folder, libraries = root / f"bin{suffix}", root / f"lib{suffix}"
    folder.mkdir(), libraries.mkdir()
    for each in PROGRAMS:
        subprocess.run(["install", "-s", build / each, folder], check=True)
    found = set()
    for line in output_of("ldd", *(build / each for each in PROGRAMS)).splitlines():
        words = line.split()
        if len(words) >= 3 and words[1] == "=>" and not OF_THE_MACHINE.match(words[0]):
            # A variant finds what is not of its build beside the first build's.
            if not suffix or Path(words[2]).resolve().is_relative_to(build):
                found.add(words[2])
    found.add(str(next((build / "lib").glob("libanneal_emulated.so.?.?"))))  # opened, not linked
    for each in sorted(found):
        if NVIDIAS.match(Path(each).name):
            sys.exit(f"make_bundle.py: {each} is NVIDIA's")
        subprocess.run(["install", "-s", "-m", "644", os.path.realpath(each), libraries / Path(each).name], check=True)
        asked = subprocess.run(["dpkg", "-S", os.path.realpath(each)], capture_output=True, text=True)
        package = asked.stdout.partition(":")[0]
        if asked.returncode == 0 and package:
            shutil.copy(f"/usr/share/doc/{package}/copyright", licenses / package)
    others = ":$ORIGIN/../lib" if suffix else ""
    for each in folder.iterdir():
        subprocess.run(["patchelf", "--set-rpath", f"$ORIGIN/../{libraries.name}{others}", each], check=True)
    for each in libraries.iterdir():
        subprocess.run(["patchelf", "--set-rpath", f"$ORIGIN{others}", each], check=True)


def stage_engines(root, build, architecture):
    shutil.copy(ROOT / "samples/glyphs/glyphs.onnx", root / "models")
    subprocess.run(["/usr/bin/python3", ROOT / "bench/gpu/make_models.py", root / "models"], check=True)
    for model in sorted((root / "models").glob("*.onnx")):
        made = subprocess.run([build / "bin/anneal", "build", "-q", model, "--target", f"{architecture},cpu", "-o",
                               root / "engines" / f"{model.stem}.engine"],
                              env={**os.environ, "ANNEAL_CACHE_DIR": str(CACHE)})
        if made.returncode != 0:
            print(f"no prebuilt engine of {model.name}", file=sys.stderr)


class Images:
    """Device functions compiled for one architecture by the programs themselves, into a folder that is kept."""

    def __init__(self, architecture, jobs):
        self.architecture, self.jobs = architecture, jobs
        CACHE.mkdir(parents=True, exist_ok=True)
        self.begin, self.failed = time.time() - 1, []

    def run(self, jobs):
        """jobs: pairs of a command and its environment or standard input; as many at once as there are cores."""
        waiting = queue.SimpleQueue()
        for job in jobs:
            waiting.put(job)

        def work():
            while True:
                try:
                    command, environment, stdin = waiting.get_nowait()
                except queue.Empty:
                    return
                ended = subprocess.run([str(each) for each in command], input=stdin, text=True, capture_output=True,
                                       env={**os.environ, "ANNEAL_CACHE_DIR": str(CACHE), **environment})
                if ended.returncode != 0:
                    self.failed.append(ended.stderr[-400:] or ended.stdout[-400:])

        threads = [threading.Thread(target=work) for _ in range(self.jobs)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def used(self):
        """Those that were read or written since the beginning, oldest first."""
        found = [path for path in CACHE.glob("*.image") if path.stat().st_mtime >= self.begin]
        return sorted(found, key=lambda path: path.stat().st_mtime)

    def of_layers(self, builds, few):
        chosen = shapes.all_shapes()[:few]
        self.run([([build / "bin/anneal_gpu_times", "--device", self.architecture], {},
                   kernels.case_lines([shape])) for build in builds for shape in chosen])

    def of_networks(self, builds, folder):
        """By building their engines, as the part `networks` does."""
        environment = {"PYTHONPATH": f"{ROOT / 'bench/gpu'}:{ROOT / 'bench'}"}
        models = [(name, dtype) for name in networks.INPUTS for dtype in networks.TYPES]
        for name, dtype in models:
            model, engine = folder / f"{name}.{dtype}.onnx", folder / f"{name}.{dtype}.engine"
            flags = ["--int8"] if dtype == "int8" else []
            self.run([(["/usr/bin/python3", ROOT / "bench/gpu/bundle/made_networks.py", name, model, *flags],
                       environment, None)])
            self.run([([build / "bin/anneal", "build", "-q", model, "--fp16", "--no-self-check", "--target", self.architecture,
                        "--shapes", networks.INPUTS[name].format(n=batch), "-o", f"{engine}.{batch}"], {}, None)
                      for build in builds[:1] for batch in networks.BATCHES])
            for path in folder.glob(f"{name}.{dtype}.*"):
                path.unlink()

    def of_op_cases(self, builds, batches, folder):
        jobs = []
        for build in builds:
            for i, batch in enumerate(batches):
                listed = folder / f"{i}.txt"
                listed.write_text("\n".join(batch) + "\n")
                jobs.append(([build / "tests/bin/cuda_op_suite_test", "--gtest_filter=*Reference"],
                             {"ANNEAL_OP_CASES": f"@{listed}", "ANNEAL_TEST_DEVICE": self.architecture}, None))
        self.run(jobs)


def batches_of(build):
    """The op cases in batches of neighbours, which are of one kernel: a change of it leaves other batches their images."""
    names = output_of(build / "tests/bin/cuda_op_suite_test", "--list").split()
    return [names[i:i + CASES_OF_BATCH] for i in range(0, len(names), CASES_OF_BATCH)]


def stage_images(root, flags, batches):
    """What fits; tells in images.json what there is."""
    builds = [flags.build] + [path for _, path in flags.variant]
    images = Images(flags.architecture, flags.jobs)
    every, networks_alone = flags.images == "all", flags.images == "networks"
    layers = None if every else 0 if networks_alone else int(flags.images)
    count = len(batches) if every else min(layers // 10, len(batches))
    with tempfile.TemporaryDirectory() as folder:
        images.of_layers(builds, layers)
        images.of_op_cases(builds, spread(batches)[:count], Path(folder))
        if every or networks_alone:
            images.of_networks(builds, Path(folder))
        output_of(flags.build / "bin/anneal", "devices", "--json", f"{folder}/devices.json")
        nvrtc = json.loads(Path(folder, "devices.json").read_text())["libraries"]["NVRTC"]["what"].partition(",")[0]
    used = images.used()
    for path in used:
        shutil.copy(path, root / "images")
    told = {"architecture": flags.architecture, "nvrtc": nvrtc, "batches": len(batches), "batches_with_images": count,
            "images": len(used), "bytes": sum(path.stat().st_size for path in used), "not_compiled": images.failed[:20]}
    (root / "images.json").write_text(json.dumps(told, indent=1) + "\n")
    return told


def leave_out_images(root, size, most, told):
    """Takes the largest away until the rest should fit; they are compiled where they are missing. False: there is none."""
    held = sorted((root / "images").iterdir(), key=lambda path: path.stat().st_size)
    if not held:
        return False
    bytes_held = sum(path.stat().st_size for path in held)
    fitting = bytes_held * (1 - 1.1 * (size - most) / size)  # as if all that is packed were as dense
    while held and bytes_held > fitting:
        path = held.pop()
        bytes_held -= path.stat().st_size
        path.unlink()
        told["left_out"] = told.get("left_out", 0) + 1
    told.update(images=len(held), bytes=bytes_held)
    (root / "images.json").write_text(json.dumps(told, indent=1) + "\n")
    return True


def pack(stage, name):
    """Programs and images have much in common, so the dictionary is as large as all of them, but no larger than MOST_DICTIONARY."""
    content = sum(file.stat().st_size for file in (stage / name).rglob("*") if file.is_file())
    dictionary = min(max(content >> 20, 8) + 1, MOST_DICTIONARY)
    (ROOT / "dist").mkdir(exist_ok=True)
    path = ROOT / "dist" / f"{name}.tar.xz"
    part = path.with_name(path.name + ".part")

    def plain(info):
        info.uid = info.gid = 0
        info.uname = info.gname = "root"
        return info

    with open(part, "wb") as file:
        compress = subprocess.Popen(["xz", f"--lzma2=preset=4,dict={dictionary}MiB", "-T1", "-c"], stdin=subprocess.PIPE, stdout=file)
        with tarfile.open(fileobj=compress.stdin, mode="w|") as archive:
            archive.add(stage / name, name, filter=plain)
        compress.stdin.close()
        if compress.wait() != 0:
            sys.exit("make_bundle.py: xz failed")
    part.rename(path)
    return path


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=Path)
    parser.add_argument("--images", default="all", help="layers, and a tenth as many batches of op cases; "
                        "networks (their functions alone); or all")
    parser.add_argument("--architecture", default="sm_90")
    parser.add_argument("--variant", action="append", default=[], metavar="NAME=BUILD")
    parser.add_argument("--most", type=float, default=MOST_MIB, metavar="MIB", help="size of the bundle; images that "
                        "make it larger are left out")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    flags = parser.parse_args()
    flags.build = flags.build.resolve()
    flags.variant = [(each.partition("=")[0], Path(each.partition("=")[2]).resolve()) for each in flags.variant]
    for name, path in flags.variant:
        if not re.fullmatch(r"[A-Za-z0-9_]+", name) or name == "base" or not (path / "bin/anneal").is_file():
            parser.error(f"--variant {name}={path}: a name of letters and a folder of a build")
    return flags


def main():
    flags = arguments()
    name = f"anneal-gpu-{version()}"
    with tempfile.TemporaryDirectory() as folder:
        stage, root = Path(folder), Path(folder) / name
        for each in ("licenses", "models", "engines", "images"):
            (root / each).mkdir(parents=True)
        stage_programs(root, flags.build, "", root / "licenses")
        for variant, build in flags.variant:
            stage_programs(root, build, f"-{variant}", root / "licenses")
        shutil.copy(ROOT / "LICENSE", root / "licenses/anneal")
        shutil.copy(ROOT / "bench/gpu/run.py", root)
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / "bench/gpu/bundle", root / "bundle", ignore=ignore)
        shutil.copytree(ROOT / "bench/nets", root / "nets", ignore=ignore)
        git = subprocess.run(["git", "-C", ROOT, "log", "-1", "--format=%H"], capture_output=True, text=True).stdout
        (root / "VERSION").write_text(f"{version()}\n{git}")
        batches = batches_of(flags.build)
        (root / "batches.json").write_text(json.dumps(batches) + "\n")
        stage_engines(root, flags.build, flags.architecture)
        told = stage_images(root, flags, batches)
        path = pack(stage, name)
        most = int(flags.most * (1 << 20))
        while path.stat().st_size > most and leave_out_images(root, path.stat().st_size, most, told):
            path = pack(stage, name)
    size = path.stat().st_size
    print(f"{path.relative_to(ROOT)}: {size / (1 << 20):.1f} MiB, {told['images']} images of "
          f"{told['batches_with_images']} of {told['batches']} batches, {told['bytes'] / (1 << 20):.1f} MiB unpacked")
    if told.get("left_out"):
        print(f"left out to keep it below {flags.most:g} MiB: {told['left_out']} images", file=sys.stderr)
    if size > most:
        sys.exit("make_bundle.py: that is more than the machine takes, without any image")


if __name__ == "__main__":
    main()
