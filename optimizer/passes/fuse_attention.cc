// fuse_attention: two products with a softmax between them become one attention layer.
//
//   s = MatMul(q, k^T); p = Pointwise(s, mask); w = Softmax(p); y = MatMul(w, v)
//     =>   y = Attention(q, k, v, mask) score=p
//
// Everything elementwise between the first product and the softmax is the score; after the softmax
// only rounding, and 0 for rows whose scores are all hidden: for NaN, as torch guards a softmax
// with a mask, or by a test of the scores or the mask. A factor that q, k or k^T is scaled with
// goes into the score, and scales the sums. Heads of k and v that were repeated for groups of q's
// heads are read without the repetition (an Expand or Tile of an axis of size 1, or groups of heads
// as rows of one product). Three axes, or two, are four with leading ones. Transposes of q, k and v
// become one each, which is a view where the kernel reads strides. Not if scores or weights are
// read elsewhere. Runs before fuse_pointwise and fuse_epilogue, which would join its parts with
// other layers. Changes numerics: neither scores nor weights are rounded to 16 bits unless the
// model casts them, factors become one, the softmax divides last, and a row with a score that is
// NaN is NaN, also behind a guard. Where one of two masks is tested, a row that the other one hides
// is 0 as well; the model's is NaN.
#include <fmt/format.h>

#include <algorithm>

#include "anneal/core/dtype_kinds.h"
#include "anneal/optimizer/analysis/attention_pattern.h"
#include "anneal/optimizer/analysis/query.h"
#include "anneal/optimizer/passes/passes.h"
#include "anneal/optimizer/programs/join_programs.h"
#include "anneal/optimizer/programs/rewrite_program.h"

namespace anneal {
namespace {

// With ones before it.
Shape of_rank(const Shape& shape, int rank) {
  Shape result = Shape::filled(rank - shape.rank(), 1);
  for (const Size size : shape) result.push_back(size);
  return result;
}
Shape leading(const Shape& shape) {
  return Shape(shape.span().first(static_cast<size_t>(shape.rank()) - 2));
}

// [batch, heads, queries, keys] of the scores as the softmax sees them.
struct HeadSpace {
  Size batch, heads, queries, keys;
};

// How many heads k (or v) has, whose leading axes are `lead`, in a product whose other side is
// [..., rows, keys]. nullopt if that is not an attention with these heads.
std::optional<Size> heads_of(const HeadSpace& space, const Shape& other, const Shape& lead,
                             SizeTable& sizes) {
  const Size rows = other[other.rank() - 2];
  const Shape around = leading(other);
  if (around.rank() <= 2 && rows == space.queries &&
      of_rank(around, 2) == Shape{space.batch, space.heads}) {
    if (lead.rank() > 2) return std::nullopt;
    const Shape both = of_rank(lead, 2);
    if (both[0] != space.batch) return std::nullopt;
    if (both[1] == space.heads || both[1] == Size(1)) return both[1];
    return std::nullopt;
  }
  if (lead != around) return std::nullopt;
  if (rows == space.queries) {
    Size product = 1;
    for (const Size size : around) product = sizes.mul(product, size);
    if (product == sizes.mul(space.batch, space.heads)) return space.heads;
    return std::nullopt;
  }
  if (around.rank() != 2 || around[0] != space.batch) return std::nullopt;
  if (!around[1].known() || !space.heads.known() || around[1].value() == 0 ||
      space.heads.value() % around[1].value() != 0)
    return std::nullopt;
  const Size group = space.heads.value() / around[1].value();
  if (rows == sizes.mul(space.queries, group)) return around[1];
  return std::nullopt;
}

// Layers on the way to q, k and v, added as they are needed.
class Operands {
 public:
  Operands(Graph& graph, std::string name) : graph_(graph), name_(std::move(name)) {}

  // The value with its last two axes swapped: behind the Transpose that gives it, one of the two,
  // also where an elementwise layer, such as a cast, follows the Transpose.
  ValueId transposed(ValueId value) {
    if (const LayerId id = producer(graph_, value); const auto* single = as_elementwise(graph_, id))
      if (const ValueId from = graph_.layer(id).inputs[0];
          graph_.layer(id).inputs.size() == 1 && !single->program.uses_index() &&
          op_as<Transpose>(graph_, producer(graph_, from))) {
        const Pointwise op = *single;
        const LayerId added =
            graph_.add({.name = graph_.layer(id).name, .op = op, .inputs = {transposed(from)}});
        return graph_.layer(added).outputs[0];
      }
    const int rank = shape_of(graph_, value).rank();
    std::vector<int64_t> permutation;
    for (int axis = 0; axis < rank; ++axis) permutation.push_back(axis);
    ValueId source = value;
    const LayerId id = producer(graph_, value);
    if (const auto* before = op_as<Transpose>(graph_, id);
        before && graph_.layer(id).epilogues.empty()) {
      permutation = before->permutation;
      source = graph_.layer(id).inputs[0];
    }
    std::swap(permutation[static_cast<size_t>(rank) - 2],
              permutation[static_cast<size_t>(rank) - 1]);
    if (std::is_sorted(permutation.begin(), permutation.end())) return source;
    const LayerId added = graph_.add({.name = name_ + "/transposed",
                                      .op = Transpose{std::move(permutation)},
                                      .inputs = {source}});
    return graph_.layer(added).outputs[0];
  }

