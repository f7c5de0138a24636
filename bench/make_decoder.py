#!/usr/bin/env python3
"""A Llama with random weights in the form of onnxruntime-genai's builder, int4 with accuracy_level 4: make_decoder.py FOLDER

12 layers, hidden size 768, 12 heads and 4 of keys, 32,000 tokens. Needs onnxruntime-genai, tokenizers, torch and transformers.
"""

import subprocess
import sys
import tempfile

import tokenizers
import torch
import transformers

VOCABULARY = 32000


def main():
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        hidden_size=768, num_hidden_layers=12, num_attention_heads=12, num_key_value_heads=4, intermediate_size=2048,
        vocab_size=VOCABULARY, max_position_embeddings=2048, bos_token_id=1, eos_token_id=2, pad_token_id=0,
        tie_word_embeddings=False)
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({f"t{i}": i for i in range(VOCABULARY)}, unk_token="t0"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    with tempfile.TemporaryDirectory() as folder:
        transformers.LlamaForCausalLM(config).save_pretrained(folder)
        transformers.PreTrainedTokenizerFast(tokenizer_object=words, bos_token="t1", eos_token="t2", pad_token="t0").save_pretrained(folder)
        subprocess.run([sys.executable, "-m", "onnxruntime_genai.models.builder", "-i", folder, "-o", sys.argv[1], "-p", "int4",
                        "-e", "cpu", "-c", folder, "--extra_options", "int4_accuracy_level=4"], check=True)


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    main()
