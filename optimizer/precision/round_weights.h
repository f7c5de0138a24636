// Joint rounding of weights to 16 bits, so that errors of one output channel cancel.
#pragma once
#include <vector>

#include "anneal/core/tensor.h"
#include "anneal/optimizer/analysis/channel_weights.h"

namespace anneal {

// Rounds f32 weights to numbers of `half` (kF16 or kBF16), which are stored in f32 or in `half`:
// each to one of its two neighbours, or to itself. Among weights near the middle, the number that
// is rounded up is chosen so that the errors of each window of an output channel, and of the
// channel, nearly cancel: inputs have much in common, above all if none is negative, and their
// common part is multiplied by the sum of the errors. Infinities and NaN stay. REQUIRES: `layout`
// is that of `weights`.
Tensor round_weights(const Tensor& weights, const ChannelWeights& layout, DataType half,
                     int threads = 0,  // 0: one per core
                     DataType stored = DataType::kF32);

// The divisors of each output channel's weights before rounding, and the factors of its sums: 1,
// unless that at least halves the squared error of rounding. Empty: 1 for all, or a channel has
// more than 64 weights, some of which every scale rounds badly, or a weight that is no finite
// number of `half`. Products with numbers of `half` are numbers of f32, and so finite for weights
// that were divided and rounded. REQUIRES: as above
// may_be_ones: scales that are all 1 are given, too, so that other weights may have others.
std::vector<double> weight_scales(const Tensor& weights, const ChannelWeights& layout,
                                  DataType half, bool may_be_ones = false);

}  // namespace anneal
