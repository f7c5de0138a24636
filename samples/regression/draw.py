#!/usr/bin/env python3
"""Draws the results of `regression`: the surfaces, their differences, and the time against the number of points.

    samples/regression/draw.py regression.json regression.svg
    svg_to_png regression.svg regression.png

The JSON may come from another machine. Needs Python alone.
"""

import base64
import json
import math
import struct
import sys
import zlib
from pathlib import Path
from xml.sax.saxutils import escape

INK, FAINT, GROUND, LINES = "#24292f", "#59616b", "#fbfbfa", "#d8dbdf"
# Told apart by most colour-blind eyes, too.
CPU, GPU, RESIDENT = "#c65d00", "#2f6db5", "#2f9e7a"
HEIGHTS = ["#440154", "#482878", "#3e4989", "#31688e", "#26828e", "#1f9e89", "#35b779", "#6ece58", "#b5de2b", "#fde725"]
SIGNS = ["#2166ac", "#67a9cf", "#d1e5f0", "#ffffff", "#fddbc7", "#ef8a62", "#b2182b"]
WIDTH, MARGIN, GAP = 1080, 24, 24
PANEL = (WIDTH - 2 * MARGIN - 2 * GAP) / 3
CELLS = 44  # of a drawn surface, along x and along y


def text(x, y, words, size=12, colour=INK, anchor="start", weight="normal"):
    return (f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{colour}" text-anchor="{anchor}" '
            f'font-weight="{weight}">{escape(words)}</text>')


def line(x1, y1, x2, y2, colour, width=1.0, dash=""):
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    return (f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" stroke-width="{width}"'
            f'{dashes}/>')


def mixed(colours, share, light=1.0):
    """The colour at `share`, 0 to 1, of the way through the colours, as three bytes."""
    at = min(max(share, 0), 1) * (len(colours) - 1)
    i = min(int(at), len(colours) - 2)
    pair = [[int(colour[k:k + 2], 16) for k in (1, 3, 5)] for colour in colours[i:i + 2]]
    return bytes(min(255, round(light * (a + (b - a) * (at - i)))) for a, b in zip(*pair))


def surface(x, y, size, results, name, low, high):
    """The heights `name` from above and the side, in a square of `size`."""
    side, heights = results["side"], results[name]
    at = [round(i * (side - 1) / CELLS) for i in range(CELLS + 1)]
    z = [[heights[row * side + column] for column in at] for row in at]

    def place(i, j, height):
        u, v = i / CELLS - 0.5, j / CELLS - 0.5
        angle = math.radians(-37.5)
        right = u * math.cos(angle) - v * math.sin(angle)
        back = u * math.sin(angle) + v * math.cos(angle)
        return x + size * (0.5 + 0.66 * right), y + size * (0.62 - 0.30 * back - 0.46 * ((height - low) / (high - low) - 0.45))

    def four_corners(corners):
        """A path that begins at the first corner; the others are relative, which is shorter."""
        places = [[round(each, 1) for each in place(*corner)] for corner in corners]
        steps = " ".join(f"{b[k] - a[k]:.1f}" for a, b in zip(places, places[1:]) for k in (0, 1))
        return f'd="M{places[0][0]} {places[0][1]}l{steps}z"'

    floor = four_corners([(i, j, low) for i, j in ((0, 0), (CELLS, 0), (CELLS, CELLS), (0, CELLS))])
    yield f'<path {floor} fill="#eef0f2" stroke="{LINES}"/>'
    for words, (i, j), dx, dy in (("x", (CELLS / 2, 0), -8, 18), ("y", (CELLS, CELLS / 2), 12, 12)):
        px, py = place(i, j, low)
        yield text(px + dx, py + dy, words, 12, FAINT, "middle")
    yield f'<g stroke="{INK}" stroke-opacity="0.25" stroke-width="0.5" stroke-linejoin="round">'
    # From the back to the front, so that the front hides what lies behind it.
    for j in reversed(range(CELLS)):
        for i in range(CELLS):
            four = [z[j][i], z[j][i + 1], z[j + 1][i + 1], z[j + 1][i]]
            slope = ((four[1] + four[2]) - (four[0] + four[3])) * CELLS / 120
            light = 0.92 + 0.16 * math.tanh(slope)  # as if the light came from the left
            colour = mixed(HEIGHTS, (sum(four) / 4 - low) / (high - low), light).hex()
            path = four_corners([(i, j, four[0]), (i + 1, j, four[1]), (i + 1, j + 1, four[2]), (i, j + 1, four[3])])
            yield f'<path {path} fill="#{colour}"/>'
    yield "</g>"


