"""The layers whose times are taken, once: as graph texts for Anneal (docs/graph_text.md), as numbers for PyTorch.

A shape is a dict of `name`, `net`, `kind`, `dtype`, `batch` and the numbers of its kind. Sizes are those of ResNet-50
at 224 pixels, BERT-base at 128 tokens, ViT-B/16, a U-Net at 256 pixels, a YOLO-class detector at 640 pixels and
mobile networks.
"""

F16, BF16, I8, F32 = "f16", "bf16", "i8", "f32"
EVERY_BATCH = ((F16, 1), (F16, 8), (F16, 64))
ALL = EVERY_BATCH + ((BF16, 8), (I8, 8), (F32, 8))
HALF = EVERY_BATCH[:2]
ONE = ((F16, 8),)

# name: channels in, channels out, pixels, kernel, stride, groups, what follows the sums; types and batches
CONVS = {
    "resnet50": {
        "stem7x7_224": (3, 64, 224, 7, 2, 1, "relu", ((F16, 1), (F16, 8), (F32, 8))),
        "conv3x3_64_56": (64, 64, 56, 3, 1, 1, "relu", ALL),
        "conv3x3_256_14": (256, 256, 14, 3, 1, 1, "relu", HALF + ((I8, 8), (F16, 64))),
        "conv3x3_512_7": (512, 512, 7, 3, 1, 1, "relu", HALF),
        "conv3x3s2_128_56": (128, 128, 56, 3, 2, 1, "relu", ONE),
        "conv1x1_64_256_56": (64, 256, 56, 1, 1, 1, "residual", HALF + ((I8, 8),)),
        "conv1x1_1024_256_14": (1024, 256, 14, 1, 1, 1, "relu", HALF),
    },
    "yolo": {
        "stem3x3_640": (3, 32, 640, 3, 2, 1, "silu", ((F16, 1), (F16, 8))),
        "conv3x3_64_80": (64, 64, 80, 3, 1, 1, "silu", HALF + ((I8, 8),)),
        "conv1x1_256_128_40": (256, 128, 40, 1, 1, 1, "silu", ONE),
    },
    "unet": {
        "conv3x3_64_256": (64, 64, 256, 3, 1, 1, "relu", HALF),
        "conv3x3_512_256_32": (512, 256, 32, 3, 1, 1, "relu", ONE),
    },
    "mobile": {
        "depthwise3x3_144_56": (144, 144, 56, 3, 1, 144, "relu", HALF + ((F32, 8),)),
        "depthwise5x5_672_14": (672, 672, 14, 5, 1, 672, "relu", ONE),
        "grouped3x3_128_56": (128, 128, 56, 3, 1, 32, "relu", ONE),
    },
}

# name: rows of one picture or sentence, columns, depth, what follows
PRODUCTS = {
    "bert": {
        "qkv_2304": (128, 2304, 768, "bias", HALF),
        "out_768": (128, 768, 768, "residual", HALF),
        "up_3072": (128, 3072, 768, "gelu", ALL),
        "down_768": (128, 768, 3072, "residual", EVERY_BATCH),
    },
    "vit": {"up_3072": (197, 3072, 768, "gelu", ONE)},
    "large": {"square_4096": (4096, 4096, 4096, "none", ((F16, 1), (I8, 1)))},
    "resnet50": {"classifier_1000": (1, 1000, 2048, "bias", HALF)},
}

# name: kind, dims behind the batch, numbers of its kind, types and batches
OTHERS = {
    "bert": {
        "attention_128": ("attention", (12, 128, 64), {}, EVERY_BATCH),
        "softmax_128": ("softmax", (12, 128, 128), {"axis": 3}, ONE),
        "layer_norm_768": ("normalize", (128, 768), {"axes": [2]}, EVERY_BATCH),
    },
    "vit": {"attention_197": ("attention", (12, 197, 64), {}, HALF)},
    "unet": {
        "group_norm_64": ("normalize", (32, 2, 4096), {"axes": [2, 3]}, ONE),
        "concat_128": ("concat", (64, 128, 128), {"axis": 1}, ONE),
    },
    "resnet50": {
        "max_pool_112": ("pool", (64, 112, 112), {"kernel": 3, "stride": 2, "pad": 1}, ONE),
        "mean_2048_7": ("mean", (2048, 7, 7), {}, ONE),
        "add_relu_56": ("add_relu", (256, 56, 56), {}, ONE),
    },
    "yolo": {"silu_80": ("silu", (64, 80, 80), {}, ONE)},
    "layout": {"transpose_768": ("transpose", (768, 1024), {}, ((F16, 8), (F32, 8)))},
}


