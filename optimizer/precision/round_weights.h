// Joint rounding of weights to 16 bits, so that errors of one output channel cancel.
#pragma once
#include <vector>

#include "anneal/core/tensor.h"
#include "anneal/optimizer/analysis/channel_weights.h"

namespace anneal {

// The f32 weights as numbers of `half` (kF16 or kBF16), still in f32: each one of its two
// neighbours there, itself if it is one. Of those about in the middle as many are rounded up as
// lets the errors of each window of an output channel, and of the channel, add up to little: inputs
// have much in common, above all if none is negative, and what they have in common is multiplied
// with that sum. Infinities and NaN stay. REQUIRES: `layout` is that of `weights`.
Tensor round_weights(const Tensor& weights, const ChannelWeights& layout, DataType half);

// What each output channel's weights should be divided by before they are rounded, and its sums be
// multiplied with: 1, unless that halves the squared error of rounding or does better. Empty: 1 for
// all, or a channel has more than 64 weights, some of which every scale hits badly, or a weight
// that is no finite number of `half`. Products with numbers of `half` are numbers of f32, and so
// finite for weights that were divided and rounded. REQUIRES: as above
std::vector<double> weight_scales(const Tensor& weights, const ChannelWeights& layout,
                                  DataType half);

}  // namespace anneal