SHADES = 101  # of a map


def png(rows):
    """A PNG whose rows have one byte for each pixel, an index of SHADES colours of SIGNS."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", len(rows[0]), len(rows), 8, 3, 0, 0, 0)
    palette = b"".join(mixed(SIGNS, i / (SHADES - 1)) for i in range(SHADES))
    packed = zlib.compress(b"".join(b"\0" + row for row in rows), 9)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"PLTE", palette) + chunk(b"IDAT", packed)
            + chunk(b"IEND", b""))


def image(x, y, width, height, rows):
    data = base64.b64encode(png(rows)).decode()
    return (f'<image x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" preserveAspectRatio="none" '
            f'href="data:image/png;base64,{data}"/>')


def difference(x, y, size, results, a, b):
    """A map of a - b over the grid, with y upwards, and its scale on the right, which 1 % of the points exceed."""
    side, reach = results["side"], results["range"]
    differences = [p - q for p, q in zip(results[a], results[b])]
    most = max(sorted(map(abs, differences))[len(differences) * 99 // 100], 1e-30)
    shades = bytes(round((SHADES - 1) * min(max(0.5 + each / most / 2, 0), 1)) for each in differences)
    rows = [shades[row * side:(row + 1) * side] for row in reversed(range(side))]
    left, width = x + 26, size - 100
    yield image(left, y, width, width, rows)
    yield f'<rect x="{left:.1f}" y="{y:.1f}" width="{width:.1f}" height="{width:.1f}" fill="none" stroke="{FAINT}"/>'
    for share in (0, 0.5, 1):
        value = f"{reach * (2 * share - 1):g}"
        yield text(left + share * width, y + width + 16, value, 11, FAINT, "middle")
        yield text(left - 6, y + width * (1 - share) + 4, value, 11, FAINT, "end")
    yield text(left + width / 4, y + width + 16, "x", 12, FAINT, "middle")
    yield text(left - 6, y + width / 4 + 4, "y", 12, FAINT, "end")
    scale = [bytes([shade]) for shade in reversed(range(SHADES))]
    bar = left + width + 10
    yield image(bar, y, 12, width, scale)
    yield f'<rect x="{bar:.1f}" y="{y:.1f}" width="12" height="{width:.1f}" fill="none" stroke="{FAINT}"/>'
    for share in (0, 0.5, 1):
        yield text(bar + 17, y + width * (1 - share) + 4, f"{most * (2 * share - 1):.2g}", 11, FAINT)


def decades(low, high):
    return [10 ** power for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)]


def duration(microseconds):
    return f"{microseconds:g} us" if microseconds < 1000 else f"{microseconds / 1000:g} ms"


def rounded(points):
    """Two digits: 730, 12,000."""
    return f"{round(points, 1 - math.floor(math.log10(points))):,.0f}"


def crossing(results, name, bottom, along, up, colour, anchor):
    """A mark where the GPU begins to be faster, and the number of points beside it."""
    found = results[name]
    if not found:
        return
    i = results["points"].index(found["cpu_wins"])
    share = math.log(found["points"] / found["cpu_wins"]) / math.log(found["gpu_wins"] / found["cpu_wins"])
    cpu = results["cpu_us"]
    here, there = along(found["points"]), up(cpu[i] * (cpu[i + 1] / cpu[i]) ** share)
    yield line(here, there, here, bottom, colour, 1.2, "4 3")
    yield f'<circle cx="{here:.1f}" cy="{there:.1f}" r="4.5" fill="{GROUND}" stroke="{colour}" stroke-width="2"/>'
    yield text(here + (5 if anchor == "start" else -5), bottom - 6, rounded(found["points"]), 12, colour, anchor, "bold")


def times(x, y, width, height, results):
    """Lines of time against points on logarithmic axes."""
    points, series = results["points"], [("cpu_us", CPU, "CPU"), ("gpu_us", GPU, "GPU, data in host memory"),
                                         ("gpu_resident_us", RESIDENT, "GPU, data in its memory")]
    everything = [each for name, _, _ in series for each in results[name]]
    marks = decades(min(everything), max(everything))
    left, right, bottom = x + 52, x + width - 8, y + height

    def along(value):
        return left + (right - left) * math.log(value / points[0]) / math.log(points[-1] / points[0])

    def up(value):
        return bottom - height * math.log(value / marks[0]) / math.log(marks[-1] / marks[0])

    for mark in marks:
        yield line(left, up(mark), right, up(mark), LINES)
        yield text(left - 6, up(mark) + 4, duration(mark), 11, FAINT, "end")
    for mark in [each for each in decades(points[0], points[-1]) if each < points[-1]] + [points[-1]]:
        yield line(along(mark), y, along(mark), bottom, LINES)
        if mark <= points[-1] / 10 or mark == points[-1]:  # else its number would run into the last one
            yield text(along(mark), bottom + 16, f"{mark:,}", 11, FAINT, "middle")
    yield text((left + right) / 2, bottom + 34, "points in a run", 12, FAINT, "middle")
    for name, colour, _ in series:
        path = " ".join(f"{along(n):.1f},{up(each):.1f}" for n, each in zip(points, results[name]))
        yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>'
        yield from (f'<circle cx="{along(n):.1f}" cy="{up(each):.1f}" r="2.4" fill="{colour}"/>'
                    for n, each in zip(points, results[name]))
    yield from crossing(results, "crossover_resident", bottom, along, up, RESIDENT, "end")
    yield from crossing(results, "crossover", bottom, along, up, GPU, "start")
    for i, (name, colour, words) in enumerate(series):
        at = bottom + 56 + 18 * i
        yield line(left, at - 4, left + 22, at - 4, colour, 2)
        yield text(left + 28, at, words)


def picture(results):
    """The SVG's text."""
    truth = results["truth"]
    low, high = min(truth), max(truth)
    gpu = "emulated GPU" if results["device"].startswith("emulated") else "GPU"
    columns = [MARGIN + (PANEL + GAP) * i for i in range(3)]
    parts = [text(MARGIN, 36, "The surface \"peaks\" by a network 2-20-5-1, on two devices", 18, weight="bold"),
             text(MARGIN, 56, f"CPU: {results['machine']}, {results['cores']} cores. {len(truth):,} points, Anneal "
                              f"{results['version']}, {results['date'][:10]}", 12, FAINT),
             text(MARGIN, 73, f"GPU: {results['gpu_name']}", 12, FAINT)]
    top = 106
    for x, name, words in zip(columns, ("truth", "cpu", "gpu"), ("Formula", "Network on the CPU", f"Network on the {gpu}")):
        parts += [text(x, top, words, 14, weight="bold"), *surface(x, top - 62, PANEL, results, name, low, high)]
    top += 316
    network = f"rms {results['rms_error']:.2g}, at most {results['largest_error']:.2g}"
    devices = f"at most {results['largest_difference']:.2g}"
    for x, words, found, a, b in ((columns[0], "Network minus formula", network, "cpu", "truth"),
                                  (columns[1], f"{gpu[0].upper()}{gpu[1:]} minus CPU", devices, "gpu", "cpu")):
        parts += [text(x, top, words, 14, weight="bold"), text(x, top + 18, f"{found}; 1 % exceed the scale", 12, FAINT),
                  *difference(x, top + 32, PANEL, results, a, b)]
    parts.append(text(columns[2], top, "Time of a run", 14, weight="bold"))
    if results["points"]:
        found = results["crossover"] or results["crossover_resident"]
        parts += [text(columns[2], top + 18, "median; rings: the GPU is faster from there on" if found else "median", 12, FAINT),
                  *times(columns[2], top + 32, PANEL, PANEL - 100, results)]
    elif gpu != "GPU":
        parts += [text(columns[2], top + 18, "Not measured: the emulated GPU computes on", 12, FAINT),
                  text(columns[2], top + 35, "the CPU, so its times have no meaning.", 12, FAINT)]
    else:
        parts.append(text(columns[2], top + 18, "Not measured.", 12, FAINT))
    height = top + 32 + PANEL - 100 + (112 if results["points"] else 36)
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" width="{WIDTH}" height="{height:.0f}" '
            'font-family="-apple-system, Segoe UI, Helvetica, Arial, DejaVu Sans, sans-serif">\n'
            f'<rect width="{WIDTH}" height="{height:.0f}" rx="8" fill="{GROUND}"/>\n' + "\n".join(parts) + "\n</svg>\n")


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    Path(sys.argv[2]).write_text(picture(json.loads(Path(sys.argv[1]).read_text())))


if __name__ == "__main__":
    main()
