#!/usr/bin/env python3
"""Runs samples/matmul_travel at small sizes, and checks its JSON files and pictures.

    matmul_travel_test.py PROGRAM ANNEAL                   on the CPU and on the emulated device
    matmul_travel_test.py PROGRAM ANNEAL --device cuda     on a GPU, or on the virtual card
"""

import json
import math
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as xml
from pathlib import Path

from sources import ROOT

SIZES = [48, 64]  # 48: no multiple of a tile


def run(*command, status=0):
    done = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert done.returncode == status, f"{command}: status {done.returncode}\n{done.stdout}"
    return done.stdout


def results_of(program, path, *options):
    printed = run(program, "--sizes", ",".join(map(str, SIZES)), "--out", str(path), *options)
    report = json.loads(path.read_text())
    assert report["complete"] and not report["failed"], printed
    return report, printed


def check_times(report, series):
    """series: (device, kernel, data) that each size and type must have."""
    found = {(each["type"], each["size"], each["device"], each["kernel"], each["data"]): each for each in report["measurements"]}
    wanted = {(kind, size, *one) for kind in ("f32", "f16") for size in SIZES for one in series}
    assert set(found) == wanted, (set(found) ^ wanted, report["skipped"])
    for each in found.values():
        seconds = each["microseconds"] / 1e6
        assert each["runs"] >= 1 and not each["warnings"] and each["fastest_microseconds"] <= each["microseconds"], each
        assert math.isclose(each["tflops"], 2 * each["size"] ** 3 / seconds / 1e12, rel_tol=1e-6), each
        ceilings = report["ceilings"][each["device"]]
        intensity = 2 * each["size"] / (3 * {"f32": 4, "f16": 2}[each["type"]])
        roof = min(ceilings["tflops"][each["type"]], ceilings["gigabytes_per_second"] / 1000 * intensity)
        assert math.isclose(each["roofline_share"], each["tflops"] / roof, rel_tol=1e-6), each
    for device in {one[0] for one in series}:
        assert max(each["roofline_share"] for each in found.values() if each["device"] == device) >= 0.999


def check_crossovers(report):
    """From the size of a crossover on the GPU is faster at each size, and not at the size before."""
    times = {(each["type"], each["size"], each["device"], each["kernel"], each["data"]): each["microseconds"]
             for each in report["measurements"]}
    assert len(report["crossovers"]) == 16, report["crossovers"]
    for each in report["crossovers"]:
        faster = [times[each["type"], size, "gpu", each["kernel"], each["data"]] <
                  times[each["type"], size, "cpu", "anneal", "host"] for size in SIZES]
        wanted = None
        for size, is_faster in reversed(list(zip(SIZES, faster))):
            if not is_faster:
                break
            wanted = size
        assert each["size"] == wanted, (each, faster)


