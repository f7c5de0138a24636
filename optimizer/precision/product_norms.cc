#include "anneal/optimizer/precision/product_norms.h"

#include <algorithm>
#include <cmath>

#include "anneal/optimizer/analysis/channel_weights.h"
#include "anneal/optimizer/precision/constant_statistics.h"

namespace anneal {

ProductNorms norms_of_floats(const Graph& graph, LayerId product, size_t input, int threads) {
  const Tensor& tensor = *graph.constant(graph.layer(product).inputs[input]);
  auto layout = channel_weights(graph, product);
  if (layout && layout->input != input) layout.reset();
  const ChannelNorms channels = channel_norms(tensor.as<float>(), layout, threads);
  ProductNorms norms{.sum = std::ranges::max(channels.magnitudes),
                     .root = std::sqrt(std::ranges::max(channels.squares)),
                     .is_integer = channels.is_integer,
                     .most = channels.most};
  norms.weights_per_channel = static_cast<double>(tensor.count()) /
                              static_cast<double>(std::max<size_t>(channels.squares.size(), 1));
  for (const double squares : channels.squares)
    if (squares > 0 && (norms.weakest == 0 || squares < norms.weakest)) norms.weakest = squares;
  for (const double sum : channels.sums) norms.mean = std::max(norms.mean, std::abs(sum));
  return norms;
}

}  // namespace anneal
