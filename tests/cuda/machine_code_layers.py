"""Layers of other kinds than convolutions and plain products, as texts of graphs: those of machine_code_cases.py.

Sizes are those of models that are in use.
"""


def layer(inputs, *lines):
    """A graph of these lines, whose outputs are those of the last one."""
    return f"graph layer({inputs})\n" + "".join(f"{line}\n" for line in lines) + f"return {lines[-1].split(' = ')[0]}\n"


def coded_matmul(x, n, encoding, block, zeros=False):
    """A product by weights in codes, with a scale for each block of the depth."""
    dtype, rows, depth = x
    codes = f"u8[{n},{depth // {'u4': 2, 'e4m3': 1}[encoding]}]"
    points = f"const z: u8[{n},{depth // block}] = random(3)"
    return layer(f"x: {dtype}[{rows},{depth}]", f"const w: {codes} = random(1)", f"const s: f32[{n},{depth // block}] = random(2)",
                 *([points] if zeros else []),
                 f"y = MatMul(x, w, _, {'z' if zeros else '_'}, s) transpose_b=true b_encoding={encoding}")


def recurrent(kind, x, hidden, *fields, dtype="f32"):
    """A layer of [steps, batch, input] with biases; outputs are all states and the last one."""
    steps, batch, depth = x
    rows = {"lstm": 4, "gru": 3}[kind] * hidden
    outputs = "y, h, c" if kind == "lstm" else "y, h"
    return layer(f"x: {dtype}[{steps},{batch},{depth}]", f"const w: {dtype}[1,{rows},{depth}] = random(1)",
                 f"const r: {dtype}[1,{rows},{hidden}] = random(2)", f"const b: {dtype}[1,{2 * rows}] = random(3)",
                 f"{outputs} = Recurrent(x, w, r, b) {' '.join([f'kind={kind}', *fields])}")


def attention(dtype, heads, groups, queries, keys, width, score, more=""):
    """Heads of q, of which `groups` have keys and values of their own; the program of a score; further inputs."""
    of_k = f"{dtype}[1,{groups},{keys},{width}]"
    names = "".join(f", {each.split(':')[0]}" for each in more.split(", ") if each)
    return layer(f"q: {dtype}[1,{heads},{queries},{width}], k: {of_k}, v: {of_k}" + (f", {more}" if more else ""),
                 f"y = Attention(q, k, v{names}) score=\"{score}\"")


def linear_attention(length):
    """16 heads with 128x128 numbers of state, a decay and a step for each."""
    rows = f"f32[1,{length},16,128]"
    return layer(f"q: {rows}, k: {rows}, v: {rows}, s: f32[1,16,128,128], d: f32[1,{length},16,1], b: f32[1,{length},16]",
                 "y, n = LinearAttention(q, k, v, s, d, b) scale=0.088388346")


def behind_conv(x, line):
    """The layer has c, of the shape of x and with channels last, from a convolution of 1x1."""
    axes = "strides=[1,1] pads_begin=[0,0] pads_end=[0,0] dilations=[1,1]"
    return layer(f"x: f16{x}", f"const w: f16[{x[1]},{x[1]},1,1] = random(1)", f"c = Conv(x, w) {axes}", line)


SCALE = "(f32)->(f32) mul($0,0.125f32)"
CAUSAL = "(f32)->(f32) select(lt(index(2),index(3)),-inff32,mul($0,0.125f32))"
MASKED = "(f32,f16)->(f32) add(mul($0,0.088388346f32),$1)"
NORMAL = ("(bool)->(f32) %0=add(mul(add(u64(index(0)),1u64),11400714819323198485u64),1077936128u64); "
          "%1=mul(bitxor(%0,shr(%0,30u64)),13787848793156543929u64); %2=mul(bitxor(%1,shr(%1,27u64)),10723151780598845931u64); "
          "%3=bitxor(%2,shr(%2,31u64)); mul(sqrt(neg(mul(log(add(mul(f32(bitand(shr(%3,40u64),16777215u64)),5.9604645e-08f32),"
          "5.9604645e-08f32)),2f32))),cos(mul(mul(f32(bitand(shr(%3,16u64),16777215u64)),5.9604645e-08f32),6.2831855f32)))")
