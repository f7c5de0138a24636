#!/usr/bin/env python3
"""`anneal bench --decode` on small decoders.

    decode_command_test.py PATH_OF_ANNEAL
"""

import json
import re
import unittest

from command_case import F32, I8, I64, U8, Command, field, model, node, tensor, value_info

TABLE = tensor([16, 12], [0.01 * (i % 37 - 18) for i in range(16 * 12)]) + field(8, "table")


def with_integers(made, **attributes):
    kinds = b"".join(field(5, field(1, name) + field(3, value) + field(20, 2)) for name, value in attributes.items())
    return made + kinds


def number(name, value):
    return tensor([1], [value], I64) + field(8, name)


def with_strings(made, **attributes):
    return made + b"".join(field(5, field(1, name) + field(4, value) + field(20, 3)) for name, value in attributes.items())


# The cache is a buffer that a run updates. bits: of its elements, floats or integers.
def grouped(bits=32):
    element, width = {32: (F32, 4), 8: (I8, 4), 4: (U8, 2)}[bits]
    scales = [] if bits == 32 else ["", "", "", "", "", "scale", "scale"]
    attention = node("GroupQueryAttention", ["x", "", "", "past.0.key", "past.0.value", "seqlens", "total32", *scales],
                     ["logits", "present.0.key", "present.0.value"], "attention") + field(7, "com.microsoft")
    attention = with_integers(attention, num_heads=1, kv_num_heads=1)
    if scales:
        attention = with_strings(with_integers(attention, kv_cache_bit_width=bits), k_quant_type="PER_TENSOR", v_quant_type="PER_TENSOR")
    return model(
        [node("Gather", ["table", "input_ids"], ["x"], "embed"),
         with_integers(node("ReduceSum", ["attention_mask", "one"], ["count"], "count"), keepdims=0),
         node("Sub", ["count", "one"], ["last"], "last"), with_integers(node("Cast", ["last"], ["seqlens"], "seqlens"), to=6),
         node("Shape", ["attention_mask"], ["sizes"], "sizes"), node("Gather", ["sizes", "one"], ["total"], "total"),
         with_integers(node("Cast", ["total"], ["total32"], "total32"), to=6), attention],
        [value_info("input_ids", ["B", "N"], I64), value_info("attention_mask", ["B", "T"], I64),
         value_info("past.0.key", ["B", 1, "P", width], element), value_info("past.0.value", ["B", 1, "P", width], element)],
        [value_info("logits", ["B", "N", 4]), value_info("present.0.key", ["B", 1, "T", width], element),
         value_info("present.0.value", ["B", 1, "T", width], element)],
        [TABLE, number("one", 1), tensor([1], [0.01]) + field(8, "scale")]) + field(8, field(1, "com.microsoft") + field(2, 1))


GROUPED = grouped()

# Each run writes a longer cache; positions count from the past on.
GROWING = model(
    [node("Gather", ["table", "tokens"], ["x"], "embed"), node("Unsqueeze", ["x", "one"], ["heads"], "heads"),
     with_integers(node("Concat", ["past_key_values.0.key", "heads"], ["present.0.key"], "grow"), axis=2),
     with_integers(node("ReduceSum", ["present.0.key", "two"], ["sum"], "sum"), keepdims=0),
     node("Gather", ["sizes_of_positions", "position_ids"], ["looked_up"], "positions"),
     node("Add", ["sum", "looked_up"], ["logits"], "add")],
    [value_info("tokens", ["B", "N"], I64), value_info("position_ids", ["B", "N"], I64),
     value_info("past_key_values.0.key", ["B", 1, "P", 12])],
    [value_info("logits", ["B", "N", 12]), value_info("present.0.key", ["B", 1, "R", 12])],
    [TABLE, number("one", 1), number("two", 2), tensor([41, 12], [0.5] * 41 * 12) + field(8, "sizes_of_positions")])

# States of fixed shape, whose outputs are in another order, and positions of three axes.
HYBRID = model(
    [node("Gather", ["table", "input_ids"], ["x"], "embed"), with_integers(node("Cast", ["position_ids"], ["places"], "places"), to=1),
     with_integers(node("ReduceSum", ["places", "zero"], ["place"], "sum"), keepdims=0), node("Unsqueeze", ["place", "two"], ["column"], "column"),
     node("Add", ["x", "column"], ["sum"], "add"), node("Neg", ["past.0.conv"], ["present.0.conv"], "conv"),
     node("Abs", ["past.0.recurrent"], ["present.0.recurrent"], "recurrent"), node("Abs", ["sum"], ["logits"], "head")],
    [value_info("input_ids", ["B", "N"], I64), value_info("position_ids", [3, "B", "N"], I64), value_info("past.0.conv", ["B", 3, 2]), value_info("past.0.recurrent", ["B", 2, 5, 4])],
    [value_info("logits", ["B", "N", 12]), value_info("present.0.recurrent", ["B", 2, 5, 4]), value_info("present.0.conv", ["B", 3, 2])],
    [TABLE, number("zero", 0), number("two", 2)])


