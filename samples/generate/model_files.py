"""The files of a model: where they are, how engines are built or loaded, and the settings beside them."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from pathlib import Path
from typing import Any, Sequence

import anneal

DECODERS = ("model", "decoder_model_merged", "decoder_with_past_model", "decoder_model")
# Parts of a model with an encoder, by optimum and by onnxruntime-genai's builder. The first set that a folder has is taken.
PARTS = (("encoder_model", "decoder_model_merged"), ("encoder_model", "decoder_model", "decoder_with_past_model"),
         ("encoder_model", "decoder_model"), ("encoder", "decoder"))
# The caches of a decoder, by onnxruntime-genai's builder and by optimum, with and without states of linear attention: the session
# keeps them.
CACHES = ({"past_key_values.*": "present.*", "past.*": "present.*"}, {"past_key_values.*": "present.*"})


class Failure(Exception):
    """An error that ends the command. Its text is for the user."""


def note(text: str) -> None:
    print(text, file=sys.stderr)


def model_files(path: Path) -> list[Path]:
    """One file, or an encoder and then its decoders."""
    if not path.exists():
        raise Failure(f"there is no file or folder {path}")
    if not path.is_dir():
        parts = parts_of(path.parent)
        if path.stem in [part.stem for part in parts]:
            names = ", ".join(part.name for part in parts)
            raise Failure(f"{path} is one of the files {names} of a model: give their folder {path.parent}")
        return [path]
    for folder in (path, path / "onnx"):
        if parts := parts_of(folder):
            return parts
        for name in DECODERS:
            if (folder / f"{name}.onnx").exists():
                return [folder / f"{name}.onnx"]
        for encoder in ("encoder_model", "encoder"):
            if file_of(folder, encoder):
                raise Failure(f"{folder} has an {encoder}, and no decoder: copy decoder_model_merged.onnx, or decoder_model.onnx and "
                              "decoder_with_past_model.onnx, beside it")
    found = sorted(path.glob("*.onnx"))
    if len(found) != 1:
        raise Failure(f"{path} has {len(found)} files *.onnx: name one of them")
    return found


def parts_of(folder: Path) -> list[Path]:
    for names in PARTS:
        files = [file_of(folder, name) for name in names]
        if all(files):
            return [file for file in files if file]
    return []


def file_of(folder: Path, name: str) -> Path | None:
    return next((folder / f"{name}{suffix}" for suffix in (".onnx", ".engine") if (folder / f"{name}{suffix}").exists()), None)


def load(files: list[Path], flags: argparse.Namespace) -> list[anneal.Engine]:
    """Engines of the files. --save writes the one that is built, or those of several files and the settings to a folder."""
    if len(files) == 1:
        return [load_one(files[0], flags.save, flags, CACHES)]
    if flags.save:
        if flags.save.exists() and not flags.save.is_dir():
            raise Failure(f"--save {flags.save}: the model has {len(files)} files, so --save names a folder for their engines")
        flags.save.mkdir(parents=True, exist_ok=True)
        if flags.save.resolve() in {file.parent.resolve() for file in files}:
            raise Failure(f"--save {flags.save} is the folder of the model: give another one for the engines")
        for folder in folders_of(files[0]):
            for beside in (*folder.glob("*.json"), *folder.glob("*.jinja")):
                shutil.copy(beside, flags.save)
    return [load_one(file, flags.save / f"{file.stem}.engine" if flags.save else None, flags) for file in files]


def load_one(path: Path, save: Path | None, flags: argparse.Namespace, states: Sequence[dict[str, str]] = ()) -> anneal.Engine:
    if path.suffix != ".onnx":
        return anneal.load(path, device=flags.device)
    if flags.device not in ("auto", "cpu"):
        raise Failure("a model is built for the CPU here: build an engine for the GPU with `anneal build --target`, and give its file")
    begin = time.perf_counter()
    engine = build_with_states(path, save, states, precision=flags.precision, weight_format=flags.weight_format)
    note(f"built {path} in {time.perf_counter() - begin:.1f} s" + (f", saved as {save}" if save else ""))
    return engine


def build_with_states(path: Path, save: Path | None, states: Sequence[dict[str, str]], **options: Any) -> anneal.Engine:
    """With the first of the states whose inputs and outputs the model has, or with none."""
    for each in states:
        try:
            return anneal.build(path, save, states=each, **options)
        except anneal.InvalidArgumentError as error:
            if "the model has no such" not in str(error):
                raise
    return anneal.build(path, save, **options)


def folders_of(file: Path) -> list[Path]:
    """The folders whose JSON files describe a model, the most specific last: a folder onnx is beside them."""
    return [file.parent.parent, file.parent] if file.parent.name == "onnx" else [file.parent]


def beside(file: Path, name: str) -> Path:
    """The file of this name that belongs to a model, whether it exists or not."""
    paths = [folder / name for folder in reversed(folders_of(file))]
    return next((path for path in paths if path.exists()), paths[0])


def read_json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise Failure(f"{path} is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise Failure(f"{path} is no JSON object")
    return found


def settings_of(file: Path) -> dict[str, Any]:
    """Settings from the JSON files beside a model, such as "eos_token_id" and "context_length"."""
    settings: dict[str, Any] = {}
    for name in ("config.json", "generation_config.json", "genai_config.json"):
        path = beside(file, name)
        if path.exists():
            found = read_json(path)
            settings.update(found.get("model", found) if name.startswith("genai") else found)
    return settings
