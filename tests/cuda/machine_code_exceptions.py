"""Layers whose machine code may break a rule of machine_code_test.py, each with its reason."""


def layers(network, numbers, rule, why, operation="conv_mma of Conv", where="b* sm_*"):
    return {(f"{network} {where} {operation}_{number}", rule): why for number in numbers}


HEADS = "boxes and scores leave channels first in f32: no two of a thread are adjacent"
HEADS_OF_BYTES = "boxes and scores leave channels first in 8 bits: no two of a thread are adjacent"
ADDRESSES = "each channels-first result of a thread has an address of its own"
QUERIES = "queries, scores and sums of 16 rows are in registers at the same time"
WEIGHTS = "each score takes a mask, a bound and an exponential"
SCALES = "scales, biases and residuals are read before the sums are gone"
BYTES_OF_PIXEL = "a pixel of three bytes allows no copy of more than 4 bytes"
TWO_TYPES = "four results of a thread are 16 bytes in f32, and 4 beside them in 8 bits"
COPIES = "the sums of the addresses of its copies"
TAPS = "6.5 or 6.6: each of six copies tests whether its tap lies inside"
COPIES_OF_WARP = "28 bytes: the one warp copies 32 vectors of each tile, each with a place and an address of its own"
# ptxas takes fewer registers than it may, and keeps what it needs outside the loop in local memory.
BEFORE = "8 bytes, stored and read before the loop of matrix instructions"
AROUND = "4 bytes, stored before the loop of matrix instructions and read behind it"
AROUND_KEYS = "4 bytes, the number of a row, stored before the loop over keys and read behind it"

# (pattern of case and function, rule): why the function may break the rule.
EXCEPTIONS = {
    ("resnet50 f16 b1 sm_90 conv_mma of Conv_12", "instructions"): f"6.4: {COPIES}",
    ("resnet50 int8 b8 sm_90 conv_mma of Conv_3", "instructions"): BYTES_OF_PIXEL,
    ("resnet50 int8 b8 sm_90 conv_mma of Conv_21", "instructions"): f"6.1: {COPIES}",
    **layers("bert_base f16", (16,), "registers", QUERIES, "attention of MatMul", "b8 sm_90"),
    **layers("bert_base f16", (16,), "instructions", WEIGHTS, "attention of MatMul", "b8 sm_90"),
    **layers("vit_b16 f16", (22,), "registers", QUERIES, "attention of MatMul", "b8 sm_90"),
    **layers("vit_b16 f16", (22,), "instructions", WEIGHTS, "attention of MatMul", "b8 sm_90"),
    **layers("yolo f16", (330, 339, 350, 359, 370, 379), "narrow stores", HEADS, where="b8 sm_90"),
    **layers("yolo f16", (330, 339, 350, 359), "registers", ADDRESSES, where="b8 sm_90"),
    **layers("resnet50 int8", (3, 21, 73, 141), "registers", SCALES, where="b8 sm_90"),
    ("attention f16 32 heads of 128 for 8, 1 row of 2048 keys attention of y", "registers"): QUERIES,
    ("attention f16 12 heads of 64, 1024 rows, causal attention of y", "registers"): QUERIES,
    ("attention f16 12 heads of 64, 1024 rows, causal attention of y", "instructions"): WEIGHTS,
    ("attention f16 32 heads of 128 for 8, 1 row of 2048 keys attention of y", "narrow loads"): "each score has a number of the mask",
    ("attention f16 32 heads of 128 for 8, 1 row of 2048 keys attention of y", "local memory"): COPIES_OF_WARP,
    ("attention f32 12 heads of 64, 512 rows attention of y", "local memory"): AROUND_KEYS,
    ("random normal f32 16384 module", "variables"): "CUDA's digits of 2 / pi, which cosf has for large numbers",
}

