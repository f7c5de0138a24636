// Shared parts of the texts of convolutions.
#pragma once
#include <string>

#include "anneal/graph/op/ops.h"
#include "anneal/kernels/cuda/text/program_text.h"
#include "anneal/kernels/cuda/text/window_text.h"
#include "anneal/kernels/cuda/text/zero_text.h"

namespace anneal::cuda {

// Why no text does this layer; empty if one does.
std::string why_no_conv_text(const Request& request);
DataType conv_accumulator(const Request& request);

// kernel_*, w_z, w_y, w_x: of the weights, input 1.
void add_kernel(ShapeText& shape, Extents& extents, const Request& request);
// add_window(), add_kernel(), w_k, w_c.
void add_conv(ShapeText& shape, Extents& extents, const Conv& op, const Request& request);

// "struct Zeros": Acc of(Index k), of weights of output channel `first` + k.
std::string weight_zeros_definition(const ZeroText& zero, const Extents& extents,
                                    std::string_view accumulator);
// An expression of one.
std::string weight_zeros(const ZeroText& zero, const Extents& extents, std::string_view first);

}  // namespace anneal::cuda
