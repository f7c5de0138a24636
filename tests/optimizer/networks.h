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

}  // namespace anneal::testing
