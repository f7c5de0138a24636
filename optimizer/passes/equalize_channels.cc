// equalize_channels: channels that differ much in magnitude are brought nearer to each other.
//
//   c = Conv(x, w; b) epilogue=add($0,$1); r = Pointwise(c) program=min(max($0,0),6)
//   y = Conv(r, v)
//     =>   c = Conv(x, w*f; b*f) epilogue=add($0,$1)
//          r = Pointwise(c, 6*f) program=min(max($0,0),$1); y = Conv(r, v/f)
//
//   r = Pointwise(c) program=mul($0,sigmoid($0)); y = Conv(r, v)
//     =>   e = Pointwise(r, f) program=mul($0,$1); y = Conv(e, v/f)
//
// By the powers of two that the calibration table has for the tensor c, or r, one for each channel:
// for one scale of 8 bits that all channels share. The first where all that reads c, by way of
// layers that answer f*y to f*x, are convolutions and products by constant weights; bounds and
// addends are multiplied, too. Else the second, whose multiplication joins the layer that makes r;
// what else reads r is as before. Exact: powers of two round nothing, and where a weight or
// constant would leave the normal numbers all stays. Ranges in the table are of the values so made,
// "c/equalized" and "r/equalized".
#include <fmt/format.h>

#include <algorithm>

#include "anneal/optimizer/analysis/cross_layer_equalization.h"
#include "anneal/optimizer/analysis/query.h"
#include "anneal/optimizer/passes/passes.h"

namespace anneal {
namespace {

// Why the tensor's channels cannot be multiplied so; empty if they were.
std::string why_not_equalized(Graph& graph, ValueId value, const std::vector<int>& exponents) {
  const LayerId writer = producer(graph, value);
  auto channels = writer == LayerId::kNone ? std::nullopt : scalable_channels(graph, writer);
  if (!channels) channels = scalable_reads(graph, value);
  if (!channels) return "no convolution or product by constant weights reads it";
  if (channels->count != static_cast<int64_t>(exponents.size()))
    return fmt::format("it has {} channels, the table {} exponents", channels->count,
                       exponents.size());
  return scale_channels(graph, *channels, exponents)
             ? ""
             : "a weight or constant would leave the normal numbers";
}

}  // namespace

bool equalize_channels(Graph& graph, PassRun& run) {
  const auto& table = run.options.precision.ranges;
  if (!table) return false;
  bool changed = false;
  for (const auto& [tensor, exponents] : table->exponents) {
    if (!run.may_rewrite()) break;
    const ValueId value = graph.find_value(tensor);
    if (value == ValueId::kNone) continue;  // of another body, or equalized already
    if (const std::string why = why_not_equalized(graph, value, exponents); !why.empty()) {
      run.refused(tensor, "is not equalized: " + why);
      continue;
    }
    const auto [least, most] = std::ranges::minmax(exponents);
    run.did(tensor, fmt::format("its channels are multiplied by 2^{} to 2^{}", least, most));
    changed = true;
  }
  return changed;
}

}  // namespace anneal