def all_shapes():
    shapes = []

    def add(net, name, kind, dtype, batch, **numbers):
        shapes.append({"name": f"{net}.{name}.{dtype}.b{batch}", "net": net, "kind": kind, "dtype": dtype,
                       "batch": batch, **numbers})

    for net, rows in CONVS.items():
        for name, (c, k, pixels, kernel, stride, groups, then, types) in rows.items():
            for dtype, batch in types:
                add(net, name, "conv", dtype, batch, c=c, k=k, pixels=pixels, kernel=kernel, stride=stride,
                    groups=groups, then=then)
    for net, rows in PRODUCTS.items():
        for name, (m, n, depth, then, types) in rows.items():
            for dtype, batch in types:
                add(net, name, "matmul", dtype, batch, m=m, n=n, depth=depth, then=then)
    for net, rows in OTHERS.items():
        for name, (kind, dims, numbers, types) in rows.items():
            for dtype, batch in types:
                add(net, name, kind, dtype, batch, dims=list(dims), **numbers)
    # The order of value, for a run that is cut: batch 8 of every layer, then one picture, then many.
    return sorted(shapes, key=lambda shape: ((8, 1, 64).index(shape["batch"]), shape["dtype"] != F16))


def small(shape):
    """The same layer at a size that the emulated device runs in a moment."""
    less = dict(shape, batch=1)
    if shape["kind"] == "conv":
        depthwise = shape["groups"] == shape["c"] > 1
        width = 16 if depthwise else min(shape["c"], 16)
        less.update(c=width, k=width if depthwise else min(shape["k"], 32), pixels=8,
                    groups=width if depthwise else min(shape["groups"], 2))
    elif shape["kind"] == "matmul":
        less.update(m=min(shape["m"], 20), n=64, depth=64)
    elif shape["kind"] == "attention":
        less.update(dims=[2, 20, 32])
    else:
        less["dims"] = [min(size, 16) for size in shape["dims"]]
    return less


def epilogue(shape, sums):
    """The program behind the sums, and constants that it reads: `b` for each column, `r` like the output."""
    dtype, then = shape["dtype"], shape["then"]
    value, inputs = "$0", []
    if dtype == I8:
        inputs.append(("s", "f32", "scalar"))
        value = "mul(f32($0),$1)"
    if then != "none":
        inputs.append(("b", "f32" if dtype == I8 else dtype, "columns"))
        value = f"add({value},${len(inputs)})"
    if then == "residual":
        inputs.append(("r", dtype, "like"))
        last = f"${len(inputs)}"
        value = f"add({value},{f'f32({last})' if dtype == I8 else last})"
    value = {"relu": "max({v},0f32)", "residual": "max({v},0f32)" if shape["kind"] == "conv" else "{v}", "silu": "mul({v},sigmoid({v}))",
             "gelu": "mul(mul({v},0.5f32),add(1f32,erf(mul({v},0.70710677f32))))"}.get(then, "{v}").replace("{v}", value)
    if dtype == I8:
        value = f"saturate_i8(rint({value}))"
    elif dtype in (F16, BF16):
        value = f"round_{dtype}({value})"
    types = ",".join([sums] + [each[1] for each in inputs])
    return f"({types})->({dtype}) {value}", inputs


