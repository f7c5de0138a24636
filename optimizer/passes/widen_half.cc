// widen_half: f16 and bf16 between layers become f32, where the target does not compute in them.
//
//   c = Conv(x, w) f16;  y = Softmax(c) f16
//     =>   c = Conv(f32(x), f32(w)) f32;  s = Softmax(c) f32;  y = f16(s)
//
// Such a target computes in f32 and would round and widen again at every store. Ports and bodies
// keep their types, so one rounding is left at the end of the widened layers. A value by which
// later layers decide is rounded as well (decisions.h): f16(2.9998) is 3, and its floor is not 2.
// Changes numerics: results are nearer to those of unrounded arithmetic. Weights take twice the
// memory.
#include <algorithm>
#include <unordered_map>

#include "anneal/core/dtype_kinds.h"
#include "anneal/core/new_tensor.h"
#include "anneal/optimizer/analysis/decisions.h"
#include "anneal/optimizer/analysis/query.h"
#include "anneal/optimizer/passes/passes.h"
#include "anneal/optimizer/programs/rewrite_program.h"

namespace anneal {
namespace {

Program conversion(DataType from, DataType to) {
  ProgramBuilder builder;
  return builder.finish(builder.input(0, from), to);
}

// Whether it only rounds f32 to the type.
bool is_rounding(const Program& program, DataType to) {
  ProgramBuilder builder;
  const Reg cast = builder.round_by_cast(builder.input(0, DataType::kF32), to);
  return program == conversion(DataType::kF32, to) || program == builder.finish(cast, to);
}

bool moves_only(const Op& op) {
  return std::holds_alternative<Reshape>(op) || std::holds_alternative<Transpose>(op) ||
         std::holds_alternative<Concat>(op) || std::holds_alternative<Slice>(op) ||
         std::holds_alternative<Pad>(op) || std::holds_alternative<Expand>(op) ||
         std::holds_alternative<Tile>(op) || std::holds_alternative<Gather>(op) ||
         std::holds_alternative<GatherElements>(op) || std::holds_alternative<GatherND>(op) ||
         std::holds_alternative<ReverseSequence>(op);
}

// Whether results are elements of the input: those of an input that is rounded need no rounding.
bool keeps_numbers(const Layer& layer) {
  const auto* reduce = std::get_if<Reduce>(&layer.op);
  const bool selects = reduce && reduce->map.empty() &&
                       (reduce->kind == ReduceKind::kMax || reduce->kind == ReduceKind::kMin);
  return layer.epilogues.empty() && (selects || moves_only(layer.op));
}

class Widener {
 public:
  Widener(Graph& graph, PassRun& run)
      : graph_(graph), run_(run), native_(run.options.native), decided_(graph) {}

  bool run() {
    bool changed = false;
    for (const LayerId id : graph_.order())
      if (run_.may_rewrite()) changed |= visit(id);
    return changed;
  }

 private:
  // Whether values of the type become f32.
  bool is_widened(DataType dtype) const { return is_half(dtype) && !native_.has(dtype); }
  DataType widened(DataType dtype) const { return is_widened(dtype) ? DataType::kF32 : dtype; }

  // Without loads, stores and roundings of such types, but for roundings that decide something.
  Program widened(const Program& program, const DecisionOptions& options) const {
    if (program.empty()) return program;
    const std::vector<bool> decided = decided_registers(program, options);
    return rewrite_program(
        program, [&](DataType dtype) { return widened(dtype); },
        [&](ProgramBuilder&, size_t reg, std::span<const Reg> regs) -> std::optional<Reg> {
          const Instruction& one = program.code()[reg];
          if (is_storage_rounding(one) && is_widened(static_cast<DataType>(one.immediate)) &&
              !decided[reg])
            return regs[one.operands[0]];
          return std::nullopt;
        });
  }

  // The programs of an op: of a Pointwise, or applied to the op's inputs.
  void widen_programs(Op& op, const DecisionOptions& options) const {
    std::visit(
        [&]<class T>(T& known) {
          if constexpr (!std::is_same_v<T, std::monostate>)
            T::fields(known, [&](const char*, auto& value) {
              if constexpr (std::is_same_v<std::decay_t<decltype(value)>, Program>)
                value = widened(value, options);
            });
        },
        op);
  }

