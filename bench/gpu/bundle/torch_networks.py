"""The networks of made_networks.py as PyTorch modules: a line of JSON for each batch size.

    torch_networks.py NAME cuda:0 1,8,64 [--compile] [--few]

In f16, channels last, cuDNN's benchmark on. device_ms is a CUDA graph's replay; the latency also has the copies of f32
inputs from pinned host memory and of f32 outputs to it. --compile: torch.compile(mode="max-autotune"), which uses CUDA
graphs by itself.
"""

import statistics
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

from bundle.torch_timing import on_card, played, recorded, tell

SECONDS, FEWEST, MOST = 0.4, 7, 300


def normed(c, k, kernel, stride=1, act=None):
    layers = [nn.Conv2d(c, k, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(k)]
    return nn.Sequential(*layers, *([act()] if act else []))


class Bottleneck(nn.Module):
    def __init__(self, c, width, stride):
        super().__init__()
        self.layers = nn.Sequential(normed(c, width, 1, act=nn.ReLU), normed(width, width, 3, stride, nn.ReLU),
                                    normed(width, 4 * width, 1))
        self.short = normed(c, 4 * width, 1, stride) if stride != 1 or c != 4 * width else nn.Identity()

    def forward(self, x):
        return F.relu(self.layers(x) + self.short(x))


def resnet50(few):
    layers, c = [normed(3, 64, 7, 2, nn.ReLU), nn.MaxPool2d(3, 2, 1)], 64
    for width, blocks, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for i in range(blocks):
            layers.append(Bottleneck(c, width, stride if i == 0 else 1))
            c = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000)), [(3, 224, 224)]


