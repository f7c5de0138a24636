#include "anneal/optimizer/precision/product_norms.h"

#include <algorithm>
#include <cmath>

#include "anneal/optimizer/analysis/channel_weights.h"
#include "anneal/optimizer/precision/constant_statistics.h"
#include "anneal/optimizer/precision/half_weights.h"

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
  norms.of_channel = static_cast<double>(tensor.count()) /
                     static_cast<double>(std::max<size_t>(channels.squares.size(), 1));
  for (const double squares : channels.squares)
    if (squares > 0 && (norms.weakest == 0 || squares < norms.weakest)) norms.weakest = squares;
  for (const double sum : channels.sums) norms.mean = std::max(norms.mean, std::abs(sum));
  return norms;
}

bool are_kept_by(const ProductNorms& norms, DataType half, double most) {
  // The errors of normal numbers are u / (1 + u) of them at most, with u half of the last place of
  // 1. Those of subnormal numbers are half of the least one.
  const double unit = half == DataType::kF16 ? 0x1p-11 : 0x1p-8;
  const double relative = unit / (1 + unit), absolute = half == DataType::kF16 ? 0x1p-25 : 0x1p-134;
  const double lost = relative * relative * norms.weakest + absolute * absolute * norms.of_channel;
  return norms.weakest > 0 && lost <= most * most * norms.weakest &&
         std::isfinite(in_half(static_cast<float>(norms.most), half));
}

}  // namespace anneal
