#!/usr/bin/env python3
"""Ceilings of `anneal bench --roofline` against a copy and an FMA loop of their own (`roofline_check`), in turns.

    ceilings.py ANNEAL ROOFLINE_CHECK [--threads 1,2] [--rounds 6] [--json FILE]

Prints a line for each number of threads and round, then the best of all rounds: other machines of the same host only lower a
bandwidth. Ends with status 1 if the best ones differ by more than a tenth.
"""

import argparse
import datetime
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

MODEL = Path(__file__).resolve().parent.parent / "samples/glyphs/glyphs.onnx"


def own_loops(program, threads):
    """Copied GB/s and Gop/s of f32."""
    printed = subprocess.run([program, str(threads)], check=True, capture_output=True, text=True).stdout
    return [float(number) for number in re.search(r"copy ([\d.]+) GB/s, f32 ([\d.]+) Gop/s", printed).groups()]


def probed(anneal, threads, folder):
    """The ceilings as `anneal` writes them."""
    subprocess.run([anneal, "bench", MODEL, "--threads", str(threads), "--iterations", "3", "--roofline", "--probe", "--json",
                    folder / "r.json"], check=True, capture_output=True, env={**os.environ, "ANNEAL_CACHE_DIR": str(folder)})
    return json.loads((folder / "r.json").read_text())["roofline"]["ceilings"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("anneal")
    parser.add_argument("roofline_check")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rounds, is_far = [], False
    for threads in map(int, options.threads.split(",")):
        own, probe = {"copy": 0, "f32": 0}, {"copy": 0, "f32": 0}
        for _ in range(options.rounds):
            copy, arithmetic = own_loops(options.roofline_check, threads)
            with tempfile.TemporaryDirectory() as folder:
                ceilings = probed(options.anneal, threads, Path(folder))
            f32, bandwidth = ceilings["operations_per_second"]["f32"] / 1e9, ceilings["levels"][-1]["copy_bytes_per_second"] / 1e9
            for best, now in ((own, (copy, arithmetic)), (probe, (bandwidth, f32))):
                best.update(copy=max(best["copy"], now[0]), f32=max(best["f32"], now[1]))
            rounds.append({"threads": threads, "own": {"copy_gb_per_second": copy, "f32_gop_per_second": arithmetic}, "probe": ceilings})
            print(f"{threads} thread(s): copy {copy:.1f} and {bandwidth:.1f} GB/s, f32 {arithmetic:.1f} and {f32:.1f} Gop/s"
                  f"{' (BUSY)' if ceilings['was_busy'] else ''}", flush=True)
        ratios = {name: probe[name] / own[name] for name in own}
        is_far |= any(abs(ratio - 1) > 0.1 for ratio in ratios.values())
        print(f"{threads} thread(s), best: copy {own['copy']:.1f} and {probe['copy']:.1f} GB/s ({ratios['copy']:.2f}), "
              f"f32 {own['f32']:.1f} and {probe['f32']:.1f} Gop/s ({ratios['f32']:.2f})", flush=True)
    if options.json:
        options.json.write_text(json.dumps({"command": sys.argv, "date": datetime.date.today().isoformat(), "rounds": rounds}, indent=1) + "\n")
    return 1 if is_far else 0


if __name__ == "__main__":
    sys.exit(main())
