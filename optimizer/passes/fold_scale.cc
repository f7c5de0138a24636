// fold_scale: constants that multiply the input or the result of a convolution or matrix product
// are folded into its weights; of added constants, one per channel is left.
//
//   y = Conv(x, w; s, t) epilogue=f(add(mul($0,$1),$2))
//     =>   y = Conv(x, w*s; t) epilogue=f(add($0,$1))
//   c = Conv(x, w); y = Pointwise(c, s, t) program=add(mul($0,$1),$2)
//     =>   y = Conv(x, w*s; t) epilogue=add($0,$1)
//   a = Pointwise(x, s) program=mul($0,$1); y = MatMul(a, w)   =>   y = MatMul(x, s*w)
//
// For float weights that are constant and this layer's own. Elementwise layers after it count as
// its epilogue as long as they only multiply and add constants, and each is read by the next alone.
// A layer before a convolution may add constants only if nothing is padded, and is folded only if
// it has no other reader. Large weights stay: a product by them takes far longer than an
// elementwise step, and a build would copy them. Changes numerics: weights are rounded again, once;
// in 16 bits not where that would lose them. Runs before the precision passes, which need the final
// weights.
#include <fmt/format.h>

#include <algorithm>

#include "anneal/core/new_tensor.h"
#include "anneal/optimizer/analysis/channel_weights.h"
#include "anneal/optimizer/analysis/decisions.h"
#include "anneal/optimizer/analysis/query.h"
#include "anneal/optimizer/passes/passes.h"
#include "anneal/optimizer/programs/affine.h"
#include "anneal/optimizer/programs/join_programs.h"
#include "anneal/optimizer/programs/rewrite_program.h"

namespace anneal {
namespace {

constexpr size_t kLargeBytes = 16 << 20;

constexpr const char* kDecided = "its results are compared, or become whole numbers";

std::vector<const Tensor*> constants_of(const Graph& graph, std::span<const ValueId> values) {
  std::vector<const Tensor*> constants;
  for (const ValueId value : values)
    constants.push_back(value == ValueId::kNone ? nullptr : graph.constant(value));
  return constants;
}

bool has_other_readers(const Graph& graph, ValueId weights) {
  return graph.value(weights).users.size() != 1 || graph.is_output(weights);
}

ptrdiff_t arithmetic_in(const Program& program) {
  const auto code = program.code();
  return std::count_if(code.begin(), code.end(), [](const Instruction& one) {
    return operand_count(one.opcode) > 0 && one.opcode != Opcode::kRound;
  });
}

// The number that all elements are, unless other weights may take their place.
std::optional<double> settled_value(const Tensor& tensor, const PassOptions& options) {
  return options.weights_may_change && tensor.count() > 1 ? std::nullopt : uniform_value(tensor);
}

// The register of the program's input 0, if it reads that.
std::optional<size_t> accumulator_of(const Program& program) {
  const auto code = program.code();
  for (size_t reg = 0; reg < code.size(); ++reg)
    if (code[reg].opcode == Opcode::kInput && code[reg].immediate == 0) return reg;
  return std::nullopt;
}

// The program with a*x + b in its register `reg` replaced by x + shift.
Program with_shift(const Program& program, size_t x, size_t reg, const Tensor& shift,
                   const PassOptions& options) {
  const RegisterType type = program.code()[reg].type;
  const std::optional<double> uniform = settled_value(shift, options);
  const int extra = static_cast<int>(program.inputs().size());
  return rewrite_program(
      program, [&](ProgramBuilder& builder, size_t at, std::span<const Reg>) -> std::optional<Reg> {
        if (at != reg) return std::nullopt;
        const Reg plain = builder.input(static_cast<int>(x), program.inputs()[x]);
        if (uniform == 0) return plain;
        return builder.apply(
            Opcode::kAdd, plain,
            uniform ? builder.constant(type, *uniform) : builder.input(extra, shift.dtype()));
      });
}

// A layer's program on its accumulators, and the elementwise layers after it that are part of the
// scaling.
struct ScaledStores {
  Program program;
  std::vector<ValueId> further;      // its inputs; the accumulator is kNone
  LayerId end = LayerId::kNone;      // the last layer
  std::vector<std::string> origins;  // of all
};

// A layer in the place of another, with other inputs, weights and epilogue.
void replace(Graph& graph, LayerId id, std::vector<ValueId> inputs, Program epilogue,
             const ScaledStores& stores) {
  const Layer& layer = graph.layer(id);
  const std::vector<ValueId> replaced = graph.layer(stores.end).outputs;
  ProgramBuilder builder;
  const DataType dtype = graph.value(inputs[0]).type().dtype;
  const bool only_stores = epilogue == builder.finish(builder.input(0, accumulator(dtype)), dtype);
  NewLayer added{.name = layer.name,
                 .op = layer.op,
                 .inputs = std::move(inputs),
                 .op_input_count = layer.op_input_count,
                 .origins = stores.origins};
  if (!only_stores) added.epilogues = {std::move(epilogue)};
  for (const ValueId output : replaced) added.output_types.push_back(graph.value(output).type());
  const LayerId by = graph.add(std::move(added));
  take_over(graph, replaced, by);
  graph.swap_names(id, by);
}

class Fold {
 public:
  Fold(Graph& graph, LayerId id, PassRun& run, const ChannelWeights& layout)
      : graph_(graph), id_(id), run_(run), layout_(layout), layer_(graph.layer(id)) {
    weights_ = layer_.inputs[layout.input];
  }

