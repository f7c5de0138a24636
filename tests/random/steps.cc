#include "anneal/tests/random/steps.h"

#include <iterator>

namespace anneal::random_graphs {
namespace {

// How often each family is taken.
struct Family {
  std::span<const Step> (*steps)();
  int weight, with_open_sizes, with_control, quantized;
};
constexpr Family kFamilies[] = {
    {elementwise_steps, 30, 20, 20, 12}, {integer_steps, 5, 3, 4, 2},
    {movement_steps, 20, 30, 12, 10},    {index_steps, 7, 7, 5, 2},
    {size_steps, 3, 14, 4, 1},           {product_steps, 10, 8, 6, 2},
    {window_steps, 12, 10, 4, 4},        {reduce_steps, 12, 8, 8, 2},
    {pattern_steps, 8, 12, 3, 0},        {recurrent_steps, 1, 1, 1, 0},
    {control_steps, 0, 0, 30, 0},        {quantized_steps, 0, 0, 0, 45},
};

int weight_of(const Family& family, Kind kind) {
  switch (kind) {
    case Kind::kOpen:
    case Kind::kRange:
      return family.with_open_sizes;
    case Kind::kControl:
      return family.with_control;
    case Kind::kQuantized:
      return family.quantized;
    default:
      return family.weight;
  }
}

}  // namespace

std::string_view to_string(Kind kind) {
  constexpr std::string_view names[] = {"fixed", "open", "range", "control", "half", "quantized"};
  return names[static_cast<size_t>(kind)];
}

std::optional<Kind> kind_from_name(std::string_view name) {
  for (const Kind kind : kAllKinds)
    if (to_string(kind) == name) return kind;
  return std::nullopt;
}

const Step& step_for(Kind kind, int depth, RandomNumbers& random) {
  int64_t all = 0;
  const auto weight = [&](const Family& family) -> int64_t {
    // Bodies hold few other bodies.
    const int here = weight_of(family, kind);
    return family.steps == control_steps && depth > 0 ? here / 6 : here;
  };
  for (const Family& family : kFamilies) all += weight(family);
  int64_t at = random.below(all);
  const Family* family = kFamilies;
  while (at >= weight(*family)) at -= weight(*family++);
  const auto steps = family->steps();
  all = 0;
  for (const Step& step : steps) all += step.weight;
  at = random.below(all);
  const Step* step = steps.data();
  while (at >= step->weight) at -= step++->weight;
  return *step;
}

}  // namespace anneal::random_graphs
