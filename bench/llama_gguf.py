"""The file of llama.cpp with the weights of a Llama in int4 that onnxruntime-genai's builder wrote.

Blocks of 32 weights with zero point 8 are Q4_0 of GGUF: the same integers, with scales rounded to f16. The file has no
vocabulary, so llama.cpp reads and gives token numbers. Needs onnx and gguf.
"""

import json

import gguf
import numpy as np
import onnx
from onnx import numpy_helper

BLOCK = 32


def q4_0(codes, scales):
    """Rows of Q4_0 blocks as bytes: a scale in f16, then byte j has weight j in its low half and weight j + 16 in its high one."""
    rows, blocks, _ = codes.shape
    weights = np.stack([codes & 15, codes >> 4], axis=-1).reshape(rows, blocks, BLOCK)
    halves = weights[..., :BLOCK // 2] | weights[..., BLOCK // 2:] << 4
    scales = scales.reshape(rows, blocks, 1).astype(np.float16).view(np.uint8)
    return np.concatenate([scales, halves], axis=-1).reshape(rows, -1)


def with_adjacent_pairs(rows, heads):
    """Rows of queries or keys in llama.cpp's order: it rotates elements 2i and 2i + 1 of a head, the model i and i + size / 2."""
    pairs = rows.reshape(heads, 2, -1, rows.shape[-1])
    return pairs.swapaxes(1, 2).reshape(rows.shape)


def rotary_base(cosines, sines):
    """The base of angles p * base^(-2i / size), from the tables' row of position 1. Raises ValueError for scaled angles."""
    angles = np.arctan2(sines[1], cosines[1])
    base = float(angles[1] ** -len(angles))
    if not np.allclose(angles, base ** (-np.arange(len(angles)) / len(angles)), rtol=1e-3):
        raise ValueError("the rotary angles are scaled, which is not supported")
    return base


def write_gguf(folder, path):
    """Writes the model of the folder to path. Raises KeyError or ValueError for other models."""
    settings = json.loads((folder / "genai_config.json").read_text())["model"]
    decoder, model = settings["decoder"], onnx.load(folder / "model.onnx")
    if settings["type"] != "llama":
        raise ValueError(f"{folder}: a model of type {settings['type']}, only llama can be written as GGUF")
    arrays = {each.name: numpy_helper.to_array(each) for each in model.graph.initializer}
    nodes = {node.name: node for node in model.graph.node}
    attributes = {name: {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute} for name, node in nodes.items()}
    heads, key_heads = decoder["num_attention_heads"], decoder["num_key_value_heads"]
    layers, head_size = decoder["num_hidden_layers"], decoder["head_size"]

    writer = gguf.GGUFWriter(path, "llama")
    writer.add_vocab_size(settings["vocab_size"])
    writer.add_tokenizer_model("none")
    writer.add_context_length(settings["context_length"])
    writer.add_embedding_length(decoder["hidden_size"])
    writer.add_block_count(layers)
    writer.add_feed_forward_length(len(arrays["model.layers.0.mlp.gate_proj.MatMul.weight_Q4"]))
    writer.add_head_count(heads)
    writer.add_head_count_kv(key_heads)
    writer.add_rope_dimension_count(head_size)
    writer.add_rope_freq_base(rotary_base(arrays["cos_cache"], arrays["sin_cache"]))
    writer.add_layer_norm_rms_eps(attributes["/model/layers.0/input_layernorm/LayerNorm"]["epsilon"])
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q4_0)

    def packed(name):
        if f"{name}.weight_zero_points" in arrays:
            raise ValueError(f"{folder}: {name} has zero points, Q4_0 has none")
        codes, scales = arrays[f"{name}.weight_Q4"], arrays[f"{name}.weight_scales"]
        if codes.shape[-1] != BLOCK // 2:
            raise ValueError(f"{folder}: {name} has blocks of {codes.shape[-1] * 2} weights, Q4_0 has {BLOCK}")
        return q4_0(codes, scales)

    def add(name, rows):
        writer.add_tensor(f"{name}.weight", np.ascontiguousarray(rows), raw_dtype=gguf.GGMLQuantizationType.Q4_0)

    writer.add_tensor("token_embd.weight", arrays["model.embed_tokens.weight"])
    writer.add_tensor("output_norm.weight", arrays[f"model.layers.{layers}.final_norm_layernorm.weight"])
    add("output", packed("lm_head.MatMul"))
    for i in range(layers):
        ours, theirs = f"model.layers.{i}", f"blk.{i}"
        writer.add_tensor(f"{theirs}.attn_norm.weight", arrays[f"{ours}.input_layernorm.weight"])
        writer.add_tensor(f"{theirs}.ffn_norm.weight", arrays[f"{ours}.post_attention_layernorm.weight"])
        queries, keys, values = np.split(packed(f"{ours}.attn.qkv_proj.MatMul"),
                                         [heads * head_size, (heads + key_heads) * head_size])
        add(f"{theirs}.attn_q", with_adjacent_pairs(queries, heads))
        add(f"{theirs}.attn_k", with_adjacent_pairs(keys, key_heads))
        add(f"{theirs}.attn_v", values)
        add(f"{theirs}.attn_output", packed(f"{ours}.attn.o_proj.MatMul"))
        for part in ("gate", "up", "down"):
            add(f"{theirs}.ffn_{part}", packed(f"{ours}.mlp.{part}_proj.MatMul"))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