  // a*$0 + b in the epilogue, or in a layer that counts as its part.
  bool after() {
    ScaledStores stores = own_stores();
    while (take_reader(stores)) continue;
    const Program& program = stores.program;
    const auto affine =
        affine_part(program, 0, constants_of(graph_, stores.further), graph_.sizes());
    if (!affine) return false;
    Program shifted = with_shift(program, 0, affine->reg, affine->shift, run_.options);
    const bool unscaled = uniform_value(affine->factor) == 1;
    if (!unscaled && decides(stores, affine->reg)) return refuse(kDecided);
    if (unscaled && arithmetic_in(shifted) >= arithmetic_in(program)) return false;
    const int rank = result_shape().rank();
    const auto factors =
        per_channel_values(affine->factor, rank, layout_.result_axis, layout_.written_count);
    if (!factors) return refuse("its results are scaled by position, not by channel");
    ValueId weights = weights_;
    if (!unscaled && !scale(*factors, FactorOf::kWrittenChannel, weights)) return false;
    if (shifted.inputs().size() > stores.further.size())
      stores.further.push_back(graph_.add_constant(layer_.name + "/shift", affine->shift));
    stores.program = std::move(shifted);
    finish(layer_.inputs[layout_.data_input], weights, std::move(stores));
    run_.did(name_, unscaled ? "its constants became one" : "its weights are scaled");
    return true;
  }

  // A Pointwise layer before it, all of which is affine.
  bool before() {
    const ValueId data = layer_.inputs[layout_.data_input];
    const LayerId made_by = producer(graph_, data);
    const auto* pointwise = op_as<Pointwise>(graph_, made_by);
    if (!pointwise || sole_user(graph_, data) != id_ || graph_.value(data).users.size() != 1)
      return false;
    const Layer& scaling = graph_.layer(made_by);
    const Program& program = pointwise->program;
    if (!scaling.epilogues.empty() || program.results().size() != 1) return false;
    for (size_t x = 0; x < scaling.inputs.size(); ++x) {
      if (graph_.constant(scaling.inputs[x]) ||
          graph_.value(scaling.inputs[x]).type() != graph_.value(data).type())
        continue;
      const auto affine =
          affine_part(program, x, constants_of(graph_, scaling.inputs), graph_.sizes());
      if (affine && affine->reg == program.results()[0].reg)
        return take(scaling, scaling.inputs[x], data, *affine);
    }
    return false;
  }

 private:
  ScaledStores own_stores() const {
    return {store_program(layer_, graph_.value(layer_.outputs[0]).type().dtype),
            epilogue_inputs(layer_), id_, layer_.origins};
  }

  // Adds the layer that alone reads what is stored, if it only multiplies and adds constants.
  bool take_reader(ScaledStores& stores) const {
    const Layer& end = graph_.layer(stores.end);
    if (end.outputs.size() != 1) return false;
    const ValueId stored = end.outputs[0];
    const LayerId reader = sole_user(graph_, stored);
    const auto* pointwise = op_as<Pointwise>(graph_, reader);
    if (!pointwise) return false;
    const Layer& layer = graph_.layer(reader);
    const Program& program = pointwise->program;
    if (!layer.epilogues.empty() || layer.outputs.size() != 1 ||
        graph_.value(stored).type() != graph_.value(layer.outputs[0]).type())
      return false;
    const auto at = std::ranges::find(layer.inputs, stored) - layer.inputs.begin();
    const auto affine = affine_part(program, static_cast<size_t>(at),
                                    constants_of(graph_, layer.inputs), graph_.sizes());
    if (!affine || affine->reg != program.results()[0].reg) return false;
    auto joined = join_programs({stores.program, stores.further, end.outputs},
                                {program, layer.inputs, layer.outputs}, {});
    if (!joined) return false;
    stores.program = std::move(joined->program);
    stores.further = std::move(joined->inputs);
    stores.end = reader;
    stores.origins.insert(stores.origins.end(), layer.origins.begin(), layer.origins.end());
    return true;
  }