  // nullopt if the shape cannot be given to a Reshape.
  std::optional<ValueId> reshaped(ValueId value, const Shape& shape) {
    if (shape_of(graph_, value) == shape) return value;
    const LayerId id = producer(graph_, value);
    if (op_as<Reshape>(graph_, id) && graph_.layer(id).epilogues.empty() &&
        shape_of(graph_, graph_.layer(id).inputs[0]) == shape)
      return graph_.layer(id).inputs[0];
    const auto sizes = shape_value(shape);
    if (!sizes) return std::nullopt;
    const LayerId added = graph_.add(
        {.name = name_ + "/heads", .op = Reshape{.allow_zero = true}, .inputs = {value, *sizes}});
    return graph_.layer(added).outputs[0];
  }

  // The value before it was repeated along a new axis after the heads: [B,G,S,D] for this value
  // [B,H,S,D].
  std::optional<ValueId> unrepeated(ValueId value) {
    const Shape shape = shape_of(graph_, value);
    const LayerId joins = producer(graph_, value);
    if (!op_as<Reshape>(graph_, joins) || !graph_.layer(joins).epilogues.empty())
      return std::nullopt;
    const ValueId whole = graph_.layer(joins).inputs[0];
    const LayerId repeats = producer(graph_, whole);
    if ((!op_as<Expand>(graph_, repeats) && !op_as<Tile>(graph_, repeats)) ||
        !graph_.layer(repeats).epilogues.empty())
      return std::nullopt;
    const ValueId single = graph_.layer(repeats).inputs[0];
    const Shape wide = shape_of(graph_, whole);
    if (wide.rank() != 5 ||
        shape_of(graph_, single) != Shape{wide[0], wide[1], 1, wide[3], wide[4]})
      return std::nullopt;
    if (shape != Shape{wide[0], graph_.sizes().mul(wide[1], wide[2]), wide[3], wide[4]})
      return std::nullopt;
    return reshaped(single, {wide[0], wide[1], wide[3], wide[4]});
  }

 private:
  std::optional<ValueId> shape_value(const Shape& shape) {
    const std::string name = name_ + "/shape";
    if (known(shape)) {
      const Dims dims = dims_of(shape);
      return graph_.add_constant(
          name, Tensor::of<int64_t>(DataType::kI64, {dims.rank()},
                                    std::vector<int64_t>(dims.begin(), dims.end())));
    }
    const auto decided = graph_.symbols_of_inputs();
    for (const Size size : shape)
      if (!is_made_of(graph_.sizes(), size, decided)) return std::nullopt;
    const LayerId added = graph_.add(
        {.name = name, .op = SizeTensor{{shape.begin(), shape.end()}, false}, .inputs = {}});
    return graph_.layer(added).outputs[0];
  }

  Graph& graph_;
  std::string name_;
};

// index() counts in four axes instead of `rank`.
Program in_four_axes(const Program& program, int rank) {
  if (rank == 4 || !program.uses_index()) return program;
  return rewrite_program(
      program,
      [&](ProgramBuilder& builder, size_t reg, std::span<const Reg>) -> std::optional<Reg> {
        const Instruction& one = program.code()[reg];
        if (one.opcode != Opcode::kIndex) return std::nullopt;
        return builder.index(static_cast<int>(one.immediate) + 4 - rank);
      });
}

class Fusion {
 public:
  Fusion(Graph& graph, const AttentionPattern& pattern)
      : graph_(graph), pattern_(pattern), operands_(graph, graph.layer(pattern.weighed).name) {}

