#!/usr/bin/env python3
"""Trains a small language model of bytes on the pages of docs/: byte_model.py MODEL.onnx [--steps 2000]

Four layers of 192 numbers, four heads, 1.9 million parameters. It learns the first nine tenths of each page; bench/perplexity.py
measures it on the others. Needs torch and onnxscript.
"""

import argparse
import time
from pathlib import Path

import torch
from torch import nn

from perplexity import LENGTH, texts

WIDTH, HEADS, LAYERS, BATCH = 192, 4, 4, 8


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        batch, length, _ = x.shape
        q, k, v = self.qkv(self.before(x)).reshape(batch, length, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        attended = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.down(nn.functional.gelu(self.up(self.between(x))))


class ByteModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.bytes, self.places = nn.Embedding(256, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.Sequential(*[Block() for _ in range(LAYERS)])
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 256)

    def forward(self, input_ids):
        return self.head(self.norm(self.blocks(self.bytes(input_ids) + self.places.weight)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--steps", type=int, default=2000)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    text = torch.frombuffer(bytearray(texts()[0]), dtype=torch.uint8).long()
    model = ByteModel()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-3, total_steps=arguments.steps)
    begin = time.time()
    for step in range(arguments.steps):
        starts = torch.randint(len(text) - LENGTH - 1, (BATCH,))
        rows = torch.stack([text[start:start + LENGTH + 1] for start in starts])
        loss = nn.functional.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 100 == 0:
            print(f"step {step}: loss {loss.item():.3f}, {time.time() - begin:.0f} s", flush=True)
    model.eval()
    torch.onnx.export(model, (torch.zeros(2, LENGTH, dtype=torch.long),), arguments.model, input_names=["input_ids"],
                      output_names=["logits"], dynamic_shapes=({0: "batch"},), dynamo=True, external_data=False)


if __name__ == "__main__":
    main()
