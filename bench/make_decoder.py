#!/usr/bin/env python3
"""A Llama with random weights in the form of onnxruntime-genai's builder, int4 with accuracy_level 4:

    make_decoder.py FOLDER [--billion] [--qdq]

125 million parameters: 12 layers, hidden size 768, 12 heads and 4 of keys, 32,000 tokens. With --billion 1.1 billion: 16 layers,
hidden size 2048, 32 heads and 8 of keys. With --qdq the weights are those of DequantizeLinear, which say nothing of accuracy. Needs
onnxruntime-genai, tokenizers, torch and transformers.
"""

import argparse
import subprocess
import sys
import tempfile

import tokenizers
import torch
import transformers

VOCABULARY = 32000
SMALL = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "num_key_value_heads": 4, "intermediate_size": 2048,
         "max_position_embeddings": 2048}
BILLION = {"hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 8192,
           "max_position_embeddings": 4096}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--billion", action="store_true", help="1.1 billion parameters")
    parser.add_argument("--qdq", action="store_true", help="DequantizeLinear in place of MatMulNBits")
    flags = parser.parse_args()
    torch.manual_seed(0)
    config = transformers.LlamaConfig(**(BILLION if flags.billion else SMALL), vocab_size=VOCABULARY, bos_token_id=1, eos_token_id=2,
                                      pad_token_id=0, tie_word_embeddings=False)
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({f"t{i}": i for i in range(VOCABULARY)}, unk_token="t0"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    with tempfile.TemporaryDirectory() as folder:
        transformers.LlamaForCausalLM(config).save_pretrained(folder)
        transformers.PreTrainedTokenizerFast(tokenizer_object=words, bos_token="t1", eos_token="t2", pad_token="t0").save_pretrained(folder)
        subprocess.run([sys.executable, "-m", "onnxruntime_genai.models.builder", "-i", folder, "-o", flags.folder, "-p", "int4",
                        "-e", "cpu", "-c", folder, "--extra_options", "use_qdq=true" if flags.qdq else "int4_accuracy_level=4"], check=True)


if __name__ == "__main__":
    main()
