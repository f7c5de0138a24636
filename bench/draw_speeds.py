#!/usr/bin/env python3
"""Draws the speeds of a report of compare_peers.py: bars for each network, relative to ONNX Runtime.

    bench/draw_speeds.py bench/results/cpu-2026-11-30.json docs/images/cpu-speed.svg

A large panel for one thread and a small one for two, both at batch 1. Text is dark on a light ground of its own, so that
the picture reads on pages of any colour.
"""

import json
import math
import sys
from pathlib import Path

TITLES = {"resnet50": "ResNet-50", "mobilenet_v2": "MobileNetV2", "efficientnet_b0": "EfficientNet-B0",
          "squeezenet1_1": "SqueezeNet 1.1", "googlenet": "GoogLeNet", "bert_base_2l": "BERT, 2 layers",
          "bert_base_12l": "BERT-base", "vit_tiny": "ViT-tiny", "unet": "U-Net", "wide_mlp": "wide MLP"}
TYPES = {"f32": "#2f6db5", "int8": "#e08a1e", "bf16": "#2f9e7a"}  # told apart by most colour-blind eyes, too
INK, FAINT, GROUND, LINES = "#24292f", "#656d76", "#fbfbfa", "#d8dbdf"
LEFT, GROUP, BAR, GAP, WIDTH = 56, 94, 24, 4, 1012
MEAN = "geomean"
LARGEST = 4  # bars above are cut; the numbers below them tell


def text(x, y, words, size=12, colour=INK, anchor="start", weight="normal"):
    return (f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{colour}" text-anchor="{anchor}" '
            f'font-weight="{weight}">{words}</text>')


def line(x1, y1, x2, y2, colour, width=1.0):
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" stroke-width="{width}"/>'


def speeds(report, threads):
    """{network: {type: {peer: speed}}}, and the means as the last network; of batch 1, and of right outputs."""
    found, means = {}, {}
    for result in report["results"]:
        if result["threads"] == threads and result["batch"] == 1 and result["net"] in TITLES:
            peers = {name: peer["speed"] for name, peer in result["peers"].items() 
                     if "speed" in peer and peer.get("equal", True)}
            found.setdefault(result["net"], {})[result["type"]] = peers
            for name, speed in peers.items():
                means.setdefault(result["type"], {}).setdefault(name, []).append(math.log(speed))
    found = {net: found[net] for net in TITLES if net in found}
    found[MEAN] = {kind: {name: math.exp(sum(logs) / len(logs)) for name, logs in peers.items()}
                   for kind, peers in means.items()}
    return found


def marks(x, width, top, peers):
    """What stands in a bar's column beside the bar: OpenVINO as a line, Anneal's own kernels as a ring."""
    if "openvino" in peers:
        yield line(x - 2, top(peers["openvino"]), x + width + 2, top(peers["openvino"]), INK, 2)
    if "anneal_own" in peers:
        yield (f'<circle cx="{x + width / 2:.1f}" cy="{top(peers["anneal_own"]):.1f}" r="3.2" fill="{GROUND}" '
               f'stroke="{INK}" stroke-width="1.3"/>')


def panel(found, y, height, scale, step):
    """Bars between `y` and `y + height`, `scale` being the speed at the top, and what they say below, 34 high."""
    def top(speed):
        return y + height * (1 - min(speed, scale) / scale)

    right = LEFT + GROUP * len(found)
    yield f'<rect x="{right - GROUP:.1f}" y="{y}" width="{GROUP}" height="{height + 36}" fill="#eef0f2"/>'
    for i in range(1 + int(scale / step)):
        yield line(LEFT, top(i * step), right, top(i * step), LINES)
        yield text(LEFT - 8, top(i * step) + 4, f"{i * step:g}x", 11, FAINT, "end")
    yield line(LEFT, top(1), right, top(1), INK, 1.2)
    for i, (net, kinds) in enumerate(found.items()):
        shown = {kind: kinds[kind] for kind in TYPES if "anneal" in kinds.get(kind, {})}
        weight = "bold" if net == MEAN else "normal"
        x = LEFT + GROUP * i + (GROUP - (BAR + GAP) * len(shown) + GAP) / 2
        for kind, peers in shown.items():
            speed = peers["anneal"]
            yield (f'<rect x="{x:.1f}" y="{top(speed):.1f}" width="{BAR}" height="{y + height - top(speed):.1f}" '
                   f'fill="{TYPES[kind]}" rx="2"/>')
            yield from marks(x, BAR, top, peers)
            yield text(x + BAR / 2, y + height + 13, f"{speed:.2f}", 10.5, INK, "middle")
            x += BAR + GAP
        yield text(LEFT + GROUP * (i + 0.5), y + height + 30, TITLES.get(net, net), 11.5, FAINT, "middle", weight)
    yield line(LEFT, y + height, right, y + height, FAINT)


def legend(y):
    x = 20
    for kind, words in (("f32", "f32"), ("int8", "int8, same Q/DQ file"), ("bf16", "bf16 (ONNX Runtime: f32)")):
        yield f'<rect x="{x}" y="{y - 10}" width="12" height="12" fill="{TYPES[kind]}" rx="2"/>'
        yield text(x + 18, y, words)
        x += 40 + 7 * len(words)
    yield f'<circle cx="{x + 6}" cy="{y - 4}" r="3.2" fill="{GROUND}" stroke="{INK}" stroke-width="1.3"/>'
    yield text(x + 18, y, "Anneal without oneDNN")
    x += 186
    yield line(x, y - 4, x + 14, y - 4, INK, 2)
    yield text(x + 20, y, "OpenVINO (bf16: its own)")


def instructions(report):
    words = {"avx512f": "AVX-512", "avx512_vnni": "VNNI", "avx512_bf16": "BF16"}
    return " ".join(words[each] for each in words if each in report["instructions"]) or "AVX2"


def picture(report):
    """The SVG's text."""
    panels = [(threads, speeds(report, threads), height, step) for threads, height, step in ((1, 220, 0.5), (2, 100, 1))]
    panels = [each for each in panels if len(each[1]) > 1]
    largest = max(speed for _, found, _, _ in panels for kinds in found.values() for peers in kinds.values()
                  for speed in peers.values())
    scale = max(2, math.ceil(min(largest, LARGEST)))
    versions = report["versions"]
    parts = [text(20, 34, "Speed relative to ONNX Runtime, one inference at a time", 18, INK, weight="bold"),
             text(20, 54, f"Bars: Anneal {versions['anneal']}. ONNX Runtime {versions['onnxruntime']} is 1x; higher is "
                  f"faster. {report['machine']}, {report['cores']} cores, {instructions(report)}; {report['date'][:10]}",
                  12, FAINT),
             *legend(80)]
    y = 102
    for threads, found, height, step in panels:
        parts += [text(20, y + 10, f"{threads} thread{'s' if threads > 1 else ''}", 13, weight="bold"),
                  *panel(found, y + 22, height, scale, step)]
        y += height + 80
    width = max(WIDTH, LEFT + GROUP * max(len(found) for _, found, _, _ in panels) + 16)
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {y - 8}" width="{width}" height="{y - 8}" '
            'font-family="-apple-system, Segoe UI, Helvetica, Arial, DejaVu Sans, sans-serif">\n'
            f'<rect width="{width}" height="{y - 8}" rx="8" fill="{GROUND}"/>\n' + "\n".join(parts) + "\n</svg>\n")


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    Path(sys.argv[2]).write_text(picture(json.loads(Path(sys.argv[1]).read_text())))


if __name__ == "__main__":
    main()
