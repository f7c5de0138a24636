"""Trains the glyph classifiers and writes the demo's models and test set.

Run it in a virtual environment (Python 3.11), with the fonts that README.md lists installed:

    python3 -m venv venv
    venv/bin/pip install -r requirements.txt
    venv/bin/python train.py --out again

Everything is drawn from fixed seeds on one thread, so a second run gives the same models on
the same kind of machine and models of the same accuracy (within 0.5 points) elsewhere.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import onnx
import onnxruntime
import torch
from torch import Tensor, nn

from glyphs import CLASSES, SIDE, TEST_FONTS, TRAINING_FONTS, Spoiler, render_bank, write_idx
from network import GlyphNet, WideGlyphNet

TRAINING_SEED = 20261120
TEST_SEED = 20261121
CALIBRATION_SEED = 20261122

PICTURES_PER_CLASS = 30
LABEL_SMOOTHING = 0.05
OPSET = 17


@dataclass(frozen=True)
class Recipe:
    """How a network is trained: steps of `batch` fresh pictures each."""

    network: Callable[[int], nn.Module]
    batch: int
    steps: int
    peak_rate: float


RECIPES = {
    "glyphs": Recipe(GlyphNet, batch=128, steps=2000, peak_rate=4e-3),
    "glyphs_wide": Recipe(WideGlyphNet, batch=64, steps=1500, peak_rate=2e-3),
}


def as_input(pictures: Tensor) -> Tensor:
    return pictures.to(torch.float32) / 255


def make_test_set(fonts: Path) -> tuple[Tensor, Tensor]:
    """The same number of pictures of every class, mixed, in fonts training never sees."""
    spoiler = Spoiler(render_bank(fonts, TEST_FONTS), TEST_SEED)
    labels = torch.arange(PICTURES_PER_CLASS * len(CLASSES)) % len(CLASSES)
    labels = labels[torch.randperm(len(labels), generator=spoiler.generator)]
    return spoiler.draw(labels), labels


def train(bank: Tensor, recipe: Recipe) -> nn.Module:
    """Trains on fresh pictures at every step."""
    torch.manual_seed(TRAINING_SEED)
    network = recipe.network(len(CLASSES)).to(memory_format=torch.channels_last)
    spoiler = Spoiler(bank, TRAINING_SEED)
    optimizer = torch.optim.AdamW(network.parameters(), lr=recipe.peak_rate, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, recipe.peak_rate, total_steps=recipe.steps
    )
    measure = nn.CrossEntropyLoss(label_smoothing=LABEL_SMOOTHING)
    network.train()
    for step in range(1, recipe.steps + 1):
        labels = spoiler.random_labels(recipe.batch)
        loss = measure(network(as_input(spoiler.draw(labels))), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 100 == 0:
            print(f"step {step} of {recipe.steps}: loss {loss.item():.3f}", flush=True)
    return network.eval().to(memory_format=torch.contiguous_format)


def export(network: nn.Module, path: Path) -> None:
    """Writes the network as ONNX with its batch normalizations left as nodes."""
    torch.onnx.export(
        network,
        (torch.zeros(1, 1, SIDE, SIDE),),
        path,
        input_names=["image"],
        output_names=["scores"],
        dynamic_axes={"image": {0: "N"}, "scores": {0: "N"}},
        opset_version=OPSET,
        training=torch.onnx.TrainingMode.PRESERVE,
        do_constant_folding=False,
        dynamo=False,
    )
    model = onnx.load(path)
    model.graph.name = path.stem
    onnx.helper.set_model_props(model, {"output": "scores before softmax"})
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, path)


def score_exported(path: Path, pictures: Tensor) -> Tensor:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    (scores,) = session.run(["scores"], {"image": as_input(pictures).numpy()})
    return torch.from_numpy(scores)


def count_correct(scores: Tensor, labels: Tensor, among: int) -> int:
    """How often the label is among the best-scored classes."""
    return int((scores.topk(among).indices == labels.unsqueeze(1)).any(dim=1).sum())


def check_same(exported: Tensor, trained: Tensor) -> None:
    """The file must score as the network it came from does."""
    worst = (exported - trained).abs().max().item()
    changed = int((exported.argmax(1) != trained.argmax(1)).sum())
    print(f"exported against trained: largest difference {worst:.2e}, {changed} labels changed")
    if worst > 1e-3 or changed:
        raise RuntimeError("the exported model does not score as the trained one does")


def write_expected(out: Path, pictures: Tensor, labels: Tensor, files: list[str]) -> None:
    """Records what the models in `out` score on the test set beside them."""
    models = {}
    for name in RECIPES:
        scores = score_exported(out / f"{name}.onnx", pictures)
        top1, top5 = (count_correct(scores, labels, among) for among in (1, 5))
        models[f"{name}.onnx"] = {
            "top1_correct": top1,
            "top5_correct": top5,
            "top1_percent": round(100 * top1 / len(labels), 2),
            "top5_percent": round(100 * top5 / len(labels), 2),
        }
    expected = {
        "date": datetime.date.today().isoformat(),
        "measured_with": f"onnxruntime {onnxruntime.__version__}",
        "pictures": len(labels),
        "models": models,
        "sha256": {
            name: hashlib.sha256((out / name).read_bytes()).hexdigest()
            for name in [*models, *files]
        },
    }
    text = json.dumps(expected, indent=2)
    (out / "expected.json").write_text(text + "\n")
    print(text)


def write_pictures(out: Path, prefix: str, pictures: Tensor, labels: Tensor) -> list[str]:
    names = [f"{prefix}-images.idx3-ubyte", f"{prefix}-labels.idx1-ubyte"]
    write_idx(out / names[0], pictures.squeeze(1))
    write_idx(out / names[1], labels.to(torch.uint8))
    return names


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent,
                        help="folder for the files (default: this one)")
    parser.add_argument("--fonts", type=Path, default=Path("/usr/share/fonts"),
                        help="folder the fonts are under (default: %(default)s)")
    parser.add_argument("--train", nargs="*", choices=RECIPES, default=list(RECIPES),
                        help="models to train; the folder has the others (default: all)")
    parser.add_argument("--write-calibration", type=int, default=0, metavar="COUNT",
                        help="write COUNT pictures of the training kind and stop")
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    out: Path = arguments.out
    out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    bank = render_bank(arguments.fonts, TRAINING_FONTS)
    if arguments.write_calibration:
        spoiler = Spoiler(bank, CALIBRATION_SEED)
        labels = spoiler.random_labels(arguments.write_calibration)
        write_pictures(out, "calibration", spoiler.draw(labels), labels)
        return

    pictures, labels = make_test_set(arguments.fonts)
    files = write_pictures(out, "test", pictures, labels)
    (out / "labels.txt").write_text("".join(f"{name}\n" for name in CLASSES))
    for name in arguments.train:
        started = time.monotonic()
        network = train(bank, RECIPES[name])
        print(f"{name} trained in {time.monotonic() - started:.0f} s")
        export(network, out / f"{name}.onnx")
        with torch.no_grad():
            trained = network(as_input(pictures))
        check_same(score_exported(out / f"{name}.onnx", pictures), trained)
    write_expected(out, pictures, labels, [*files, "labels.txt"])


if __name__ == "__main__":
    main()
