#!/usr/bin/env python3
"""Perplexity of a language model of bytes in f32, fp16, bf16, int8 and int4: perplexity.py MODEL.onnx [--out FILE.json]

MODEL.onnx is what bench/byte_model.py wrote: input_ids[batch, 128] to logits. The text is the last tenth of each page of docs/, which
the training did not read. Prints for each build the perplexity of a byte, the difference of the logits from f32 (root mean
square, relative), the share of positions with the same first choice, and the size of the engine. Needs anneal and numpy.
"""

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path

import numpy as np

LENGTH = 128
BATCH = 16
BUILDS = {
    "f32": {},
    "fp16": {"precision": "fp16"},
    "bf16": {"precision": "bf16"},
    "int8": {"weight_format": "int8"},
    "int8:32": {"weight_format": "int8:32"},
    "int4:16": {"weight_format": "int4:16"},
    "int4": {"weight_format": "int4"},
    "int4:128": {"weight_format": "int4:128"},
}


def texts():
    """What the model learns, and what it is measured on."""
    learned, held_out = [], []
    for path in sorted((Path(__file__).resolve().parent.parent / "docs").glob("*.md")):
        page = path.read_bytes()
        learned.append(page[:len(page) * 9 // 10])
        held_out.append(page[len(page) * 9 // 10:])
    return b"\n".join(learned), b"\n".join(held_out)


def logits_of(engine, rows):
    session = engine.session()
    return np.concatenate([session(rows[i:i + BATCH]) for i in range(0, len(rows), BATCH)])


def perplexity_of(logits, targets):
    logits = logits.astype(np.float64)
    largest = logits.max(-1, keepdims=True)
    chosen = np.take_along_axis(logits, targets[..., None], -1)
    return float(np.exp(np.mean(np.log(np.exp(logits - largest).sum(-1, keepdims=True)) + largest - chosen)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    import anneal

    text = np.frombuffer(texts()[1], np.uint8).astype(np.int64)
    count = (len(text) - 1) // LENGTH
    rows, targets = (text[i:i + count * LENGTH].reshape(count, LENGTH) for i in (0, 1))
    results, exact = [], None
    print(f"{count * LENGTH} bytes\n{'build':10} {'perplexity':>10} {'difference':>10} {'same':>7} {'engine MB':>9}")
    for name, options in BUILDS.items():
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.engine")
            anneal.build(arguments.model, path, self_check=False, **options)
            size = os.path.getsize(path)
            logits = logits_of(anneal.load(path), rows)
        exact = logits if exact is None else exact
        result = {
            "build": name,
            "perplexity": perplexity_of(logits, targets),
            "difference": float(np.sqrt(np.mean((logits - exact) ** 2) / np.mean(exact ** 2))),
            "same": float(np.mean(logits.argmax(-1) == exact.argmax(-1))),
            "engine_bytes": size,
        }
        results.append(result)
        print(f"{name:10} {result['perplexity']:10.4f} {result['difference']:10.2%} {result['same']:7.2%} {size / 1e6:9.2f}", flush=True)
    if arguments.out:
        arguments.out.write_text(json.dumps({"anneal": anneal.__version__, "bytes": count * LENGTH, "builds": results}, indent=2) + "\n")


if __name__ == "__main__":
    sys.exit(main())
