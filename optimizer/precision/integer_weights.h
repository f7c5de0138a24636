// Whether a product of f32 is faster by the integers or the numbers of 16 bits that a model has as
// weights, or by the f32 numbers that they stand for.
#pragma once
#include <string>

#include "anneal/graph/graph.h"
#include "anneal/optimizer/pass.h"
#include "anneal/optimizer/precision/quantizable.h"

namespace anneal {

// Of the weights that products of the graph multiply by, as floats of the type that the target
// would compute in, in whatever form the graph has them.
double weight_bytes_as_floats(const Graph& graph, const PassOptions& options);

// Whether kernels may round rows of the left side of a MatMul to 8 bits: the model says so, or the
// options ask for weights of 4 bits, and `asked` for no precision of the layer. The product of
// rounded rows by integers of 4 or 2 bits takes less time than by f32 weights for any number of
// rows.
bool rows_may_be_rounded(const Graph& graph, LayerId product, const PassOptions& options,
                         const LayerPrecisions& asked);

// Empty if a product of this number of rows is faster by weights of fewer bits, or if the options
// ask for weights in integers. bytes: weight_bytes_as_floats().
std::string why_floats_are_faster(const Graph& graph, LayerId product, int64_t rows, double bytes,
                                  const PassOptions& options);

// Empty if the f32 weights of the model do not stay in a cache from one run of a product with this
// number of rows to the next, so that it waits for memory, or if the options ask for weights in
// integers.
std::string why_cached(int64_t rows, double bytes, const PassOptions& options);

}  // namespace anneal
