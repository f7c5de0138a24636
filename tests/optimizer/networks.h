// Well-known networks as an importer gives them, with random weights and small sizes: what fuses in
// them does not depend on how wide they are.
#pragma once
#include "anneal/graph/graph.h"

namespace anneal::testing {

// SqueezeNet 1.1 (https://arxiv.org/abs/1602.07360), an eighth as wide: x f32[1,3,35,35].
Graph squeezenet();
// GoogLeNet (https://arxiv.org/abs/1409.4842) with batch normalization, an eighth as wide:
// x f32[1,3,64,64].
Graph googlenet();
// Encoder layers of BERT (https://arxiv.org/abs/1810.04805), normalizations and GELU written out as
// PyTorch exports them: x f32[2,6,32], mask f32[2,1,1,6], 4 heads.
Graph bert(int layers);

// A residual block with group normalization (https://arxiv.org/abs/1803.08494) and SiLU, as
// diffusion models have it, and a mean of each channel: x f32[2,8,7,5], 4 groups of 3 channels. As
// ONNX's GroupNormalization is imported; as PyTorch exports it, by way of InstanceNormalization
// with a scale of ones and a bias of zeros; or with mean and variance written out.
enum class GroupNormStyle { kOp, kInstance, kWrittenOut };
Graph group_norm_block(GroupNormStyle style);

}  // namespace anneal::testing
