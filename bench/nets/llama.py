"""A decoder as onnxruntime-genai's builder writes Llama: 4-bit products, grouped-query attention with a cache, random weights."""

import numpy as np
from onnx import TensorProto, helper, numpy_helper

BLOCK = 32
MICROSOFT = "com.microsoft"


class Llama:
    """hidden and ffn are multiples of 32, hidden of heads, heads of kv_heads."""

    def __init__(self, layers=12, hidden=768, ffn=2048, heads=12, kv_heads=4, vocabulary=32000, positions=2048,
                 accuracy_level=4, seed=1):
        self.layers, self.hidden, self.ffn, self.vocabulary = layers, hidden, ffn, vocabulary
        self.heads, self.kv_heads, self.head = heads, kv_heads, hidden // heads
        self.positions, self.accuracy_level = positions, accuracy_level
        self.random = np.random.default_rng(seed)
        self.nodes, self.weights = [], []

    def parameters(self):
        """Of the products and the embedding."""
        attention = self.hidden * self.head * (self.heads + 2 * self.kv_heads) + self.hidden * self.hidden
        return self.layers * (attention + 3 * self.hidden * self.ffn) + 2 * self.vocabulary * self.hidden

    def model(self):
        embedding = self.constant("embedding", self.random.standard_normal((self.vocabulary, self.hidden)) * 0.3)
        angles = np.outer(np.arange(self.positions), 10000.0 ** (-np.arange(self.head // 2) / (self.head // 2)))
        self.constant("cos", np.cos(angles)), self.constant("sin", np.sin(angles))
        x = self.node("Gather", [embedding, "input_ids"], "embedded")
        normalized = self.node("SimplifiedLayerNormalization", [x, self.ones("norm")], "normalized", "", axis=-1, epsilon=1e-5)
        self.lengths()
        for i in range(self.layers):
            attended = self.attention(normalized, f"{i}/attention")
            normalized, x = self.add_and_normalize(x, attended, f"{i}/after_attention")
            fed = self.feed_forward(normalized, f"{i}/ffn")
            normalized, x = self.add_and_normalize(x, fed, f"{i}/after_ffn")
        self.product(normalized, self.hidden, self.vocabulary, "logits")
        return self.assembled()

    def lengths(self):
        """What GroupQueryAttention wants to know, from the mask."""
        one = numpy_helper.from_array(np.array([1], np.int64), "one")
        self.weights.append(one)
        self.node("ReduceSum", ["attention_mask", "one"], "counted", keepdims=0)
        self.weights.append(numpy_helper.from_array(np.array(1, np.int64), "one_scalar"))
        self.node("Sub", ["counted", "one_scalar"], "last")
        self.node("Cast", ["last"], "seqlens_k", to=TensorProto.INT32)
        self.node("Shape", ["attention_mask"], "mask_shape")
        self.node("Gather", ["mask_shape", "one_scalar"], "total_i64", axis=0)
        self.node("Cast", ["total_i64"], "total_sequence_length", to=TensorProto.INT32)

    def attention(self, x, name):
        layer = name.split("/")[0]
        width = self.head * (self.heads + 2 * self.kv_heads)
        qkv = self.product(x, self.hidden, width, f"{name}/qkv")
        outputs = [f"{name}/y", f"present.{layer}.key", f"present.{layer}.value"]
        inputs = [qkv, "", "", f"past.{layer}.key", f"past.{layer}.value", "seqlens_k", "total_sequence_length", "cos", "sin"]
        self.nodes.append(helper.make_node("GroupQueryAttention", inputs, outputs, name=name, domain=MICROSOFT,
                                           num_heads=self.heads, kv_num_heads=self.kv_heads, do_rotary=1))
        return self.product(outputs[0], self.hidden, self.hidden, f"{name}/out")

    def feed_forward(self, x, name):
        gate = self.product(x, self.hidden, self.ffn, f"{name}/gate")
        up = self.product(x, self.hidden, self.ffn, f"{name}/up")
        sigmoid = self.node("Sigmoid", [gate], f"{name}/sigmoid")
        silu = self.node("Mul", [gate, sigmoid], f"{name}/silu")
        return self.product(self.node("Mul", [silu, up], f"{name}/gated"), self.ffn, self.hidden, f"{name}/down")

    def add_and_normalize(self, x, y, name):
        outputs = [f"{name}/normalized", "", "", f"{name}/sum"]
        self.nodes.append(helper.make_node("SkipSimplifiedLayerNormalization", [x, y, self.ones(f"{name}/scale")], outputs,
                                           name=name, domain=MICROSOFT, epsilon=1e-5))
        return outputs[0], outputs[3]

    def product(self, x, inner, columns, name):
        codes = self.random.integers(0, 256, (columns, inner // BLOCK, BLOCK // 2), dtype=np.uint8)
        # The codes less 8 have a standard deviation of 4.6.
        scales = (self.random.random(columns * inner // BLOCK) + 0.5) / 4.6 / np.sqrt(inner)
        self.weights.append(numpy_helper.from_array(codes, f"{name}/codes"))
        self.constant(f"{name}/scales", scales)
        return self.node("MatMulNBits", [x, f"{name}/codes", f"{name}/scales"], name, MICROSOFT, K=inner, N=columns, bits=4,
                         block_size=BLOCK, accuracy_level=self.accuracy_level)

    def ones(self, name):
        return self.constant(name, np.ones(self.hidden))

    def constant(self, name, values):
        self.weights.append(numpy_helper.from_array(values.astype(np.float32), name))
        return name

    def node(self, kind, inputs, output, domain="", **attributes):
        self.nodes.append(helper.make_node(kind, inputs, [output], name=output, domain=domain, **attributes))
        return output

    def assembled(self):
        def port(name, dims, kind=TensorProto.FLOAT):
            return helper.make_tensor_value_info(name, kind, dims)

        def caches(name, length):
            dims = ["batch", self.kv_heads, length, self.head]
            return [port(f"{name}.{i}.{part}", dims) for i in range(self.layers) for part in ("key", "value")]

        inputs = [port("input_ids", ["batch", "tokens"], TensorProto.INT64),
                  port("attention_mask", ["batch", "total"], TensorProto.INT64), *caches("past", "past")]
        outputs = [port("logits", ["batch", "tokens", self.vocabulary]), *caches("present", "total")]
        graph = helper.make_graph(self.nodes, "llama", inputs, outputs, self.weights)
        return helper.make_model(graph, ir_version=10,
                                 opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid(MICROSOFT, 1)])