  bool visit(LayerId id) {
    const Layer layer = graph_.layer(id);
    if (!bodies_of(layer.op).empty() || std::holds_alternative<BitCast>(layer.op) ||
        std::holds_alternative<Custom>(layer.op))
      return false;
    if (const auto* pointwise = std::get_if<Pointwise>(&layer.op)) {
      const Program& program = pointwise->program;
      const ValueId input = layer.inputs[0], output = layer.outputs[0];
      const DataType from = graph_.value(input).type().dtype;
      const DataType to = graph_.value(output).type().dtype;
      if (from == DataType::kF32 && is_widened(to) && is_rounding(program, to)) return false;
      if (is_widened(from) && program == conversion(from, DataType::kF32)) return false;
    }
    const auto half = [&](ValueId id) {
      return id != ValueId::kNone && is_widened(graph_.value(id).type().dtype);
    };
    const bool known = std::any_of(layer.inputs.begin(), layer.inputs.end(),
                                   [&](ValueId input) { return wide_.contains(input); });
    const bool gives_half = std::any_of(layer.outputs.begin(), layer.outputs.end(), half);
    const bool takes_half = std::any_of(layer.inputs.begin(), layer.inputs.end(), half);
    if (!gives_half && !takes_half) return false;
    if (!known && (!gives_half || (moves_only(layer.op) && layer.epilogues.empty()))) return false;
    widen(id, layer);
    return true;
  }

  ValueId wide(ValueId id) {
    if (id == ValueId::kNone || !is_widened(graph_.value(id).type().dtype)) return id;
    const auto [known, is_new] = wide_.try_emplace(id, ValueId::kNone);
    if (!is_new) return known->second;
    const std::string name = graph_.value(id).name + "/f32";
    if (const Tensor* constant = graph_.constant(id))
      return wide_[id] = graph_.add_constant(name, as_f32(*constant));
    // Products take over a transpose (compose_moves), and others read the same constant.
    if (const LayerId made_by = producer(graph_, id);
        op_as<Transpose>(graph_, made_by) && graph_.constant(graph_.layer(made_by).inputs[0])) {
      const Layer transpose = graph_.layer(made_by);
      const LayerId added = graph_.add({.name = name,
                                        .op = transpose.op,
                                        .inputs = {wide(transpose.inputs[0])},
                                        .origins = transpose.origins,
                                        .output_names = {name}});
      return wide_[id] = graph_.layer(added).outputs[0];
    }
    return wide_[id] = convert(id, DataType::kF32, name);
  }

  static Tensor as_f32(const Tensor& tensor) {
    NewTensor fresh = allocate_tensor(DataType::kF32, tensor.dims());
    const ConstTensorView from = tensor.view();
    const int64_t elements = tensor.count();
    for (int64_t i = 0; i < elements; ++i)
      store_scalar(DataType::kF32, load_scalar(from.dtype, from.data + 2 * i),
                   fresh.data.data() + 4 * i);
    return fresh.tensor;
  }

  ValueId convert(ValueId id, DataType to, const std::string& name) {
    const DataType from = graph_.value(id).type().dtype;
    const LayerId layer = graph_.add({.name = name,
                                      .op = Pointwise{conversion(from, to)},
                                      .inputs = {id},
                                      .output_names = {name}});
    return graph_.layer(layer).outputs[0];
  }

  void widen(LayerId id, const Layer& layer) {
    NewLayer added{.name = layer.name,
                   .op = layer.op,
                   .inputs = {},
                   .op_input_count = layer.op_input_count,
                   .origins = layer.origins};
    const DecisionOptions options = {.by_readers = decided_.contains_output(layer)};
    widen_programs(added.op, options);
    for (const ValueId input : layer.inputs) added.inputs.push_back(wide(input));
    for (const Program& program : layer.epilogues)
      added.epilogues.push_back(widened(program, options));
    for (const ValueId output : layer.outputs) {
      const Value& value = graph_.value(output);
      added.output_names.push_back(value.name);
      added.output_types.push_back(value.type());
      added.output_types.back().dtype = widened(value.type().dtype);
    }
    const LayerId wide_layer = graph_.add(std::move(added));
    for (size_t k = 0; k < layer.outputs.size(); ++k) {
      const ValueId old = layer.outputs[k], now = graph_.layer(wide_layer).outputs[k];
      const DataType dtype = graph_.value(old).type().dtype;
      ValueId replacement = now;
      if (is_widened(dtype)) {
        replacement =
            convert(now, dtype, graph_.value(old).name + "/" + std::string(to_string(dtype)));
        if (keeps_numbers(layer) || !decided_.contains(old)) wide_[replacement] = now;
      }
      graph_.replace_uses(old, replacement);
      graph_.swap_names(old, now);
    }
    graph_.swap_names(id, wide_layer);
    run_.did(layer.name, "computes in f32 between f32");
  }

  Graph& graph_;
  PassRun& run_;
  const NativeHalves native_;
  const DecidedValues decided_;
  std::unordered_map<ValueId, ValueId> wide_;  // the f32 value that a half one comes from, or twin
};

}  // namespace

bool widen_half(Graph& graph, PassRun& run) {
  const NativeHalves& native = run.options.native;
  return !(native.f16 && native.bf16) && Widener(graph, run).run();
}

}  // namespace anneal
