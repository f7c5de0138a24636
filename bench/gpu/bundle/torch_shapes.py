"""The layers of shapes.py in PyTorch: a line of JSON to standard output for each shape that standard input gives.

    torch_shapes.py cuda:0 <SHAPES

Layers are written as a user writes them: one function after another, channels last, cuDNN's benchmark on. Int8 layers
are compared with f16, since PyTorch has no int8 convolution on a GPU.
"""

import json
import sys

import torch
import torch.nn.functional as F

from bundle.torch_timing import LAUNCHES, on_card, tell, time_calls

DTYPES = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32, "i8": torch.float16}


def normal(dims, dtype, device):
    return torch.randn(dims, device=device, dtype=torch.float32).to(dtype)


def then(shape, y, bias_was_added, residual):
    what = shape["then"]
    if what == "residual":
        y = y + residual
        return F.relu(y) if shape["kind"] == "conv" else y
    return {"relu": F.relu, "silu": F.silu, "gelu": F.gelu}.get(what, lambda value: value)(y)


def conv(shape, dtype, device):
    c, k, size, groups = shape["c"], shape["k"], shape["pixels"], shape["groups"]
    last = torch.channels_last
    x = normal((shape["batch"], c, size, size), dtype, device).to(memory_format=last)
    w = normal((k, c // groups, shape["kernel"], shape["kernel"]), dtype, device).to(memory_format=last)
    b = normal((k,), dtype, device)
    out = -(-size // shape["stride"])
    r = normal((shape["batch"], k, out, out), dtype, device).to(memory_format=last) \
        if shape["then"] == "residual" else None
    return lambda: then(shape, F.conv2d(x, w, b, shape["stride"], shape["kernel"] // 2, 1, groups), True, r), (x, w, r)


def matmul(shape, dtype, device):
    rows = shape["batch"] * shape["m"]
    x, w = normal((rows, shape["depth"]), dtype, device), normal((shape["n"], shape["depth"]), dtype, device)
    b = normal((shape["n"],), dtype, device) if shape["then"] != "none" else None
    r = normal((rows, shape["n"]), dtype, device) if shape["then"] == "residual" else None
    return lambda: then(shape, F.linear(x, w, b), True, r), (x, w, r)


def attention(shape, dtype, device):
    q, k, v = (normal([shape["batch"]] + shape["dims"], dtype, device) for _ in range(3))
    return lambda: F.scaled_dot_product_attention(q, k, v, scale=0.125), (q, k, v)


def normalize(shape, dtype, device):
    x = normal([shape["batch"]] + shape["dims"], dtype, device)
    if len(shape["axes"]) == 1:
        g, h = (normal(shape["dims"][-1:], dtype, device) for _ in range(2))
        return lambda: F.layer_norm(x, shape["dims"][-1:], g, h), (x,)
    groups, each, pixels = shape["dims"]
    pictures = x.view(shape["batch"], groups * each, pixels)
    g, h = (normal((groups * each,), dtype, device) for _ in range(2))
    return lambda: F.group_norm(pictures, groups, g, h), (x,)


def other(shape, dtype, device):
    kind, dims = shape["kind"], [shape["batch"]] + shape["dims"]
    x = normal(dims, dtype, device)
    z = normal(dims, dtype, device) if kind in ("concat", "add_relu") else None
    calls = {"softmax": lambda: F.softmax(x, dim=shape.get("axis")),
             "pool": lambda: F.max_pool2d(x, shape.get("kernel"), shape.get("stride"), shape.get("pad")),
             "mean": lambda: x.mean((2, 3), keepdim=True), "transpose": lambda: x.transpose(1, 2).contiguous(),
             "concat": lambda: torch.cat((x, z), dim=shape.get("axis")), "add_relu": lambda: F.relu(x + z),
             "silu": lambda: F.silu(x)}
    return calls[kind], (x, z)


KINDS = {"conv": conv, "matmul": matmul, "attention": attention, "normalize": normalize}


def measure(shape, device):
    dtype = DTYPES[shape["dtype"]]
    make = KINDS.get(shape["kind"], other)
    call, tensors = make(shape, dtype, device)
    calls, result = [call], call()
    each = sum(tensor.numel() * tensor.element_size() for tensor in (*tensors, result) if tensor is not None)
    total, limit = each, 0
    if on_card(device):
        limit = 3 * getattr(torch.cuda.get_device_properties(device), "L2_cache_size", 64 << 20)
    while total < limit and len(calls) < LAUNCHES:
        calls.append(make(shape, dtype, device)[0])
        total += each
    timing = time_calls(calls, device)
    timing.update(name=shape["name"], dtype=str(dtype).removeprefix("torch."), operand_sets=len(calls),
                  operand_bytes=total)
    if shape["dtype"] == "i8":
        timing["compared_with"] = "f16: PyTorch has no such int8 layer"
    return timing


def main():
    device = sys.argv[1]
    torch.manual_seed(1)
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = False  # f32 is compared with f32
    torch.backends.cuda.matmul.allow_tf32 = False
    if on_card(device):
        torch.cuda.set_device(device)
    tell({"torch": torch.__version__, "cudnn": torch.backends.cudnn.version() if on_card(device) else None,
          "device": torch.cuda.get_device_name() if on_card(device) else "cpu"})
    for line in sys.stdin:
        shape = json.loads(line)
        tell({"begins": shape["name"]})
        try:
            tell(measure(shape, device))
        except Exception as error:  # a shape that does not run must not cost the others
            tell({"name": shape["name"], "error": f"{type(error).__name__}: {error}"[:800]})
        if on_card(device):
            torch.cuda.empty_cache()


if __name__ == "__main__":
    with torch.no_grad():
        main()