  bool take(const Layer& scaling, ValueId x, ValueId data, const Affine& affine) {
    const int rank = graph_.value(data).type().shape.rank();
    const auto values = [&](const Tensor& tensor) {
      return per_channel_values(tensor, rank, layout_.data_axis, layout_.read_count);
    };
    const auto factors = values(affine.factor), shift = values(affine.shift);
    if (!factors || !shift) return refuse("its input is scaled by position, not by channel");
    const bool shifts = settled_value(affine.shift, run_.options) != 0;
    if (shifts && !sees_every_weight())
      return refuse("what it reads is shifted, and then padded with zeros");
    const Tensor& old_weights = *graph_.constant(weights_);
    if (shifts && layout_.outer != 1) return refuse("what it reads is shifted, for many matrices");
    ScaledStores stores = own_stores();
    if (const auto at = accumulator_of(stores.program); at && decides(stores, *at))
      return refuse(kDecided);
    ValueId weights = weights_;
    if (!scale(*factors, FactorOf::kReadChannel, weights)) return false;
    if (shifts)
      stores.program = add_first(stores.program,
                                 sums_of_shift(old_weights, layout_, *shift, run_.options.threads),
                                 stores.further);
    stores.origins.insert(stores.origins.begin(), scaling.origins.begin(), scaling.origins.end());
    const Saving saved = saving_of(graph_, data);
    const std::string scaling_name = scaling.name;
    finish(x, weights, std::move(stores));
    run_.did(name_, fmt::format("its weights took \"{}\"", scaling_name), saved);
    return true;
  }

  // Whether a result that is off in its last bits may be another whole number.
  bool decides(const ScaledStores& stores, size_t reg) const {
    const ValueId stored = graph_.layer(stores.end).outputs[0];
    return decided_registers(stores.program, {.by_readers = is_decided(graph_, stored)})[reg];
  }

  // Whether each result is a sum over all weights of its channel.
  bool sees_every_weight() const {
    if (std::holds_alternative<ConvTranspose>(layer_.op)) return false;
    const auto* conv = std::get_if<Conv>(&layer_.op);
    const auto none = [](const std::vector<int64_t>& pads) {
      return std::all_of(pads.begin(), pads.end(), [](int64_t pad) { return pad == 0; });
    };
    return !conv || (none(conv->pads_begin) && none(conv->pads_end));
  }

  // The program of $0 + sums, one per channel of the result.
  Program add_first(const Program& program, const std::vector<double>& sums,
                    std::vector<ValueId>& further) {
    const DataType dtype = program.inputs()[0];
    Dims dims;
    const int rank = result_shape().rank();
    for (int axis = layout_.result_axis; axis < rank; ++axis)
      dims.push_back(axis == layout_.result_axis ? layout_.written_count : 1);
    NewTensor fresh = allocate_tensor(dtype, dims);
    for (size_t i = 0; i < sums.size(); ++i)
      store_scalar(
          dtype,
          dtype == DataType::kF64 ? Scalar::of(sums[i]) : Scalar::of(static_cast<float>(sums[i])),
          fresh.data.data() + i * size_of(dtype));
    const auto accumulated = accumulator_of(program);
    if (!accumulated) return program;
    further.push_back(graph_.add_constant(layer_.name + "/shift", fresh.tensor));
    const int extra = static_cast<int>(program.inputs().size());
    return rewrite_program(
        program,
        [&](ProgramBuilder& builder, size_t at, std::span<const Reg>) -> std::optional<Reg> {
          if (at != *accumulated) return std::nullopt;
          return builder.apply(Opcode::kAdd, builder.input(0, dtype), builder.input(extra, dtype));
        });
  }

  bool scale(const std::vector<double>& factors, FactorOf channel, ValueId& weights) {
    if (has_other_readers(graph_, weights_)) return refuse("others read its weights, too");
    if (graph_.constant(weights_)->bytes().size() >= kLargeBytes)
      return refuse("its weights are large: an elementwise step is cheaper than a copy of them");
    const auto scaled =
        scaled_weights(*graph_.constant(weights_), layout_, factors, channel, run_.options.threads);
    if (!scaled) return refuse(scaled.reason());
    weights = graph_.add_constant(graph_.value(weights_).name + "/scaled", *scaled);
    return true;
  }

  void finish(ValueId data, ValueId weights, ScaledStores stores) {
    name_ = layer_.name;
    Program program = drop_unused_inputs(stores.program, stores.further, 1);
    std::vector<ValueId> inputs(layer_.inputs.begin(),
                                layer_.inputs.begin() + layer_.op_input_count);
    inputs[layout_.data_input] = data;
    inputs[layout_.input] = weights;
    inputs.insert(inputs.end(), stores.further.begin() + 1, stores.further.end());
    replace(graph_, id_, std::move(inputs), std::move(program), stores);
  }

  bool refuse(const std::string& reason) {
    run_.refused(layer_.name, reason);
    return false;
  }
  const Shape& result_shape() const { return graph_.value(layer_.outputs[0]).type().shape; }

  Graph& graph_;
  LayerId id_;
  PassRun& run_;
  const ChannelWeights& layout_;
  const Layer& layer_;
  ValueId weights_;
  std::string name_;
};

bool fold_scale_at(Graph& graph, LayerId id, PassRun& run) {
  if (op_output_count(graph.layer(id)) != 1) return false;
  const auto layout = channel_weights(graph, id);
  if (!layout) return false;
  Fold fold(graph, id, run, *layout);
  return fold.after() || fold.before();
}

}  // namespace

bool fold_scale(Graph& graph, PassRun& run) { return sweep(graph, run, fold_scale_at); }

}  // namespace anneal
