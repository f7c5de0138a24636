// Steps: each adds a few nodes to a random graph.
#pragma once
#include <optional>
#include <span>

#include "anneal/tests/random/maker.h"

namespace anneal::random_graphs {

struct Step {
  const char* name;
  bool (*add)(Maker&);  // false: there are no operands for it, and nothing was added
  int weight = 1;       // how often it is taken
};

// By families.
std::span<const Step> elementwise_steps();
std::span<const Step> integer_steps();
std::span<const Step> movement_steps();
std::span<const Step> index_steps();
std::span<const Step> size_steps();
std::span<const Step> product_steps();
std::span<const Step> window_steps();
std::span<const Step> reduce_steps();
std::span<const Step> pattern_steps();
std::span<const Step> recurrent_steps();
std::span<const Step> control_steps();
std::span<const Step> quantized_steps();
const Step& step_for(Kind kind, int depth, RandomNumbers& random);

// Dims of the result of an elementwise operator; nullopt if they do not fit.
std::optional<Extents> broadcast(const Extents& a, const Extents& b);
// An integer vector or scalar whose elements are these, computed from the sizes of other values
// where they are no constants; nullopt if no expression is found.
std::optional<Value> size_vector(Maker& maker, const Extents& elements);
std::optional<Value> size_scalar(Maker& maker, const Extent& element);
// A f32 value of the same dims, made from it by a function of one operand.
Value unary(Maker& maker, const Value& x);

}  // namespace anneal::random_graphs