  // Why not; empty if it was done.
  std::string run(PassRun& run) {
    const Layer &scores = graph_.layer(pattern_.scores), &weighed = graph_.layer(pattern_.weighed);
    const Shape space = shape_of(graph_, graph_.layer(pattern_.softmax).outputs[0]);
    if (pattern_.read_elsewhere) return "its scores or weights are read elsewhere";
    if (space.rank() > 4) return "its scores have more than 4 axes";
    const DataType dtype = dtype_of(scores.inputs[0]);
    v_ = weighed.inputs[1];
    const DataType result = dtype_of(weighed.outputs[0]);
    if (dtype_of(v_) != dtype && accumulator(dtype) == dtype_of(v_) && result == dtype_of(v_))
      v_ = before_widening(v_);
    widens_ = weighed.epilogues.empty() && result != dtype;
    if (!is_float(dtype) || dtype_of(scores.inputs[1]) != dtype || dtype_of(v_) != dtype ||
        (result != dtype && result != accumulator(dtype)))
      return "q, k, v and the result have different types";
    if (weighed.outputs.size() != 1) return "its result has an epilogue of several results";
    const Shape four = of_rank(space, 4);
    space_ = {four[0], four[1], four[2], four[3]};
    if (std::string why_not = find_operands(scores, weighed); !why_not.empty()) return why_not;

    auto score = score_program(graph_, pattern_, factors_);
    if (!score) return score.reason();
    const auto rule = weight_rule(graph_, pattern_, *score);
    if (!rule) return "its weights are changed before they meet v";
    for (size_t i = 1; i < score->inputs.size(); ++i)
      if (shape_of(graph_, score->inputs[i]).rank() > 4)
        return "its scores meet a value of more axes";
    return add(in_four_axes(score->program, space.rank()), score->inputs, rule->hidden_is_zero,
               run);
  }

 private:
  DataType dtype_of(ValueId value) const { return graph_.value(value).type().dtype; }

  // The value that this one is in a wider float type.
  ValueId before_widening(ValueId value) const {
    const LayerId id = producer(graph_, value);
    const auto* cast = as_elementwise(graph_, id);
    if (!cast || graph_.layer(id).inputs.size() != 1) return value;
    const Instruction& only = cast->program.code()[cast->program.results()[0].reg];
    return only.opcode == Opcode::kInput ? graph_.layer(id).inputs[0] : value;
  }

  // [B,H,L,D], [B,G,S,D] and [B,G,S,E], without what only scales or repeats them.
  std::string find_operands(const Layer& scores, const Layer& weighed) {
    const auto first = std::get<MatMul>(scores.op), second = std::get<MatMul>(weighed.op);
    ValueId q = scores.inputs[0], k = scores.inputs[1], v = v_;
    const Shape products = shape_of(graph_, scores.outputs[0]);
    const Shape weights = shape_of(graph_, weighed.inputs[0]);
    q = without_factors(q);
    if (first.transpose_a) q = without_factors(operands_.transposed(q));
    k = without_factors(k);
    if (!first.transpose_b) k = without_factors(operands_.transposed(k));
    if (second.transpose_b) v = operands_.transposed(v);
    const Shape of_q = shape_of(graph_, q), of_k = shape_of(graph_, k), of_v = shape_of(graph_, v);
    if (of_rank(leading(of_q), products.rank() - 2) != leading(products))
      return "q is repeated for several heads of k";
    SizeTable& sizes = graph_.sizes();
    const auto k_heads = heads_of(space_, products, leading(of_k), sizes);
    const auto v_heads = heads_of(space_, weights, leading(of_v), sizes);
    if (!k_heads || !v_heads) return "the axes of its products are no batch and heads";
    if (*k_heads != *v_heads) return "k and v have different numbers of heads";
    const auto last = [](const Shape& shape) { return shape[shape.rank() - 1]; };
    if (products[products.rank() - 1] != space_.keys || of_k[of_k.rank() - 2] != space_.keys ||
        of_v[of_v.rank() - 2] != space_.keys)
      return "k and v may have different lengths";
    const auto q4 = operands_.reshaped(q, {space_.batch, space_.heads, space_.queries, last(of_q)});
    const auto k4 = operands_.reshaped(k, {space_.batch, *k_heads, space_.keys, last(of_k)});
    const auto v4 = operands_.reshaped(v, {space_.batch, *v_heads, space_.keys, last(of_v)});
    if (!q4 || !k4 || !v4) return "its sizes are known only from values";
    inputs_ = {*q4, *k4, *v4};
    const auto single_k = operands_.unrepeated(*k4), single_v = operands_.unrepeated(*v4);
    if (single_k && single_v && shape_of(graph_, *single_k)[1] == shape_of(graph_, *single_v)[1])
      inputs_ = {*q4, *single_k, *single_v};
    return {};
  }

  ValueId without_factors(ValueId value) {
    for (ScaleFactor factor; const auto source = unscaled(graph_, value, factor);) {
      factors_.push_back(factor);
      value = *source;
    }
    return value;
  }

