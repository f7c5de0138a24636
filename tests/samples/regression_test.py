#!/usr/bin/env python3
"""samples/regression: both devices draw the same surface, and the pictures show what the JSON has.

    regression_test.py BIN            with the emulated device; BIN has regression and svg_to_png
    regression_test.py BIN --gpu      runs the page's blocks that need a GPU: under virtual_card/on_virtual_card.py
"""

import copy
import importlib.util
import json
import math
import os
import re
import struct
import subprocess
import sys
import tempfile
import xml.etree.ElementTree
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
SAMPLE = ROOT / "samples/regression"
SVG = "{http://www.w3.org/2000/svg}"
POINTS = 40000


def load(path):
    spec = importlib.util.spec_from_file_location("draw", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


DRAW = load(SAMPLE / "draw.py")


def call(*command, **options):
    return subprocess.run([str(each) for each in command], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          cwd=ROOT, **options)


def peaks(x, y):
    return (3 * (1 - x) ** 2 * math.exp(-x * x - (y + 1) ** 2)
            - 10 * (x / 5 - x ** 3 - y ** 5) * math.exp(-x * x - y * y) - math.exp(-(x + 1) ** 2 - y * y) / 3)


def check_surfaces(results):
    assert results["side"] == 200 and results["range"] == 3
    assert all(len(results[name]) == POINTS for name in ("truth", "cpu", "gpu"))
    for i in range(0, POINTS, 97):
        x, y = (6 * (at / 199) - 3 for at in (i % 200, i // 200))
        assert abs(results["truth"][i] - peaks(x, y)) < 1e-5, f"the formula is wrong at {x}, {y}"
    differences = [abs(a - b) for a, b in zip(results["cpu"], results["gpu"])]
    assert 0 < max(differences) < 1e-5, max(differences)
    assert math.isclose(max(differences), results["largest_difference"], rel_tol=1e-3)
    errors = [abs(a - b) for a, b in zip(results["cpu"], results["truth"])]
    rms = math.sqrt(sum(each * each for each in errors) / POINTS)
    assert math.isclose(rms, results["rms_error"], rel_tol=1e-3) and rms < 0.2, rms
    assert math.isclose(max(errors), results["largest_error"], rel_tol=1e-3) and max(errors) < 1


def check_png(path, svg):
    data = path.read_bytes()
    width, height = struct.unpack(">II", data[16:24])
    assert data.startswith(b"\x89PNG\r\n\x1a\n") and b"IEND" in data[-12:]
    assert (width, height) == (2 * int(svg.get("width")), 2 * int(svg.get("height"))), (width, height)


def check_picture(results):
    """Of three surfaces and two maps with their scales; lines and rings only where there are times."""
    svg = xml.etree.ElementTree.fromstring(DRAW.picture(results))
    words = [each.text for each in svg.iter(SVG + "text")]
    assert len(list(svg.iter(SVG + "path"))) == 3 * (DRAW.CELLS ** 2 + 1)
    assert len(list(svg.iter(SVG + "image"))) == 4
    assert len(list(svg.iter(SVG + "polyline"))) == (3 if results["points"] else 0)
    rings = [each for each in svg.iter(SVG + "circle") if each.get("r") == "4.5"]
    assert len(rings) == sum(results[name] is not None for name in ("crossover", "crossover_resident"))
    for each in svg.iter(SVG + "text"):
        assert 0 < float(each.get("x")) < float(svg.get("width")) and 0 < float(each.get("y")) < float(svg.get("height"))
    return svg, words


def with_times(results):
    """Times of a GPU that is faster from some size on, to be drawn."""
    timed = copy.deepcopy(results)
    timed["device"], timed["points"] = "cuda", [1, 10, 100, 1000, 10000, POINTS]
    timed["cpu_us"], timed["gpu_us"] = [1, 1, 3, 30, 300, 1200], [20, 20, 20, 20, 40, 100]
    timed["gpu_resident_us"] = [8, 8, 8, 8, 10, 20]
    timed["crossover"] = {"cpu_wins": 100, "gpu_wins": 1000, "points": 666.7}
    timed["crossover_resident"] = {"cpu_wins": 100, "gpu_wins": 1000, "points": 266.7}
    return timed


def emulated(programs):
    with tempfile.TemporaryDirectory(prefix="anneal-regression-") as folder:
        folder = Path(folder)
        done = call(programs / "regression", "--device", "emulated", "--out", folder / "r.json")
        assert done.returncode == 0, done.stdout
        assert re.search(r"^largest difference between CPU and GPU at 40000 points: \S+, below 1e-5$", done.stdout, re.M)
        assert "crossover" not in done.stdout and "have no meaning" in done.stdout, done.stdout
        results = json.loads((folder / "r.json").read_text())
        check_surfaces(results)
        assert results["points"] == [] and results["crossover"] is None
        svg, words = check_picture(results)
        assert "Network on the emulated GPU" in words and "the CPU, so its times have no meaning." in words

        done = call(SAMPLE / "draw.py", folder / "r.json", folder / "r.svg")
        assert done.returncode == 0 and (folder / "r.svg").read_text() == DRAW.picture(results), done.stdout
        done = call(programs / "svg_to_png", folder / "r.svg", folder / "r.png")
        assert done.returncode == 0, done.stdout
        check_png(folder / "r.png", svg)

        _, words = check_picture(with_times(results))
        assert "670" in words and "270" in words and "Network on the GPU" in words
        never = with_times(results)
        never["crossover"] = never["crossover_resident"] = None
        check_picture(never)

        for arguments, message in ((["--device"], "its value is missing"), (["--devices", "cuda"], "unknown"),
                                   (["--device", "nothing"], "nothing"), (["--model", folder / "none.onnx"], "none.onnx")):
            done = call(programs / "regression", *arguments, "--out", folder / "wrong.json")
            assert done.returncode == 1 and message in done.stdout, done.stdout
        assert not (folder / "wrong.json").exists()
        assert call(programs / "svg_to_png", folder / "r.json", folder / "wrong.png").returncode == 1


def crossover(results, name):
    """As find_crossover() of results.cc, which crossover_test.cc tests: the sizes alone."""
    first = len(results["points"])
    while first and results[name][first - 1] < results["cpu_us"][first - 1]:
        first -= 1
    return None if first in (0, len(results["points"])) else tuple(results["points"][first - 1:first + 1])


def on_gpu(programs):
    blocks = re.findall(r"^```sh \(needs a GPU\)\n(.*?)^```$", (SAMPLE / "README.md").read_text(), re.M | re.S)
    assert blocks
    for block in blocks:
        with tempfile.TemporaryDirectory(prefix="anneal-regression-") as folder:
            folder = Path(folder)
            (folder / "samples").symlink_to(ROOT / "samples")
            done = subprocess.run(["bash", "-e", "-c", block], cwd=folder, text=True, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, env={**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"})
            print(done.stdout)
            assert done.returncode == 0
            assert "warning" not in done.stdout
            results = json.loads(next(folder.glob("*.json")).read_text())
            check_surfaces(results)
            assert results["points"][0] == 1 and results["points"][-1] == POINTS
            for name, found in (("gpu_us", "crossover"), ("gpu_resident_us", "crossover_resident")):
                assert len(results[name]) == len(results["points"]) and min(results[name]) > 0
                sizes = results[found] and (results[found]["cpu_wins"], results[found]["gpu_wins"])
                assert sizes == crossover(results, name)
            assert len(re.findall(r"^crossover, data in .*: ", done.stdout, re.M)) == 2
            svg, _ = check_picture(results)
            for picture in folder.glob("*.png"):
                check_png(picture, svg)


if __name__ == "__main__":
    (on_gpu if sys.argv[2:] == ["--gpu"] else emulated)(Path(sys.argv[1]).resolve())
