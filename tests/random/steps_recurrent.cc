// LSTM, GRU and RNN.
#include "anneal/tests/random/steps.h"

namespace anneal::random_graphs {
namespace {

bool recurrent(Maker& maker) {
  RandomNumbers& random = maker.random();
  const auto x = maker.choose([](const Value& v) {
    return v.is_float() && v.rank() == 3 && v.dims[2].constant() && v.largest() <= 16;
  });
  if (!x) return false;
  const std::string op = random.one_of({"LSTM", "GRU", "RNN"});
  const Extent gates = op == "LSTM" ? 4 : op == "GRU" ? 3 : 1, hidden = random.between(1, 4);
  const std::string direction = random.one_of({"forward", "reverse", "bidirectional"});
  const Extent directions = direction[0] == 'b' ? 2 : 1;
  std::vector<Value> inputs = {
      *x, float_constant(maker, {directions, gates * hidden, x->dims[2]}, -.5, .5, false),
      float_constant(maker, {directions, gates * hidden, hidden}, -.5, .5, false)};
  if (random.one_in(2))
    inputs.push_back(float_constant(maker, {directions, gates * hidden * 2}, -.5, .5, false));
  const Value all{.dims = {x->dims[0], directions, x->dims[1], hidden}, .low = -1, .high = 1};
  const Value last{.dims = {directions, x->dims[1], hidden}, .low = -1, .high = 1};
  if (!is_small(all.dims)) return false;
  maker.apply_all(op.c_str(), inputs, {all, last}, [&](auto& node) {
    set(node, "hidden_size", hidden.in[0]);
    set(node, "direction", direction);
    if (op == "GRU" && random.one_in(2)) set(node, "linear_before_reset", int64_t{1});
  });
  return true;
}

constexpr Step kSteps[] = {{"recurrent", recurrent, 1}};

}  // namespace

std::span<const Step> recurrent_steps() { return kSteps; }

}  // namespace anneal::random_graphs
