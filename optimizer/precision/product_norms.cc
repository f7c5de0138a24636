#include "anneal/optimizer/precision/product_norms.h"

#include <cmath>
#include <mutex>
#include <span>
#include <vector>

#include "anneal/optimizer/analysis/channel_weights.h"

namespace anneal {
namespace {

// What holds for the weights of all channels alike.
struct OfAll {
  bool is_integer = true;
  double most = 0;
};

// The sums of channels, by their numbers.
class ChannelSums {
 public:
  explicit ChannelSums(size_t channels)
      : magnitudes_(channels), squares_(channels), sums_(channels) {}

  void add(size_t channel, double weight, OfAll& all) {
    all.is_integer = all.is_integer && weight == std::floor(weight);
    if (!std::isfinite(weight)) return;
    const double magnitude = std::abs(weight);
    all.most = std::max(all.most, magnitude);
    magnitudes_[channel] += magnitude;
    squares_[channel] += weight * weight;
    sums_[channel] += weight;
  }
  ProductNorms norms(const OfAll& all) const {
    ProductNorms norms = {.is_integer = all.is_integer, .most = all.most};
    norms.sum = std::ranges::max(magnitudes_);
    norms.root = std::sqrt(std::ranges::max(squares_));
    for (const double sum : sums_) norms.mean = std::max(norms.mean, std::abs(sum));
    return norms;
  }

 private:
  std::vector<double> magnitudes_, squares_, sums_;
};

}  // namespace

ProductNorms norms_of_floats(const Graph& graph, LayerId product, size_t input, int threads) {
  const Tensor& tensor = *graph.constant(graph.layer(product).inputs[input]);
  const std::span<const float> weights = tensor.as<float>();
  const auto layout = channel_weights(graph, product);
  OfAll all;
  if (!layout || layout->input != input) {
    ChannelSums sums(1);
    for (const float weight : weights) sums.add(0, weight, all);
    return sums.norms(all);
  }
  // A product of several matrices has channels in each.
  const auto per_matrix = static_cast<size_t>(layout->i_count * layout->j_count * layout->inner);
  const auto channels = static_cast<size_t>(layout->written_count);
  ChannelSums sums(static_cast<size_t>(layout->outer) * channels);
  std::mutex merging;
  for_written_channels(*layout, threads, [&](int64_t begin, int64_t end) {
    OfAll part;
    for_each_weight(*layout, begin, end, [&](size_t at, size_t, size_t written) {
      const size_t matrix = layout->outer == 1 ? 0 : at / per_matrix;
      sums.add(matrix * channels + written, weights[at], part);
    });
    const std::lock_guard lock(merging);
    all = {all.is_integer && part.is_integer, std::max(all.most, part.most)};
  });
  return sums.norms(all);
}

}  // namespace anneal
