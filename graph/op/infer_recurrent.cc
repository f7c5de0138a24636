// Shape rules of Recurrent and LinearAttention.
#include <fmt/format.h>

#include "anneal/graph/op/infer_rules.h"

namespace anneal {
namespace {

using rules::refuse;

int64_t gates_of(RecurrentKind kind) {
  switch (kind) {
    case RecurrentKind::kRnn:
      return 1;
    case RecurrentKind::kGru:
      return 3;
    case RecurrentKind::kLstm:
      return 4;
  }
  refuse("an unknown kind");
}

void require_shape(const InferInputs& inputs, int i, const Shape& wanted, std::string_view what) {
  if (!inputs.has(i)) return;
  const Shape& shape = inputs.shape(i);
  const SizeTable& sizes = inputs.sizes();
  bool fits = shape.rank() == wanted.rank();
  for (int axis = 0; fits && axis < wanted.rank(); ++axis)
    fits = !rules::surely_differ(shape[axis], wanted[axis], sizes);
  for (int axis = 0; fits && axis < wanted.rank(); ++axis) inputs.demand(shape[axis], wanted[axis]);
  if (!fits)
    refuse(
        fmt::format("input {} ({}) is {}, not {}", i, what, sizes.text(shape), sizes.text(wanted)));
}

void require_coefficients(const std::vector<float>& values, std::string_view what) {
  if (!values.empty() && values.size() != 3)
    refuse(fmt::format("{} {} for 3 activations", values.size(), what));
}

}  // namespace

Facts infer(const Recurrent& op, const InferInputs& inputs) {
  SizeTable& sizes = inputs.sizes();
  rules::require_float(inputs, 0);
  const DataType dtype = inputs.dtype(0);
  const Shape& x = inputs.shape(0);
  if (x.rank() != 3) refuse(fmt::format("x of rank {}, not 3", x.rank()));
  const Shape& r = inputs.shape(2);
  if (r.rank() != 3) refuse(fmt::format("recurrent weights of rank {}, not 3", r.rank()));
  const int64_t directions = op.direction == Direction::kBidirectional ? 2 : 1;
  const int64_t gates = gates_of(op.kind);
  const Size batch = x[1], hidden = r[2], rows = sizes.mul(hidden, gates);
  const Shape state{directions, batch, hidden};
  for (const int i : {1, 2, 3, 5, 6, 7})
    if (inputs.has(i)) rules::require_dtype(inputs, i, dtype);
  require_shape(inputs, 1, {directions, rows, x[2]}, "weights");
  require_shape(inputs, 2, {directions, rows, hidden}, "recurrent weights");
  require_shape(inputs, 3, {directions, sizes.mul(rows, 2)}, "bias");
  if (inputs.has(4)) rules::require_dtype(inputs, 4, DataType::kI32);
  require_shape(inputs, 4, {batch}, "lengths");
  require_shape(inputs, 5, state, "initial hidden state");
  require_shape(inputs, 6, state, "initial cell");
  require_shape(inputs, 7, {directions, sizes.mul(hidden, 3)}, "peepholes");
  require_coefficients(op.alphas, "alphas");
  require_coefficients(op.betas, "betas");
  if (!(op.clip >= 0)) refuse(fmt::format("a clip of {}", op.clip));

  Facts facts = {rules::make_fact(dtype, {x[0], directions, batch, hidden}),
                 rules::make_fact(dtype, state)};
  if (op.kind == RecurrentKind::kLstm) facts.push_back(rules::make_fact(dtype, state));
  return facts;
}

Facts infer(const LinearAttention& op, const InferInputs& inputs) {
  enum Input { kQ, kK, kV, kState, kDecay, kBeta };
  const SizeTable& sizes = inputs.sizes();
  for (int i = 0; i < inputs.count(); ++i)
    if (inputs.has(i)) rules::require_dtype(inputs, i, DataType::kF32);
  const Shape &q = inputs.shape(kQ), &k = inputs.shape(kK), &v = inputs.shape(kV);
  if (q.rank() != 4 || k.rank() != 4 || v.rank() != 4)
    refuse(fmt::format("queries {}, keys {} and values {}", sizes.text(q), sizes.text(k),
                       sizes.text(v)));
  if (!q[2].known() || !k[2].known() || !v[2].known())
    refuse("numbers of heads known only at run time");
  const int64_t queries = q[2].value(), keys = k[2].value(), heads = v[2].value();
  if (queries < 1 || keys < 1 || heads < 1 || heads % keys != 0 ||
      (heads % queries != 0 && queries % heads != 0))
    refuse(fmt::format("{} heads of queries and {} of keys for {}", queries, keys, heads));
  const Size batch = v[0], length = v[1], k_width = q[3], v_width = v[3];
  require_shape(inputs, kQ, {batch, length, queries, k_width}, "queries");
  require_shape(inputs, kK, {batch, length, keys, k_width}, "keys");
  Shape state{batch, heads, k_width, v_width};
  if (op.transposed) state = {batch, heads, v_width, k_width};
  require_shape(inputs, kState, state, "state");
  const auto is_one = [&](int input, int axis) {
    return inputs.has(input) && inputs.shape(input).rank() > axis &&
           inputs.shape(input)[axis] == Size(1);
  };
  require_shape(inputs, kDecay, {batch, length, heads, is_one(kDecay, 3) ? Size(1) : k_width},
                "decay");
  require_shape(inputs, kBeta, {batch, length, is_one(kBeta, 2) ? Size(1) : Size(heads)}, "beta");
  return {rules::make_fact(DataType::kF32, {batch, length, std::max(queries, heads), v_width}),
          rules::make_fact(DataType::kF32, state)};
}

}  // namespace anneal
