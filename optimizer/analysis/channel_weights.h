// Constant weights of a Conv, ConvTranspose or MatMul, by the channels that they read and write.
#pragma once
#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "anneal/core/parallel.h"
#include "anneal/core/result.h"
#include "anneal/graph/graph.h"

namespace anneal {

// A channel as a function of i and j: i / divisor * factor, and j added if it counts.
struct ChannelNumber {
  int64_t divisor = 1, factor = 1;
  bool adds_j = false;

  int64_t of_row(int64_t i) const { return i / divisor * factor; }
  int64_t operator()(int64_t i, int64_t j) const { return of_row(i) + (adds_j ? j : 0); }
};

// The weights as [outer][i][j][inner], where i and j identify the channels.
struct ChannelWeights {
  size_t input = 0;  // of the layer: the weights; data_input: what they are multiplied with
  size_t data_input = 0;
  int64_t outer = 1, i_count = 1, j_count = 1, inner = 1;
  ChannelNumber reads, writes;
  int64_t read_count = 0, written_count = 0;  // of channels
  int data_axis = 0, result_axis = 0;         // that are channels, in the data's and result's shape
};

// Calls f(at, read, written) for each weight of the written channels [begin, end), in their order:
// where it lies, and its channels.
template <class F>
void for_each_weight(const ChannelWeights& layout, int64_t begin, int64_t end, F&& f) {
  const bool reads_j = layout.reads.adds_j, writes_j = layout.writes.adds_j;
  for (int64_t o = 0; o < layout.outer; ++o)
    for (int64_t i = 0; i < layout.i_count; ++i) {
      const int64_t first = layout.writes.of_row(i);
      if (!writes_j && (first < begin || first >= end)) continue;
      const int64_t from = writes_j ? std::max<int64_t>(begin - first, 0) : 0;
      const int64_t to = writes_j ? std::min(end - first, layout.j_count) : layout.j_count;
      auto at =
          static_cast<size_t>(((o * layout.i_count + i) * layout.j_count + from) * layout.inner);
      auto read = static_cast<size_t>(layout.reads.of_row(i) + (reads_j ? from : 0));
      auto written = static_cast<size_t>(first + (writes_j ? from : 0));
      for (int64_t j = from; j < to; ++j) {
        for (int64_t k = 0; k < layout.inner; ++k) f(at++, read, written);
        read += reads_j, written += writes_j;
      }
    }
}
template <class F>
void for_each_weight(const ChannelWeights& layout, F&& f) {
  for_each_weight(layout, 0, layout.written_count, f);
}
// Calls f(begin, end) for ranges that cover the written channels, on several threads where the
// weights are many. threads: 0: one per core.
void for_written_channels(const ChannelWeights& layout, int threads,
                          FunctionRef<void(int64_t begin, int64_t end)> f);

// The weights of one written channel, for one `outer`: `count` windows of `inner` weights each, the
// first at `begin`, each `stride` weights behind the one before.
struct ChannelWindows {
  size_t begin = 0, count = 0, stride = 0;
};
ChannelWindows windows_of(const ChannelWeights& layout, int64_t outer, int64_t written);

// nullopt: another op, or no constant float weights.
std::optional<ChannelWeights> channel_weights(const Graph& graph, LayerId id);

// One number per channel: the tensor, broadcast to a shape of this rank, differs along `axis` only.
std::optional<std::vector<double>> per_channel_values(const Tensor& tensor, int rank, int axis,
                                                      int64_t count);

// Which channel's factor multiplies a weight: the channel that it reads, or the one that it writes.
enum class FactorOf : uint8_t { kReadChannel, kWrittenChannel };

// The weights, each multiplied by a factor and rounded once. Refuses weights that would leave the
// range of their type. threads: as above.
Result<Tensor> scaled_weights(const Tensor& weights, const ChannelWeights& layout,
                              const std::vector<double>& factors, FactorOf channel,
                              int threads = 1);

// The effect of a constant added to each channel that is read on each channel that is written.
std::vector<double> sums_of_shift(const Tensor& weights, const ChannelWeights& layout,
                                  const std::vector<double>& shift, int threads = 1);

}  // namespace anneal
