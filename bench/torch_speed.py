#!/usr/bin/env python3
"""torch.compile(backend="anneal") against eager mode and inductor on the CPU: time of one call, on equal threads.

    python bench/torch_speed.py [--rounds N] [--threads N] [--models NAME ...] [--json FILE]

Needs a Python with anneal, torch, onnx and onnxscript; BERT needs transformers. Weights are random. The backends run in
turn, round after round, and each number is the least of all calls: other load of the machine meets all of them. On one thread it
is CPU time, which other programs disturb less; on several it is time that passes.
"""

import argparse
import datetime
import json
import os
import platform
import sys
import time
from pathlib import Path

import torch

import anneal.torch

sys.path.append(str(Path(__file__).resolve().parent.parent / "python/tests"))
import torch_models  # noqa: E402


def bert():
    import transformers

    return transformers.BertModel(transformers.BertConfig(num_hidden_layers=4))  # BERT-base's width, a third of its layers


MODELS = {
    "resnet18": (torch_models.resnet18, lambda: (torch.randn(1, 3, 224, 224),)),
    "resnet18 batch 8": (torch_models.resnet18, lambda: (torch.randn(8, 3, 224, 224),)),
    "bert 4 layers, 1 x 128": (bert, lambda: (torch.randint(0, 30000, (1, 128)), torch.ones(1, 128, dtype=torch.int64))),
    "unet 1 x 128 x 128": (lambda: torch_models.UNet(32), lambda: (torch.randn(1, 3, 128, 128),)),
    "small 1 x 16 x 16": (torch_models.Small, lambda: (torch.randn(1, 3, 16, 16),)),
}


def milliseconds(run, args, least_seconds=0.3):
    """The least of the calls in that time."""
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    least, until = float("inf"), time.perf_counter() + least_seconds
    while True:
        begin = clock()
        run(*args)
        least = min(least, clock() - begin)
        if time.perf_counter() > until:
            return least * 1e3


@torch.no_grad()  # and not inference mode, in which torch does not count changes of weights
def measure(name, rounds):
    make, inputs = MODELS[name]
    torch.manual_seed(0)
    torch._dynamo.reset()
    module, args = make().eval(), inputs()
    runs = {"eager": module, "inductor": torch.compile(module), "anneal": torch.compile(
        module, backend="anneal", options={"fallback": False})}
    row = {"model": name}
    for backend, run in runs.items():
        begin = time.perf_counter()
        run(*args)
        row[f"{backend} first call s"] = time.perf_counter() - begin
        for _ in range(3):
            run(*args)
    times = {backend: [] for backend in runs}
    for _ in range(rounds):
        for backend, run in runs.items():
            times[backend].append(milliseconds(run, args))
    row.update({f"{backend} ms": min(values) for backend, values in times.items()})
    row["of eager"] = row["eager ms"] / row["anneal ms"]
    row["of inductor"] = row["inductor ms"] / row["anneal ms"]
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--models", nargs="*", default=list(MODELS))
    parser.add_argument("--json")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    model = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), platform.machine())
    about = {"machine": model, "cores": os.cpu_count(), "threads": arguments.threads, "load before": os.getloadavg()[0],
             "date": datetime.date.today().isoformat(), "torch": torch.__version__, "anneal": anneal.__version__,
             "python": platform.python_version(), "rounds": arguments.rounds}
    print(json.dumps(about))
    print(f"{'model':<26}{'eager':>10}{'inductor':>10}{'anneal':>10}   ms; faster than eager, than inductor; first calls in s")
    rows = []
    for name in arguments.models:
        row = measure(name, arguments.rounds)
        rows.append(row)
        print(f"{name:<26}{row['eager ms']:>10.3f}{row['inductor ms']:>10.3f}{row['anneal ms']:>10.3f}   "
              f"{row['of eager']:.2f}x {row['of inductor']:.2f}x   "
              f"inductor {row['inductor first call s']:.1f}, anneal {row['anneal first call s']:.1f}", flush=True)
    if arguments.json:
        Path(arguments.json).write_text(json.dumps({"about": about, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