class Encoder(nn.Module):
    """One layer of a transformer; first: normalization stands before what it serves, as in ViT."""

    def __init__(self, width, heads, first):
        super().__init__()
        self.heads, self.first = heads, first
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))

    def attend(self, x, mask):
        n, tokens, width = x.shape
        q, k, v = self.qkv(x).view(n, tokens, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.out(y.transpose(1, 2).reshape(n, tokens, width))

    def forward(self, x, mask=None):
        if self.first:
            x = x + self.attend(self.norms[0](x), mask)
            return x + self.down(F.gelu(self.up(self.norms[1](x))))
        x = self.norms[0](x + self.attend(x, mask))
        return self.norms[1](x + self.down(F.gelu(self.up(x))))


class Bert(nn.Module):
    def __init__(self, layers, width, heads):
        super().__init__()
        self.layers = nn.ModuleList(Encoder(width, heads, False) for _ in range(layers))

    def forward(self, x, mask):
        for layer in self.layers:
            x = layer(x, mask)
        return x


def bert_base(few):
    tokens, width, heads, layers = (8, 32, 2, 1) if few else (128, 768, 12, 12)
    return Bert(layers, width, heads), [(tokens, width), (1, 1, tokens)]


class VisionTransformer(nn.Module):
    def __init__(self, layers=12, width=768, heads=12, patch=16, size=224):
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.token = nn.Parameter(torch.randn(1, 1, width))
        self.places = nn.Parameter(torch.randn(1, (size // patch) ** 2 + 1, width))
        self.layers = nn.Sequential(*(Encoder(width, heads, True) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 1000)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat((self.token.expand(x.shape[0], -1, -1), x), 1) + self.places
        return self.head(self.norm(self.layers(x))[:, 0])


def vit_b16(few):
    return VisionTransformer(), [(3, 224, 224)]


class UNet(nn.Module):
    def __init__(self, base):
        super().__init__()

        def twice(c, k):
            return nn.Sequential(normed(c, k, 3, act=nn.ReLU), normed(k, k, 3, act=nn.ReLU))

        self.down = nn.ModuleList(twice(3 if i == 0 else base << i - 1, base << i) for i in range(4))
        self.middle = twice(base << 3, base << 4)
        self.doubled = nn.ModuleList(nn.ConvTranspose2d(base << i + 1, base << i, 2, 2) for i in range(4))
        self.up = nn.ModuleList(twice(base << i + 1, base << i) for i in range(4))
        self.last = nn.Conv2d(base, 2, 1)

    def forward(self, x):
        kept = []
        for layer in self.down:
            kept.append(layer(x))
            x = F.max_pool2d(kept[-1], 2)
        x = self.middle(x)
        for i in reversed(range(4)):
            x = self.up[i](torch.cat((kept[i], self.doubled[i](x)), 1))
        return self.last(x)


def unet(few):
    return (UNet(4), [(3, 16, 16)]) if few else (UNet(64), [(3, 256, 256)])


class Stage(nn.Module):
    def __init__(self, c, k, blocks, residual=True):
        super().__init__()
        half, self.residual = k // 2, residual
        self.first = nn.ModuleList(normed(c, half, 1, act=nn.SiLU) for _ in range(2))
        self.blocks = nn.ModuleList(nn.Sequential(normed(half, half, 3, act=nn.SiLU), normed(half, half, 3, act=nn.SiLU))
                                    for _ in range(blocks))
        self.last = normed((2 + blocks) * half, k, 1, act=nn.SiLU)

    def forward(self, x):
        parts = [first(x) for first in self.first]
        for block in self.blocks:
            y = block(parts[-1])
            parts.append(y + parts[-1] if self.residual else y)
        return self.last(torch.cat(parts, 1))


class Yolo(nn.Module):
    def __init__(self, b=32, d=2, classes=80):
        super().__init__()
        conv = lambda c, k, kernel, stride=1: normed(c, k, kernel, stride, nn.SiLU)  # noqa: E731
        self.start = nn.Sequential(conv(3, b, 3, 2), conv(b, 2 * b, 3, 2), Stage(2 * b, 2 * b, d))
        self.small = nn.Sequential(conv(2 * b, 4 * b, 3, 2), Stage(4 * b, 4 * b, 2 * d))
        self.middle = nn.Sequential(conv(4 * b, 8 * b, 3, 2), Stage(8 * b, 8 * b, 2 * d))
        self.large = nn.Sequential(conv(8 * b, 16 * b, 3, 2), Stage(16 * b, 16 * b, d))
        self.before, self.after = conv(16 * b, 8 * b, 1), conv(32 * b, 16 * b, 1)
        self.up = nn.ModuleList((Stage(24 * b, 8 * b, d, False), Stage(12 * b, 4 * b, d, False)))
        self.steps = nn.ModuleList((conv(4 * b, 4 * b, 3, 2), conv(8 * b, 8 * b, 3, 2)))
        self.down = nn.ModuleList((Stage(12 * b, 8 * b, d, False), Stage(24 * b, 16 * b, d, False)))
        self.heads = nn.ModuleList(nn.ModuleList(nn.Sequential(
            conv(c, width, 3), conv(width, width, 3), nn.Conv2d(width, k, 1))
            for width, k in ((2 * b, 64), (4 * b, classes))) for c in (4 * b, 8 * b, 16 * b))

    def forward(self, x):
        small = self.small(self.start(x))
        middle = self.middle(small)
        pooled = [self.before(self.large(middle))]
        for _ in range(3):
            pooled.append(F.max_pool2d(pooled[-1], 5, 1, 2))
        large = self.after(torch.cat(pooled, 1))
        middle = self.up[0](torch.cat((F.interpolate(large, scale_factor=2), middle), 1))
        small = self.up[1](torch.cat((F.interpolate(middle, scale_factor=2), small), 1))
        middle = self.down[0](torch.cat((self.steps[0](small), middle), 1))
        large = self.down[1](torch.cat((self.steps[1](middle), large), 1))
        return torch.cat([torch.cat([head(each) for head in heads], 1).flatten(2)
                          for each, heads in zip((small, middle, large), self.heads)], 2)


def yolo(few):
    return Yolo(), [(3, 640, 640)]


NETWORKS = {each.__name__: each for each in (resnet50, bert_base, vit_b16, unet, yolo)}


def timed(run, seconds):
    """Milliseconds of runs by the wall clock; each waits for its end."""
    times, begin = [], time.perf_counter()
    while len(times) < FEWEST or time.perf_counter() - begin < seconds and len(times) < MOST:
        start = time.perf_counter()
        run()
        times.append(1e3 * (time.perf_counter() - start))
    return {"median": statistics.median(times), "min": min(times), "max": max(times), "runs": len(times)}


def measure(model, shapes, batch, device, compiled):
    host = [torch.rand(batch, *shape) for shape in shapes]
    if not on_card(device):
        return {"latency_ms": timed(lambda: model(*host), 0.1), "method": "eager on the CPU"}
    host = [each.pin_memory() for each in host]
    # PyTorch converts between types on the CPU when it copies between it and a card, so f32 is what is copied.
    arrived = [each.to(device) for each in host]
    card = [each.half() for each in arrived]
    if card[0].dim() == 4:
        card[0] = card[0].to(memory_format=torch.channels_last)
    if compiled:
        for _ in range(4):
            result = model(*card)
        torch.cuda.synchronize()
        replay = lambda: model(*card)  # noqa: E731
    else:
        kept = {}

        def once():
            kept["result"] = model(*card)

        replay = recorded(once).replay
        result = kept["result"]
    back = torch.empty(result.shape, dtype=torch.float32).pin_memory()

    def whole():
        for to, between, source in zip(card, arrived, host):
            between.copy_(source, non_blocking=True)
            to.copy_(between)
        given = replay()
        back.copy_((given if compiled else result).float(), non_blocking=True)
        torch.cuda.synchronize()

    whole()
    device_times = sorted(1e3 * played(replay) for _ in range(15))
    return {"device_ms": device_times[7], "latency_ms": timed(whole, SECONDS),
            "method": "torch.compile, max-autotune" if compiled else "eager modules in a CUDA graph",
            "memory_bytes": torch.cuda.max_memory_allocated()}


def main():
    name, device, batches = sys.argv[1:4]
    compiled, few = "--compile" in sys.argv, "--few" in sys.argv
    torch.manual_seed(1)
    torch.backends.cudnn.benchmark = True
    model, shapes = NETWORKS[name](few)
    model = model.eval()
    if on_card(device):
        torch.cuda.set_device(device)
        model = model.to(device).half().to(memory_format=torch.channels_last)
    for batch in map(int, batches.split(",")):
        if compiled:
            torch._dynamo.reset()
            runs = torch.compile(model, mode="max-autotune")
        else:
            runs = model
        try:
            begin = time.perf_counter()
            item = measure(runs, shapes, batch, device, compiled)
            tell({"batch": batch, "dtype": "f16" if on_card(device) else "f32", **item,
                  "seconds": time.perf_counter() - begin})
        except Exception as error:  # a batch that does not fit must not cost the others
            tell({"batch": batch, "error": f"{type(error).__name__}: {error}"[:800]})
        if on_card(device):
            torch.cuda.empty_cache()


if __name__ == "__main__":
    with torch.no_grad():
        main()
