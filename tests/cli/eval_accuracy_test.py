#!/usr/bin/env python3
"""Judges real models on real data and compares with what is known: the share that is right, and the
class of every sample.

Arguments: the command `anneal`, the folder ANNEAL_DATA. Exit status 77 where the folder is not there.
"""

import csv
import json
import os
import subprocess
import sys
import tempfile

IMAGENET = ["imagenet500", "--label-offset", "1"]
TF = ["--mean", "128", "--std", "128"]
# model, data and flags, top-1 and top-5 of the reference or the samples looked at, column of its classes
CASES = [
    ("mobilenet_v1_0.25_128_fp32", [*IMAGENET, *TF, "--resize", "128x128", "--batch", "4"], 0.4340, 0.7000),
    ("mobilenet_v2_1.0_224_fp32", [*IMAGENET, *TF, "--samples", "hash:60"], None, None),
    ("squeezenet1.0_fp32", ["imagenet500", "--channels", "bgr", "--mean", "104,117,123", "--samples", "hash:60"],
     None, None),
    ("kws_dscnn_fp32", ["kws/mfcc_int8_Nx49x10.bin", "--dtype", "i8", "--shape", "49x10", "--mean", "83",
                        "--std", "1/0.5847029", "--batch", "16"], 0.8986, None),
    ("resnet8_cifar10_fp32", ["cifar10_jpeg1k/rgb_u8_Nx32x32x3.bin", "--dtype", "u8", "--shape", "32x32x3",
                              "--batch", "8"], 0.7620, None),
    ("winml_cifar_cnn", ["cifar10_jpeg1k/rgb_u8_Nx32x32x3.bin", "--dtype", "u8", "--shape", "32x32x3",
                         "--scale", "1/255", "--mean", "0.5", "--std", "0.5", "--batch", "8"], 0.6340, None),
    ("mnist_8", ["mnist5k/images-idx3-ubyte.gz", "--labels", "LABELS"], 0.9830, None),
    ("magika_v3_3", ["magika/bytes_int32_Nx2048.bin", "--dtype", "i32", "--shape", "2048", "--samples", "hash:40"],
     1.0, None),
]


def main(anneal, data):
    datasets = f"{data}/datasets"
    if not os.path.isdir(datasets):
        print(f"there is no {datasets}")
        return 77
    problems = []
    with tempfile.TemporaryDirectory(prefix="anneal-eval-") as scratch:
        for model, (where, *flags), top1, top5 in CASES:
            flags = [f"{datasets}/mnist5k/labels-idx1-ubyte.gz" if f == "LABELS" else f for f in flags]
            written = f"{scratch}/{model}.json"
            subprocess.run([anneal, "eval", f"{data}/models/{model}/model.onnx", "--data", f"{datasets}/{where}", *flags,
                            "--json", written], check=True, stdout=subprocess.DEVNULL)
            with open(written) as file:
                result = json.load(file)
            for name, wanted in (("top1", top1), ("top5", top5)):
                if wanted is not None and round(result[name], 4) != wanted:
                    problems.append(f"{model}: {name} is {result[name]}, known is {wanted}")
            labels = f"{datasets}/{where.split('/')[0]}/labels.csv"
            known, column, offset = {}, f"ort_top1_{model}", int("--label-offset" in flags)
            if os.path.exists(labels):
                with open(labels, newline="") as file:
                    known = {row.get("file") or row["row"]: int(row[column]) + offset
                             for row in csv.DictReader(file) if column in row}
            wrong = [one["sample"] for one in result["predictions"]
                     if known and one["classes"][0] != known[one["sample"]]]
            problems += [f"{model}: another class than the reference for sample {one}" for one in wrong]
            print(f"{model}: top-1 {result['top1']:.4f} of {result['samples']}, {len(known)} classes known")
    print(*problems, sep="\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