ONE_HOT = "(i64,bool,f32,f32)->(f32) select(eq(index(2),select(lt($0,0i64),add($0,1000i64),$0)),$3,$2)"

LAYERS = {
    "matmul f16 1x4096x4096, weights of 4 bits": coded_matmul(("f16", 1, 4096), 4096, "u4", 32, zeros=True),
    "matmul f32 8x4096x4096, weights of 4 bits": coded_matmul(("f32", 8, 4096), 4096, "u4", 128),
    "matmul f16 1x4096x4096, weights of e4m3": coded_matmul(("f16", 1, 4096), 4096, "e4m3", 4096),
    "linear attention f32 1x512, 16 heads of 128x128": linear_attention(512),
    "attention f16 32 heads of 128 for 8, 1 row of 2048 keys": attention("f16", 32, 8, 1, 2048, 128, MASKED, "m: f16[1,1,1,2048]"),
    "attention f16 12 heads of 64, 1024 rows, causal": attention("f16", 12, 12, 1024, 1024, 64, CAUSAL),
    "attention f32 12 heads of 64, 1 row of 1024 keys": attention("f32", 12, 12, 1, 1024, 64, SCALE),
    "attention f32 12 heads of 64, 512 rows": attention("f32", 12, 12, 512, 512, 64, SCALE),
    "lstm f32 64x1x256, 256 units": recurrent("lstm", (64, 1, 256), 256),
    "lstm f16 64x8x256, 256 units": recurrent("lstm", (64, 8, 256), 256, dtype="f16"),
    "gru f32 64x1x256, 256 units": recurrent("gru", (64, 1, 256), 256),
    "gru f32 64x8x256, 256 units, linear before reset": recurrent("gru", (64, 8, 256), 256, "linear_before_reset=true"),
    "decision trees f32 1024x28, 100 trees of 63 nodes": layer(
        "x: f32[1024,28], f: i32[6300], t: f32[6300], c: i32[6300,2], r: i32[100]", "y = DecisionTrees(x, f, t, c, r) leaves=3200 depth=5"),
    "layer normalization f32 512x768": layer("x: f32[512,768]", "y = Normalize(x) axes=[1]"),
    "rms normalization f16 512x4096": layer("x: f16[512,4096]", "y = Normalize(x) axes=[1] epsilon=1e-06 subtract_mean=false"),
    "group normalization f16 2x32x10x64x64": layer("x: f16[2,32,10,64,64]", "y = Normalize(x) axes=[2,3,4]"),
    "softmax f32 1x50257": layer("x: f32[1,50257]", "y = Softmax(x) axis=1"),
    "mean of f32 8x512x768 over 512 positions": layer("x: f32[8,512,768]", "y = Reduce(x, i64{1}) kind=mean"),
    "largest of f32 8x50257": layer("x: f32[8,50257]", "y = ArgReduce(x) axis=1"),
    "top 50 of f32 1x50257": layer("x: f32[1,50257]", "y, i = TopK(x, i64{50}) axis=1"),
    "top 8 of f32 512x64": layer("x: f32[512,64]", "y, i = TopK(x, i64{8}) axis=1 of=softmax"),
    "sort of f32 8x8400": layer("x: f32[8,8400]", "y, i = TopK(x, i64{8400}) axis=1"),
    "cumulative sum of f32 8x50257": layer("x: f32[8,50257]", "y = Cumulative(x, i64[]{1})"),
    "max pooling f32 8x64x112x112, 3x3, with indices": layer(
        "x: f32[8,64,112,112]",
        "y, i = Pool(x) kernel=[3,3] strides=[2,2] pads_begin=[1,1] pads_end=[1,1] dilations=[1,1] with_indices=true"),
    "average pooling f16 8x192x35x35, 3x3": behind_conv(
        [8, 192, 35, 35], "y = Pool(c) kind=average kernel=[3,3] strides=[1,1] pads_begin=[1,1] pads_end=[1,1] dilations=[1,1]"),
    "resize f16 8x256x40x40, linear, twice as large": behind_conv(
        [8, 256, 40, 40], "y = Resize(c) mode=linear axes=[2,3] scales=[2,2]"),
    "resize u8 1x3x1080x1920, linear, to 640x640": layer(
        "x: u8[1,3,1080,1920]", "y = Resize(x, i64{640, 640}) mode=linear axes=[2,3]"),
    "resize f32 1x3x480x640, cubic, to 224x224": layer(
        "x: f32[1,3,480,640]", "y = Resize(x, i64{224, 224}) mode=cubic axes=[2,3] antialias=true"),
    "resize f32 1x64x80x80, nearest, to 200x200": layer("x: f32[1,64,80,80]", "y = Resize(x, i64{200, 200}) axes=[2,3]"),
    "grid sample f32 8x32x100x100, linear, 300x4 places": layer("x: f32[8,32,100,100], g: f32[8,300,4,2]", "y = GridSample(x, g)"),
    "grid sample f32 1x3x256x256, cubic": layer(
        "x: f32[1,3,256,256], g: f32[1,256,256,2]", "y = GridSample(x, g) mode=cubic padding=reflection"),
    "roi align f32 1x256x200x272, 1000 regions, 7x7": layer(
        "x: f32[1,256,200,272], r: f32[1000,4], n: i64[1000]",
        "y = RoiAlign(x, r, n) height=7 width=7 sampling_ratio=2 spatial_scale=0.25"),
    "non-max suppression, 8400 boxes of 80 classes": layer(
        "b: f32[1,8400,4], s: f32[1,80,8400]", "y = NonMaxSuppression(b, s, i64[]{100}, f32[]{0.5}, f32[]{0.25})"),
    "gather f16 rows of 32000x4096": layer("x: f16[32000,4096], i: i64[1,512]", "y = Gather(x, i)"),
    "gather elements f32 1x8400x4": layer("x: f32[1,8400,4], i: i64[1,300,4]", "y = GatherElements(x, i) axis=1"),
    "gather nd f32 8x512x768": layer("x: f32[8,512,768], i: i64[64,2]", "y = GatherND(x, i)"),
    "scatter elements f32 10000x64, 50000 rows added": layer(
        "x: f32[10000,64], i: i64[50000,64], u: f32[50000,64]", "y = ScatterElements(x, i, u) reduction=add"),
    "scatter nd f16 2048x8x128, 16 rows": layer("x: f16[2048,8,128], i: i64[16,1], u: f16[16,8,128]", "y = ScatterND(x, i, u)"),
    "nonzero bool 1x512x512": layer("x: bool[1,512,512]", "y = NonZero(x)"),
    "unique i64 4096": layer("x: i64[4096]", "y, f, w, n = Unique(x)"),
    "transpose f32 8x768x196": layer("x: f32[8,768,196]", "y = Transpose(x) permutation=[0,2,1]"),
    "transpose f16 8x512x12x64, heads first": layer("x: f16[8,512,12,64]", "y = Transpose(x) permutation=[0,2,1,3]"),
    "pad f16 8x64x56x56, reflection": layer("x: f16[8,64,56,56]", "y = Pad(x, i64{0, 0, 1, 1, 0, 0, 1, 1}) mode=reflect"),
    "one hot f32 8x512x1000": layer(
        "x: i64[8,512,1], a: f32[], b: f32[], z: bool[1,1,1000]", f"y = Pointwise(x, z, a, b) program=\"{ONE_HOT}\""),
    "random normal f32 16384": layer("z: bool[16384]", f"y = Pointwise(z) program=\"{NORMAL}\""),
}
