"""Labelled pictures of glyphs, rendered from free fonts, then warped and spoilt.

The classes are the digits, the capitals and those small letters whose shape differs from
their capital. A glyph is always scaled to fill the same box, so size tells nothing.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

CLASSES = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabdefghnqrt"
SIDE = 32

# Pictures are warped at twice their final side and averaged down, which keeps edges smooth.
CANVAS = 2 * SIDE
GLYPH_BOX = 44
RENDER_SIZE = 128

TRAINING_FONTS = (
    "Arimo-Regular.ttf", "Arimo-BoldItalic.ttf",
    "Caladea-Regular.ttf", "Caladea-Bold.ttf",
    "Carlito-Regular.ttf", "Carlito-Italic.ttf",
    "Comfortaa-Regular.ttf", "Comfortaa-Bold.ttf",
    "Cousine-Regular.ttf", "Cousine-Bold.ttf",
    "DejaVuSans.ttf", "DejaVuSans-Bold.ttf",
    "DejaVuSansMono.ttf", "DejaVuSerif.ttf", "DejaVuSerif-Bold.ttf",
    "Dosis-Medium.otf", "Dosis-ExtraBold.otf",
    "LinLibertine_R.otf", "LinLibertine_RI.otf",
    "Lato-Light.ttf", "Lato-Black.ttf",
    "OpenSans-Regular.ttf", "OpenSans-CondBold.ttf",
    "Roboto-Regular.ttf", "RobotoCondensed-BoldItalic.ttf",
    "Tinos-Regular.ttf", "Tinos-Bold.ttf", "Tinos-Italic.ttf",
)

# Whole families that training never sees.
TEST_FONTS = (
    "Cabin-Regular.otf", "Cabin-BoldItalic.otf",
    "ComicNeue-Regular.otf", "ComicNeue-Bold.otf",
    "Courier Prime.otf", "Courier Prime Bold.otf",
    "Inconsolata.otf",
    "Play-Bold.ttf",
    "GFSDidot.otf", "GFSDidotBoldItalic.otf",
)


def find_font(root: Path, name: str) -> Path:
    """The path of the font file `name` somewhere under `root`."""
    found = sorted(root.rglob(name))
    if not found:
        raise FileNotFoundError(f"no font {name} under {root}: see README.md for its package")
    return found[0]


def render_glyph(font: ImageFont.FreeTypeFont, character: str) -> Tensor:
    """One character in white on black, its box centred on the canvas, values 0 to 1."""
    sheet = Image.new("L", (3 * RENDER_SIZE, 3 * RENDER_SIZE), 0)
    ImageDraw.Draw(sheet).text((RENDER_SIZE, RENDER_SIZE), character, fill=255, font=font)
    glyph = sheet.crop(sheet.getbbox())
    scale = GLYPH_BOX / max(glyph.size)
    width, height = (max(1, round(edge * scale)) for edge in glyph.size)
    canvas = Image.new("L", (CANVAS, CANVAS), 0)
    canvas.paste(
        glyph.resize((width, height), Image.Resampling.BOX),
        ((CANVAS - width) // 2, (CANVAS - height) // 2),
    )
    return torch.from_numpy(np.array(canvas, dtype=np.float32) / 255)


def render_bank(root: Path, names: tuple[str, ...]) -> Tensor:
    """Every class in every named font: f32[fonts, classes, CANVAS, CANVAS]."""
    fonts = [
        ImageFont.truetype(find_font(root, name), RENDER_SIZE, layout_engine=ImageFont.Layout.BASIC)
        for name in names
    ]
    return torch.stack(
        [torch.stack([render_glyph(font, character) for character in CLASSES]) for font in fonts]
    )


class Spoiler:
    """Draws pictures from a bank of clean glyphs; the seed alone decides what comes."""

    def __init__(self, bank: Tensor, seed: int) -> None:
        self.bank = bank
        self.generator = torch.Generator().manual_seed(seed)

    def draw(self, labels: Tensor) -> Tensor:
        """A spoilt picture for each label: u8[labels, 1, SIDE, SIDE]."""
        fonts = torch.randint(len(self.bank), labels.shape, generator=self.generator)
        pictures = self.bank[fonts, labels].unsqueeze(1)
        pictures = self._warp(pictures)
        pictures = self._occlude(pictures)
        pictures = F.avg_pool2d(pictures, CANVAS // SIDE)
        pictures = self._blur(pictures)
        pictures = self._expose(pictures)
        return (pictures * 255).round().clamp(0, 255).to(torch.uint8)

    def random_labels(self, count: int) -> Tensor:
        return torch.randint(len(CLASSES), (count,), generator=self.generator)

    def _uniform(self, count: int, low: float, high: float) -> Tensor:
        return torch.rand(count, generator=self.generator) * (high - low) + low

    def _normal(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self.generator)

    def _warp(self, pictures: Tensor) -> Tensor:
        """Rotates, shears, scales and shifts, then bends by a smooth random field."""
        count = len(pictures)
        grid = F.affine_grid(self._affine(count), list(pictures.shape), align_corners=False)
        bend = F.interpolate(
            self._normal(count, 2, 5, 5) * self._uniform(count, 0.02, 0.10).view(-1, 1, 1, 1),
            size=(CANVAS, CANVAS), mode="bicubic", align_corners=True,
        )
        return F.grid_sample(pictures, grid + bend.permute(0, 2, 3, 1), align_corners=False)

    def _affine(self, count: int) -> Tensor:
        angle = self._uniform(count, -15, 15) * math.pi / 180
        shear = self._uniform(count, -0.3, 0.3)
        across = self._uniform(count, 0.75, 1.2)
        down = self._uniform(count, 0.75, 1.2)
        shift = self._uniform(2 * count, -0.12, 0.12).view(2, count)
        cosine, sine = angle.cos(), angle.sin()
        first = torch.stack([across * cosine, across * (shear * cosine - sine), shift[0]], 1)
        second = torch.stack([down * sine, down * (shear * sine + cosine), shift[1]], 1)
        return torch.stack([first, second], 1)

    def _occlude(self, pictures: Tensor) -> Tensor:
        """Wipes out a straight band across some pictures and draws one across others."""
        count = len(pictures)
        angle = self._uniform(count, 0, math.pi).view(-1, 1, 1)
        offset = self._uniform(count, -0.5, 0.5).view(-1, 1, 1)
        half_width = self._uniform(count, 0.02, 0.10).view(-1, 1, 1)
        kind = self._uniform(count, 0, 1).view(-1, 1, 1, 1)
        axis = torch.linspace(-1, 1, CANVAS)
        distance = axis.view(1, 1, -1) * angle.cos() + axis.view(1, -1, 1) * angle.sin() - offset
        band = (distance.abs() < half_width).unsqueeze(1)
        pictures = pictures.masked_fill(band & (kind < 0.35), 0.0)
        return pictures.masked_fill(band & (kind > 0.75), 1.0)

    def _blur(self, pictures: Tensor) -> Tensor:
        amount = self._uniform(len(pictures), 0, 1).view(-1, 1, 1, 1)
        soft = F.avg_pool2d(F.pad(pictures, (1, 1, 1, 1)), 3, stride=1)
        return pictures.lerp(soft, amount)

    def _expose(self, pictures: Tensor) -> Tensor:
        """Sets dark and light levels, then adds grain."""
        count = len(pictures)
        dark = self._uniform(count, 0.0, 0.25).view(-1, 1, 1, 1)
        light = self._uniform(count, 0.6, 1.0).view(-1, 1, 1, 1)
        grain = self._uniform(count, 0.02, 0.13).view(-1, 1, 1, 1)
        return dark + pictures * (light - dark) + grain * self._normal(*pictures.shape)


def write_idx(path: Path, values: Tensor) -> None:
    """Writes bytes as an idx file: two zeros, type 8, the rank, big-endian extents, data."""
    header = bytes([0, 0, 8, values.dim()]) + np.array(values.shape, dtype=">u4").tobytes()
    path.write_bytes(header + values.contiguous().numpy().tobytes())
