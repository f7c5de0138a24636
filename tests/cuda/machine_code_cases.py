"""Layers whose machine code is looked at, as texts of graphs (docs/graph_text.md): those that no network of the GPU bundle has.

Grouped and depthwise convolutions, bf16, f32, one row, a large square product, and the layers of machine_code_layers.py.
"""

from machine_code_layers import LAYERS

RELU = "max({0},0f32)"
SILU = "mul({0},sigmoid({0}))"


def stored(value, dtype):
    """A value of f32 as an element of the output."""
    if dtype == "f32":
        return value
    return f"saturate_{dtype}(rint({value}))" if dtype in ("i8", "u8") else f"round_{dtype}({value})"


def conv(x, filters, kernel, stride=1, groups=1, dtype="f16", function=RELU, residual=False, pad=None):
    """A convolution with bias, and an activation; of bytes with a scale per channel and rounding to bytes."""
    n, c, h, w = x
    pad = kernel // 2 if pad is None else pad
    out = [n, filters, (h + 2 * pad - kernel) // stride + 1, (w + 2 * pad - kernel) // stride + 1]
    is_bytes = dtype in ("i8", "u8")
    per_channel = f"const b: {'i32' if is_bytes else dtype}[{filters},1,1] = random(2)\n"
    operands, inputs, types = "b", [f"x: {dtype}{list(x)}"], "(i32,i32,f32" if is_bytes else f"(f32,{dtype}"
    value = "f32(add($0,$1))" if is_bytes else "add($0,$1)"
    if is_bytes:
        per_channel += f"const scale: f32[{filters},1,1] = random(3)\n"
        operands += ", scale"
        value = f"mul({value},$2)"
    if residual:
        operands += ", r"
        inputs.append(f"r: {dtype}{out}")
        types += f",{dtype}"
        value = f"add({value},{'f32($3)' if is_bytes else '$2'})"
    # A register that is used more than once has a name.
    uses = function.count("{0}")
    body = function.format("%0") if uses > 1 else function.format(value)
    let = f"%0={value}; " if uses > 1 else ""
    store = stored(body, dtype)
    return (f"graph layer({', '.join(inputs)})\n"
            f"const w: {dtype}[{filters},{c // groups},{kernel},{kernel}] = random(1)\n{per_channel}"
            f"y = Conv(x, w; {operands}) strides=[{stride},{stride}] pads_begin=[{pad},{pad}] "
            f"pads_end=[{pad},{pad}] dilations=[1,1] groups={groups} epilogue=\"{types})->({dtype}) {let}{store}\"\n"
            "return y\n")


def matmul(m, k, n, dtype="f16", function="{0}", residual=False):
    is_bytes = dtype in ("i8", "u8")
    operands, inputs = "b", [f"x: {dtype}[{m},{k}]"]
    per_column = f"const b: {'i32' if is_bytes else dtype}[{n}] = random(2)\n"
    types, value = ("(i32,i32,f32", "mul(f32(add($0,$1)),$2)") if is_bytes else (f"(f32,{dtype}", "add($0,$1)")
    if is_bytes:
        per_column += f"const scale: f32[{n}] = random(3)\n"
        operands += ", scale"
    if residual:
        operands += ", r"
        inputs.append(f"r: {dtype}[{m},{n}]")
        types, value = types + f",{dtype}", f"add({value},$2)"
    uses = function.count("{0}")
    body = function.format("%0") if uses > 1 else function.format(value)
    let = f"%0={value}; " if uses > 1 else ""
    store = stored(body, dtype)
    return (f"graph layer({', '.join(inputs)})\nconst w: {dtype}[{k},{n}] = random(1)\n{per_column}"
            f"y = MatMul(x, w; {operands}) epilogue=\"{types})->({dtype}) {let}{store}\"\nreturn y\n")


CASES = {
    "conv f16 8x12x208x208, 16 of 3x3, SiLU": conv((8, 12, 208, 208), 16, 3, function=SILU),
    "conv f16 8x256x28x28, 256 of 3x3 in 32 groups, ReLU": conv((8, 256, 28, 28), 256, 3, groups=32),
    "conv f16 8x144x56x56, depthwise 3x3, ReLU": conv((8, 144, 56, 56), 144, 3, groups=144),
    "conv bf16 8x64x56x56, 64 of 3x3, ReLU": conv((8, 64, 56, 56), 64, 3, dtype="bf16"),
    "conv i8 8x144x56x56, depthwise 3x3, ReLU": conv((8, 144, 56, 56), 144, 3, groups=144, dtype="i8"),
    "matmul f16 4096x4096x4096": matmul(4096, 4096, 4096),
    "matmul bf16 1024x3072x768": matmul(1024, 3072, 768, dtype="bf16"),
    "matmul f16 1x2048x1000": matmul(1, 2048, 1000),
    "matmul f32 512x768x3072": matmul(512, 768, 3072, dtype="f32"),
    **LAYERS,
}