# Of the plans that only --whole builds. A star stands for the batches and architectures that need the exception, which changes with
# each configuration that the planner takes.
WHOLE_EXCEPTIONS = {
    ("resnet50 f16 b1 sm_* conv_mma of Conv_0", "instructions"): "a pixel of four halves takes twice the copies of one of eight",
    **layers("resnet50 f16", (4, 10, 12), "instructions", f"12.2 of a small tile, 6.0 and 6.6 of large ones: {COPIES}", where="b1 sm_80"),
    **layers("resnet50 f16", (148, 158), "registers", "155: the sums of a warp of 32x64, and biases and residuals beside them", where="b64 sm_90"),
    ("resnet50 int8 b* sm_* conv_mma of Conv_3", "instructions"): BYTES_OF_PIXEL,
    ("resnet50 int8 b* sm_90 conv_mma of Conv_21", "instructions"): f"6.1: {COPIES}",
    ("vit_b16 int8 b* sm_* conv_mma of Conv_3", "instructions"): BYTES_OF_PIXEL,
    ("vit_b16 int8 b* sm_* conv_mma of Conv_3", "registers"): SCALES,
    ("yolo int8 b* sm_* conv_mma of Conv_3", "instructions"): BYTES_OF_PIXEL,
    ("unet int8 b* sm_* conv_mma of Conv_3", "instructions"): BYTES_OF_PIXEL,
    **layers("unet f16", (3, 7, 10, 14, 17, 44, 47, 52, 55, 60, 63), "instructions", TAPS, where="b* sm_100"),
    ("yolo f16 b8 sm_80 conv_mma of Conv_370", "instructions"): f"12.1: {COPIES}",
    **layers("resnet50 int8", (3, 21, 23, 73, 141, 241, 243, 277), "registers", SCALES),
    **layers("bert_base int8", (3, 27, 34, 44), "registers", SCALES, "matmul_mma of MatMul"),
    **layers("vit_b16 int8", (34, 43, 53, 80), "registers", SCALES, "matmul_mma of MatMul"),
    **layers("vit_b16 f16", (25, 36), "registers", "152: the sums of a warp of 32x64, and biases and residuals beside them", "matmul_mma of MatMul", "b64 sm_100"),
    **layers("yolo f16", (330, 339, 350, 359, 370, 379), "narrow stores", HEADS),
    **layers("yolo f16", (330, 339, 350, 359, 370, 379), "registers", ADDRESSES),
    **layers("yolo int8", (517, 531, 551, 565, 587, 601), "narrow stores", HEADS_OF_BYTES),
    **layers("yolo int8", (291, 340), "narrow stores", TWO_TYPES),
    **layers("yolo int8", (15, 68, 84, 147, 163, 226, 242, 301, 350, 406, 462, 505, 531, 539, 575), "registers", SCALES),
    **layers("yolo int8", (517, 551, 565, 587, 601), "registers", ADDRESSES),
    **layers("yolo int8", (517, 551, 587), "instructions", f"6.1: {COPIES}", where="b* sm_90"),
    **layers("bert_base f16", (16,), "registers", QUERIES, "attention of MatMul"),
    **layers("bert_base f16", (16,), "instructions", WEIGHTS, "attention of MatMul"),
    **layers("vit_b16 f16", (22,), "registers", QUERIES, "attention of MatMul"),
    **layers("vit_b16 f16", (22,), "instructions", WEIGHTS, "attention of MatMul"),
    **layers("bert_base int8", (21,), "registers", QUERIES, "attention of MatMul"),
    **layers("bert_base int8", (21,), "instructions", WEIGHTS, "attention of MatMul"),
    **layers("vit_b16 int8", (28,), "registers", QUERIES, "attention of MatMul"),
    **layers("vit_b16 int8", (28,), "instructions", WEIGHTS, "attention of MatMul"),
    **layers("unet f16", (21, 24, 36, 39), "local memory", BEFORE, where="b1 sm_100"),
    ("unet int8 b1 sm_100 conv_mma of Conv_42", "local memory"): BEFORE,
    ("yolo f16 b8 sm_100 conv_mma of Conv_362", "local memory"): BEFORE,
    **layers("vit_b16 f16", (22,), "local memory", AROUND, "attention of MatMul", "b* sm_100"),
    **layers("vit_b16 int8", (28,), "local memory", AROUND, "attention of MatMul", "b* sm_100"),
    **layers("yolo int8", (531, 551), "local memory", "8 or 16 bytes behind the loop of matrix instructions, read for each group of results", where="b* sm_100"),
    ("bert_base int8 b64 sm_* normalize of LayerNormalization_30", "local memory"): "8 or 16 bytes of the loop over rows, once for each row",
    ("vit_b16 int8 b64 sm_* normalize of LayerNormalization_12", "local memory"): "8 or 16 bytes of the loop over rows, once for each row",
}