def graph_of(shape):
    """One layer named y, and what it reads."""
    dtype, batch, kind = shape["dtype"], shape["batch"], shape["kind"]
    if kind in ("conv", "matmul"):
        return _product_graph(shape)
    dims = ",".join(map(str, [batch] + shape["dims"]))
    inputs, layer = [f"x: {dtype}[{dims}]"], ""
    constants = ""

    def rounded(value):
        return f"round_{dtype}({value})" if dtype in (F16, BF16) else value

    if kind == "attention":
        inputs = [f"{each}: {dtype}[{dims}]" for each in "qkv"]
        layer = 'Attention(q, k, v) score="(f32)->(f32) mul($0,0.125f32)"'
    elif kind == "softmax":
        layer = f"Softmax(x) axis={shape['axis']}"
    elif kind == "normalize":
        constants = "".join(f"  const {name}: {dtype}[{shape['dims'][-1]}] = random({seed})\n"
                            for name, seed in (("g", 1), ("h", 2)))
        axes = ",".join(map(str, shape["axes"]))
        layer = (f'Normalize(x; g, h) axes=[{axes}] epilogue="(f32,{dtype},{dtype})->({dtype}) '
                 f'{rounded("add($2,mul($0,$1))")}"')
    elif kind == "pool":
        k, s, p = shape["kernel"], shape["stride"], shape["pad"]
        layer = (f"Pool(x) kernel=[{k},{k}] strides=[{s},{s}] pads_begin=[{p},{p}] pads_end=[{p},{p}] "
                 "dilations=[1,1]")
    elif kind == "mean":
        layer = "Reduce(x, i64{2, 3}) kind=mean"
    elif kind == "transpose":
        layer = "Transpose(x) permutation=[0,2,1]"
    elif kind == "concat":
        inputs.append(f"z: {dtype}[{dims}]")
        layer = f"Concat(x, z) axis={shape['axis']}"
    elif kind == "add_relu":
        inputs.append(f"z: {dtype}[{dims}]")
        layer = f'Pointwise(x, z) program="({dtype},{dtype})->({dtype}) {rounded("max(add($0,$1),0f32)")}"'
    elif kind == "silu":
        layer = f'Pointwise(x) program="({dtype})->({dtype}) {rounded("mul($0,sigmoid($0))")}"'
    else:
        raise ValueError(f"no kind {kind}")
    return f"graph layer({', '.join(inputs)})\n{constants}  y = {layer}\n  return y\n"


def _product_graph(shape):
    dtype, batch = shape["dtype"], shape["batch"]
    program, inputs = epilogue(shape, "i32" if dtype == I8 else "f32")
    if shape["kind"] == "conv":
        c, k, size, taps, groups = (shape[key] for key in ("c", "k", "pixels", "kernel", "groups"))
        out = -(-size // shape["stride"])
        ports = [f"x: {dtype}[{batch},{c},{size},{size}]"]
        weights, columns = f"{dtype}[{k},{c // groups},{taps},{taps}]", f"{k},1,1"
        like = f"{batch},{k},{out},{out}"
        pad, stride = taps // 2, shape["stride"]
        op = (f"Conv(x, w; {{extra}}) strides=[{stride},{stride}] pads_begin=[{pad},{pad}] pads_end=[{pad},{pad}] "
              f"dilations=[1,1] groups={groups}")
    else:
        rows = shape["m"] * batch
        ports = [f"x: {dtype}[{rows},{shape['depth']}]"]
        weights, columns, like = f"{dtype}[{shape['depth']},{shape['n']}]", str(shape["n"]), f"{rows},{shape['n']}"
        op = "MatMul(x, w; {extra})"
    constants = [f"  const w: {weights} = random(1)\n"]
    for name, kind, what in inputs:
        if what == "like":
            ports.append(f"{name}: {kind}[{like}]")
        elif what == "scalar":
            constants.append(f"  const {name}: {kind}[] = {{0.01}}\n")
        else:
            constants.append(f"  const {name}: {kind}[{columns}] = random(2)\n")
    op = op.replace("; {extra}", "; " + ", ".join(each[0] for each in inputs) if inputs else "")
    tail = f' epilogue="{program}"'
    if shape["then"] == "none" and dtype != I8:
        tail = ""
    return f"graph layer({', '.join(ports)})\n{''.join(constants)}  y = {op}{tail}\n  return y\n"


def flops_of(shape):
    """Multiplications and additions, a multiplication with an addition counted as two."""
    batch = shape["batch"]
    if shape["kind"] == "conv":
        out = -(-shape["pixels"] // shape["stride"])
        return 2 * batch * shape["k"] * out * out * shape["c"] // shape["groups"] * shape["kernel"] ** 2
    if shape["kind"] == "matmul":
        return 2 * batch * shape["m"] * shape["n"] * shape["depth"]
    if shape["kind"] == "attention":
        heads, tokens, depth = shape["dims"]
        return 4 * batch * heads * tokens * tokens * depth
    return 0