def check_counts(report):
    """Bytes that follow from the text of the kernels, at 64: 64 is a multiple of all tiles."""
    n, counts = 64, {(each["type"], each["size"], each["kernel"]): each["bytes"] for each in report["counts"]}
    assert len(counts) == 12 and not report["measurements"] and report["measures"] == "bytes", report
    for kind, item in (("f32", 4), ("f16", 2)):
        warps = n * n // 32
        row = 32 * item  # bytes of 32 neighbours
        naive, tiled = counts[kind, n, "naive"], counts[kind, n, "tiled"]
        # In each of n steps a warp reads one element of a, which takes a sector, and 32 of b.
        assert naive == {"copied": 3 * n * n * item, "global_load": warps * n * (32 + row), "global_store": n * n * item,
                         "shared": 0}, naive
        # In each of n / 32 tiles a warp reads 32 elements of a and of b, stores them, and reads 64 rows.
        assert tiled == {"copied": 3 * n * n * item, "global_load": warps * (n // 32) * 2 * row, "global_store": n * n * item,
                         "shared": warps * (n // 32) * (2 + 64) * 128}, tiled
        assert counts[kind, n, "anneal"]["global_store"] == n * n * item


def check_pictures(path):
    run(sys.executable, f"{ROOT}/samples/matmul_travel/draw.py", str(path))
    drawing = xml.parse(path.with_suffix(".svg")).getroot()
    width, height = float(drawing.get("width")), float(drawing.get("height"))
    assert path.with_suffix(".png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    words = [each for each in drawing.iter("{http://www.w3.org/2000/svg}text") if each.get("x")]
    assert len(words) > 10, path
    for each in words:
        # 0.65 of the font's size is more than a letter's mean width.
        length = 0.65 * float(each.get("font-size")) * len(each.text)
        left = float(each.get("x")) - {"start": 0, "middle": length / 2, "end": length}[each.get("text-anchor")]
        assert left > -20 and left + length < width + 20 and float(each.get("y")) < height, (path, each.text)
    return drawing


def draw_a_gpu(report, path):
    """A picture with all kernels and crossovers, of made-up times: 2, 3, ... times those of the CPU, divided by the size."""
    kernels = [(kernel, data) for kernel in ("library", "anneal", "tiled", "naive") for data in ("stays", "copied")]
    report["machines"]["gpu"] = "cuda:0 (NVIDIA H100 80GB HBM3), sm_90, 132 multiprocessors, 79.2 GiB, driver for CUDA 13.0"
    report["ceilings"]["gpu"] = {"gigabytes_per_second": 2500, "tflops": {"f32": 1, "f16": 1}}
    for each in [one for one in report["measurements"] if one["device"] == "cpu"]:
        for i, (kernel, data) in enumerate(kernels):
            report["measurements"].append({**each, "device": "gpu", "kernel": kernel, "data": data,
                                           "tflops": each["tflops"] * each["size"] / (2 + i), "roofline_share": 1 / (2 + i)})
    report["crossovers"] = [{"type": kind, "kernel": kernel, "data": data, "size": 48 if data == "stays" else 64}
                            for kind in ("f32", "f16") for kernel, data in kernels]
    path.write_text(json.dumps(report))
    words = [each.text for each in check_pictures(path).iter("{http://www.w3.org/2000/svg}text")]
    assert words.count("GPU faster: from 48 on (data stays), from 64 on (data copied)") == 2, words
    assert "cuBLASLt" in words and "naive" in words and "tiled" in words, words


def main():
    program, anneal, *rest = sys.argv[1:]
    with tempfile.TemporaryDirectory(prefix="anneal-travel-") as folder:
        if rest == ["--device", "cuda"]:
            report, _ = results_of(program, Path(folder, "gpu.json"), "--device", "cuda", "--seconds", "120")
            gpu = [("gpu", kernel, data) for kernel in ("naive", "tiled", "anneal", "library") for data in ("stays", "copied")]
            check_times(report, [("cpu", "anneal", "host"), *gpu])
            check_crossovers(report)
            assert min(report["ceilings"]["gpu"]["copies"].values()) > 0
            check_pictures(Path(folder, "gpu.json"))
            print("the program measures a GPU")
            return 0
        report, _ = results_of(program, Path(folder, "cpu.json"), "--seconds", "20")
        check_times(report, [("cpu", "anneal", "host")])
        check_pictures(Path(folder, "cpu.json"))
        draw_a_gpu(report, Path(folder, "made_up.json"))
        report, printed = results_of(program, Path(folder, "counts.json"), "--device", "emulated", "--anneal", anneal)
        assert "counts bytes instead of time" in printed and "counts bytes instead of time" in report["note"]
        check_counts(report)
        check_pictures(Path(folder, "counts.json"))
        # A time limit that nothing fits in.
        out = str(Path(folder, "none.json"))
        assert "no time is left" in run(program, "--sizes", "64", "--seconds", "0.1", "--out", out)
        for wrong in (["--sizes", "0"], ["--sizes", "64,"], ["--types", "f64"], ["--device", "gpu"], ["--seconds"],
                      ["--unknown", "1"]):
            assert "usage" in run(program, *wrong, status=2), wrong
        if "none:" in run(anneal, "devices").split("cuda:0")[1][:20]:
            assert "matmul_travel: " in run(program, "--device", "cuda", "--sizes", "64", "--out", out, status=1)
    print("the program measures the CPU, counts on the emulated device, and draws both")
    return 0


if __name__ == "__main__":
    sys.exit(main())
