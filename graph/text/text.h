// The text form of a graph (docs/graph_text.md). Tests compare it, `inspect` shows it, and pass
// tests parse it.
//
//   size N in 1..32 opt 8
//   graph mnist(x: f32[N,1,28,28])
//     const w: f32[2,1,1,1] = {0.5, -1}
//     c = Conv(x, w) strides=[1,1] pads_begin=[0,0] pads_end=[0,0] dilations=[1,1]
//     r = Pointwise(c) program="(f32)->(f32) max($0,0f32)"
//     return r as y
#pragma once
#include <string>
#include <string_view>

#include "anneal/graph/graph.h"

namespace anneal {

enum class Constants : uint8_t {
  kWhole,   // every element, exactly: parse_graph gives an equal graph
  kElided,  // more than 16 elements become {...}, which parse_graph refuses
};
std::string to_string(const Graph& graph, Constants constants = Constants::kElided);
std::string to_string(const Type& type, const SizeTable& sizes);  // "f32[N,3]", "seq(i64[])"
Type parse_type(std::string_view text, SizeTable& sizes);         // fails with kInvalidArgument

// Constants may also be written `random(SEED)` (normal for floats, small integers else) for tests.
// Fails with kInvalidArgument naming the line.
Graph parse_graph(std::string_view text);

}  // namespace anneal