class Decode(Command):
    def report(self, *arguments, iterations=3):
        out = self.anneal("bench", *arguments, "--json", "r.json", "--iterations", iterations, "--threads", 1)
        return out, json.loads((self.at / "r.json").read_text())

    def test_a_cache_in_place(self):
        self.write("m.onnx", GROUPED)
        self.anneal("build", "m.onnx", "-o", "m.engine")
        out, report = self.report("m.engine", "--decode", "8,40")
        self.assertIn("caches      updated in place", out)
        self.assertRegex(out, r"(?m)^ *tokens +prompt +tokens/s +next token +tokens/s +caches$")
        self.assertEqual([each["tokens"] for each in report["decode"]], [8, 40])
        for each in report["decode"]:
            self.assertTrue(each["caches_in_place"])
            self.assertEqual(each["cache_bytes"], 2 * (each["tokens"] + 1) * 4 * 4)
            self.assertAlmostEqual(each["prompt_tokens_per_second"] * each["prompt_milliseconds"], 1e3 * each["tokens"], delta=1)
            self.assertAlmostEqual(each["tokens_per_second"] * each["next_token_milliseconds"], 1e3, delta=1)

    def test_a_quantized_cache(self):
        for bits in 8, 4:
            self.write("m.onnx", grouped(bits))
            self.anneal("build", "m.onnx", "-o", "m.engine")
            _, report = self.report("m.engine", "--decode", 8)
            (each,) = report["decode"]
            self.assertTrue(each["caches_in_place"])
            self.assertEqual(each["cache_bytes"], 2 * 9 * 4 * bits // 8)
            # Attention reads the cache as it is stored.
            plan = self.anneal("inspect", "m.engine", "--plan")
            (attention,) = [line for line in plan.splitlines() if "cpu.attention" in line]
            slots = dict(re.findall(r'(?m)^slot (%\d+) "[^"]*" (\w+)\[', plan))
            operands = re.search(r"\((%\d+), (%\d+), (%\d+)", attention)
            self.assertEqual([slots[operand] for operand in operands.groups()], ["f32"] + [{8: "i8", 4: "u8"}[bits]] * 2)

    def test_a_cache_that_grows(self):
        self.write("m.onnx", GROWING)
        out, report = self.report("m.onnx", "--decode", 40)
        self.assertIn("written by each run", out)
        (each,) = report["decode"]
        self.assertFalse(each["caches_in_place"])
        # The table of positions has 41 rows: one more token does not fit.
        self.assertEqual(each["cache_bytes"], 41 * 12 * 4)
        self.anneal("bench", "m.onnx", "--decode", 41, "--iterations", 1, status=2, says="index 41")

    def test_states_in_another_order(self):
        self.write("m.onnx", HYBRID)
        _, report = self.report("m.onnx", "--decode", 8)
        self.assertEqual(report["decode"][0]["cache_bytes"], (3 * 2 + 2 * 5 * 4) * 4)

    def test_states_that_the_context_keeps(self):
        for made, states in ((GROUPED, "past.0.*=present.0.*"), (GROWING, "past_key_values.0.key=present.0.key")):
            self.write("m.onnx", made)
            self.anneal("build", "m.onnx", "--state", states, "-o", "m.engine")
            out, report = self.report("m.engine", "--decode", 8)
            self.assertIn("caches      kept by the context", out)
            (each,) = report["decode"]
            self.assertTrue(each["caches_kept_by_context"])
            if made is GROWING:  # 8 tokens, the one before the measurement, and a measured one
                self.assertEqual(each["cache_bytes"], 10 * 12 * 4)
        self.write("m.onnx", GROUPED)
        self.anneal("build", "m.onnx", "--state", "past.0.key=present.0.key", "-o", "m.engine")
        self.anneal("bench", "m.engine", "--decode", 8, status=2, says='keeps other states, but not "past.0.value"')

    def test_many_tokens_begin_anew(self):
        self.write("m.onnx", GROWING)
        self.anneal("build", "m.onnx", "--state", "past_key_values.0.key=present.0.key", "-o", "m.engine")
        # There are positions for 41 tokens.
        _, report = self.report("m.engine", "--decode", 38, iterations=60)
        self.assertLessEqual(report["decode"][0]["cache_bytes"], 41 * 12 * 4)
        self.anneal("bench", "m.engine", "--decode", 41, "--iterations", 1, status=2, says="index 41")

    def test_a_gpu_takes_turns(self):
        self.write("m.onnx", GROUPED)
        out, report = self.report("m.onnx", "--decode", 4, "--target", "emulated")
        self.assertIn("written by each run", out)
        self.assertFalse(report["decode"][0]["caches_in_place"])

    def test_models_of_other_kinds(self):
        self.write("m.onnx", model([node("Abs", ["x"], ["y"], "abs")], [value_info("x", ["N", 3])], [value_info("y", ["N", 3])]))
        self.anneal("bench", "m.onnx", "--decode", 4, status=2, says="--decode: the model needs exactly one input of token ids")
        self.write("m.onnx", model([node("Abs", ["x"], ["y"], "abs")], [value_info("x", [3], I64)], [value_info("y", [3], I64)]))
        self.anneal("bench", "m.onnx", "--decode", 4, status=2, says='input "x" of i64 is neither token ids')
        self.anneal("bench", "m.onnx", "--decode", 4, "--shapes", "x:3", status=2, says="--decode excludes --shapes")
        self.anneal("bench", "m.onnx", "--decode", 0, status=2, says="--decode")


if __name__ == "__main__":
    unittest.main()