  std::string add(Program score, const std::vector<ValueId>& further, bool hidden_is_zero,
                  PassRun& run) {
    const Layer& weighed = graph_.layer(pattern_.weighed);
    const Layer& softmax = graph_.layer(pattern_.softmax);
    inputs_.insert(inputs_.end(), further.begin() + 1, further.end());
    NewLayer added{.name = weighed.name,
                   .op = Attention{std::move(score), hidden_is_zero},
                   .inputs = inputs_,
                   .op_input_count = static_cast<int>(inputs_.size()),
                   .origins = origins()};
    const Shape result = {space_.batch, space_.heads, space_.queries,
                          shape_of(graph_, inputs_[2])[3]};
    if (!weighed.epilogues.empty()) {
      if (shape_of(graph_, weighed.outputs[0]) != result)
        return "its result has an epilogue in another shape";
      added.epilogues = weighed.epilogues;
      added.inputs.insert(added.inputs.end(), weighed.inputs.begin() + weighed.op_input_count,
                          weighed.inputs.end());
    }
    if (widens_) {
      ProgramBuilder sums;
      const DataType wide = dtype_of(weighed.outputs[0]);
      added.epilogues = {sums.finish(sums.input(0, wide), wide)};
    }
    if (std::string why_not = run.ask_targets(graph_, added); !why_not.empty()) return why_not;
    const Saving saved = saving();
    const std::string name = softmax.name;
    const LayerId attention = graph_.add(std::move(added));
    const ValueId y = graph_.layer(attention).outputs[0];
    if (!put_in_place(y)) return "its sizes are known only from values";
    graph_.swap_names(pattern_.weighed, attention);
    run.did(name, fmt::format("is part of \"{}\", one layer", graph_.layer(attention).name), saved);
    return {};
  }

  // y, shaped as the second product was, takes its place; or that of a Reshape behind it, if that
  // has y's shape.
  bool put_in_place(ValueId y) {
    ValueId old = graph_.layer(pattern_.weighed).outputs[0];
    const Shape& shape = shape_of(graph_, y);
    if (const LayerId user = sole_user(graph_, old);
        shape_of(graph_, old) != shape && op_as<Reshape>(graph_, user) &&
        graph_.layer(user).epilogues.empty() &&
        shape_of(graph_, graph_.layer(user).outputs[0]) == shape)
      old = graph_.layer(user).outputs[0];
    const auto now = operands_.reshaped(y, shape_of(graph_, old));
    if (!now) return false;
    graph_.replace_uses(old, *now);
    graph_.swap_names(old, *now);
    return true;
  }

  std::vector<std::string> origins() const {
    std::vector<LayerId> parts = {pattern_.scores};
    parts.insert(parts.end(), pattern_.before.begin(), pattern_.before.end());
    parts.push_back(pattern_.softmax);
    parts.insert(parts.end(), pattern_.after.begin(), pattern_.after.end());
    parts.push_back(pattern_.weighed);
    std::vector<std::string> names;
    for (const LayerId id : parts) {
      const auto& own = graph_.layer(id).origins;
      names.insert(names.end(), own.begin(), own.end());
    }
    return names;
  }

  // Each value between the products was written once and read once.
  Saving saving() const {
    Saving saved = saving_of(graph_, graph_.layer(pattern_.scores).outputs[0]);
    const auto add = [&](LayerId id) {
      if (op_as<Reshape>(graph_, id)) return;
      const Saving one = saving_of(graph_, graph_.layer(id).outputs[0]);
      saved.launches += one.launches, saved.bytes += one.bytes;
    };
    for (const LayerId id : pattern_.before) add(id);
    add(pattern_.softmax);
    for (const LayerId id : pattern_.after) add(id);
    return saved;
  }

  Graph& graph_;
  const AttentionPattern& pattern_;
  Operands operands_;
  HeadSpace space_;
  ValueId v_ = ValueId::kNone;
  bool widens_ = false;  // the result is what sums are in, and q, k and v are shorter
  std::vector<ScaleFactor> factors_;
  std::vector<ValueId> inputs_;
};

bool fuse_attention_at(Graph& graph, LayerId id, PassRun& run) {
  const auto pattern = attention_around(graph, id);
  if (!pattern) return false;
  const std::string name = graph.layer(id).name;
  const std::string why_not = Fusion(graph, *pattern).run(run);
  if (!why_not.empty()) run.refused(name, "does not become one attention layer: " + why_not);
  return why_not.empty();
}

}  // namespace

bool fuse_attention(Graph& graph, PassRun& run) { return sweep(graph, run, fuse_attention_at); }

}  // namespace anneal
