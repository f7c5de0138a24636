// assign_precision: products compute with 16-bit operands, which are stored in 16 bits.
//
//   c = Conv(x, w; b) epilogue=p; d = Conv(c, v)
//     =>   c = Conv(f16(x), f16(w); b) epilogue=round_f16(p); d = Conv(c, f16(v)) epilogue=$0
//
// Where PrecisionOptions allow or ask for f16 or bf16, for values and layers of f32 that
// choose_storage() names. Accumulators and programs stay f32: a value is rounded when it is stored,
// and nowhere else, so epilogues, norms and softmaxes need no change. Ports keep their types: a
// layer before an output stores f32, and an input that a product reads is cast once.
//
// On targets that do not compute in that type values stay f32, and a rounding replaces each store:
// weights are rounded numbers, too, in 16 bits where keep_half_weights would store them so. Changes
// numerics. Runs after the fusions, so that values that are not stored are not rounded, and before
// siblings are merged, which read one type.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "anneal/core/dtype_kinds.h"
#include "anneal/core/error.h"
#include "anneal/core/file.h"
#include "anneal/core/new_tensor.h"
#include "anneal/optimizer/analysis/query.h"
#include "anneal/optimizer/passes/passes.h"
#include "anneal/optimizer/precision/half_precision_plan.h"
#include "anneal/optimizer/precision/half_roles.h"
#include "anneal/optimizer/precision/half_weights.h"
#include "anneal/optimizer/precision/integer_weights.h"
#include "anneal/optimizer/precision/kept_halves.h"
#include "anneal/optimizer/precision/round_weights.h"
#include "anneal/optimizer/programs/join_programs.h"

namespace anneal {
namespace {

bool is_short_float(DataType dtype) { return dtype == DataType::kF32 || is_half(dtype); }

class Assigner {
 public:
  Assigner(Graph& graph, PassRun& run)
      : graph_(graph),
        run_(run),
        native_(run.options.native),
        bytes_(weight_bytes_as_floats(graph, run.options)),
        storage_(choose_storage(graph, run.options.precision, run.options.native,
                                find_needs(graph, run), run.options.threads)) {}

  bool run() {
    for (const HalfStorage::Reason& reason : storage_.reasons)
      run_.refused(reason.subject, reason.text);
    give_weights_back();
    bool changed = false;
    for (const LayerId id : graph_.order())
      if (run_.may_rewrite()) changed |= visit(id);
    return changed;
  }

 private:
  // The choice of storage has read all weights; those that stay are not read soon.
  void give_weights_back() const {
    for (const LayerId id : graph_.order())
      for (const ValueId input : graph_.layer(id).inputs)
        if (const Tensor* constant = input == ValueId::kNone ? nullptr : graph_.constant(input))
          give_pages_back(*constant);
  }
  DataType dtype(ValueId id) const { return graph_.value(id).type().dtype; }
  DataType stored(ValueId id) const {
    const auto found = storage_.values.find(id);
    return found == storage_.values.end() ? dtype(id) : found->second;
  }
  // The type of its elements as they are rounded, whatever their storage type is.
  DataType type_as_stored(ValueId id) const {
    const DataType to = stored(id);
    return is_half(to) && !native_.has(to) ? to : dtype(as_stored(id));
  }
  // In place of a value that is stored in 16 bits and widened again: what is stored.
  ValueId as_stored(ValueId id) const {
    const auto found = narrow_.find(id);
    return found == narrow_.end() ? id : found->second;
  }

  ValueId add_program(const std::string& name, Program program, ValueId input) {
    const LayerId made_by = producer(graph_, input);
    NewLayer added{.name = name,
                   .op = Pointwise{std::move(program)},
                   .inputs = {input},
                   .output_names = {name}};
    if (made_by != LayerId::kNone) added.origins = graph_.layer(made_by).origins;
    return graph_.layer(graph_.add(std::move(added))).outputs[0];
  }

  // The value as an operand, of that type, of a layer: what is stored so already, a constant, or a
  // cast.
  ValueId as(ValueId id, DataType to, LayerId reader) {
    if (id == ValueId::kNone || !is_short_float(dtype(id)) || dtype(id) == to) return id;
    if (const ValueId now = as_stored(id); dtype(now) == to) return now;
    if (to == DataType::kF32 || (!native_.has(to) && stored(id) == to)) return id;
    const auto [made, is_new] = casts_.try_emplace({id, to}, ValueId::kNone);
    if (!is_new) return made->second;
    const std::string name = graph_.value(id).name + "/" + std::string(anneal::to_string(to));
    if (const Tensor* constant = graph_.constant(id)) {
      made->second = add_constant(id, name, rounded(id, *constant, to, reader), to);
      give_pages_back(*constant);  // large builds hold one form of the weights at a time
      return made->second;
    }
    ProgramBuilder builder;
    const Reg rounded = builder.round(builder.input(0, dtype(id)), to);
    const ValueId cast = add_program(name, builder.finish(rounded, type_of(to)), id);
    if (!native_.has(to)) storage_.values[cast] = to;
    return made->second = cast;
  }

  // The type of a value of that precision.
  DataType type_of(DataType to) const { return native_.has(to) ? to : DataType::kF32; }

  // The divisors of the channels of these weights before rounding; empty: none. Only in bf16, which
  // has 8 digits.
  std::vector<double> scales_of(ValueId id, DataType to, LayerId reader) const {
    const auto layout = channel_weights(graph_, reader);
    const Layer& layer = graph_.layer(reader);
    if (to != DataType::kBF16 || !layout || layer.inputs[layout->input] != id ||
        layer.outputs.size() != 1 || graph_.value(id).users.size() != 1 ||
        dtype(id) != DataType::kF32)
      return {};
    return weight_scales(*graph_.constant(id), *layout, to, run_.options.weights_may_change);
  }

  // In `to`, or in f32. Weights are rounded together, by the channels of the first layer that reads
  // them; where types stay f32 they are multiplied with their scales at once, and then are f32.
  Tensor rounded(ValueId id, const Tensor& tensor, DataType to, LayerId reader) const {
    const int threads = run_.options.threads;
    const auto layout = channel_weights(graph_, reader);
    if (!layout || graph_.layer(reader).inputs[layout->input] != id)
      return in_16_bits(tensor, to, threads);
    const std::vector<double> scales = scales_of(id, to, reader);
    if (scales.empty()) return round_weights(tensor, *layout, to, threads, to);
    std::vector<double> inverse;
    for (const double scale : scales) inverse.push_back(1 / scale);
    const auto by = FactorOf::kWrittenChannel;
    const Tensor divided = *scaled_weights(tensor, *layout, inverse, by, threads);
    if (native_.has(to)) return round_weights(divided, *layout, to, threads, to);
    return *scaled_weights(round_weights(divided, *layout, to, threads), *layout, scales, by,
                           threads);
  }

  // The layer with sums that are multiplied with the scales of its weights.
  Layer with_scales(LayerId id, DataType product) {
    Layer layer = graph_.layer(id);
    const auto layout = channel_weights(graph_, id);
    if (!native_.has(product) || !layout) return layer;
    const std::vector<double> scales = scales_of(layer.inputs[layout->input], product, id);
    if (scales.empty()) return layer;
    const int rank = graph_.value(layer.outputs[0]).type().shape.rank();
    std::vector<int64_t> dims(static_cast<size_t>(rank - layout->result_axis), 1);
    dims[0] = static_cast<int64_t>(scales.size());
    const std::vector<float> factors(scales.begin(), scales.end());
    ProgramBuilder builder;
    const Program today = layer.epilogues.empty() ? Program() : layer.epilogues[0];
    const auto count = static_cast<int>(std::max<size_t>(today.inputs().size(), 1));
    std::vector<Reg> given = {builder.apply(Opcode::kMul, builder.input(0, DataType::kF32),
                                            builder.input(count, DataType::kF32))};
    for (int i = 1; i < count; ++i)
      given.push_back(builder.input(i, today.inputs()[static_cast<size_t>(i)]));
    layer.epilogues = {today.empty() ? builder.finish(given[0], DataType::kF32)
                                     : builder.finish(builder.inline_program(today, given)[0],
                                                      today.results()[0].dtype)};
    layer.inputs.push_back(
        graph_.add_constant(graph_.value(layer.inputs[layout->input]).name + "/scales",
                            Tensor::of<float>(DataType::kF32, Dims(dims), factors)));
    return layer;
  }

  // The constant itself if its values are already rounded, and stay so.
  ValueId add_constant(ValueId id, const std::string& name, const Tensor& rounded, DataType to) {
    if (native_.has(to)) return graph_.add_constant(name, rounded);
    const Tensor& floats = *graph_.constant(id);
    const int threads = run_.options.threads;
    const bool is_settled = !run_.options.weights_may_change;
    if (!is_half(rounded.dtype()))
      return is_settled && rounded == floats ? id : graph_.add_constant(name, rounded);
    if (is_settled && are_numbers_of(floats, rounded, threads)) return id;
    const std::vector<LayerId> readers = users_of(graph_, id);
    if (!is_skipped("keep_half_weights", run_.options) && are_all_finite(rounded, threads) &&
        std::ranges::any_of(readers,
                            [&](LayerId one) { return multiplies_by_floats(graph_, one); }) &&
        why_stays_f32(graph_, id, bytes_, run_).empty()) {
      const ValueId halves = graph_.add_constant(name + "/kept", rounded);
      if (why_targets_refuse(graph_, readers, halves, run_).empty()) return halves;
    }
    return graph_.add_constant(name, in_32_bits(rounded, threads));
  }

  // With inputs as they are stored now, and results as they shall be; `results` is empty: as today.
  Program retyped(const Program& program, std::span<const DataType> inputs,
                  std::span<const DataType> results) const {
    ProgramBuilder builder;
    std::vector<Reg> given;
    for (size_t i = 0; i < inputs.size(); ++i)
      given.push_back(builder.input(static_cast<int>(i), inputs[i]));
    const std::vector<Reg> made = builder.inline_program(program, given);
    std::vector<std::pair<Reg, DataType>> stores;
    for (size_t i = 0; i < made.size(); ++i) {
      const DataType today = program.results()[i].dtype;
      const DataType to = i < results.size() ? results[i] : today;
      if (is_half(to) && !is_half(today))
        stores.emplace_back(builder.round(made[i], to), type_of(to));
      else
        stores.emplace_back(made[i], today);
    }
    return builder.finish(stores);
  }

  // The types of a program's inputs, of which `first` precede the values.
  std::vector<DataType> input_types(const Program& program, std::span<const ValueId> values,
                                    size_t first) const {
    std::vector<DataType> types(program.inputs().begin(), program.inputs().end());
    for (size_t i = first; i < types.size(); ++i)
      if (is_short_float(types[i])) types[i] = dtype(values[i - first]);
    return types;
  }

  struct EditedLayer {
    NewLayer layer;
    bool is_changed = false;
  };

  // The layer with operands of type `product`; f32: unchanged.
  EditedLayer made(LayerId id, DataType product) {
    const Layer layer = is_half(product) ? with_scales(id, product) : graph_.layer(id);
    const HalfRole role = role_of(graph_, id);
    NewLayer added{.name = layer.name,
                   .op = layer.op,
                   .inputs = layer.inputs,
                   .op_input_count = layer.op_input_count,
                   .origins = layer.origins};
    const DataInputs inputs = data_inputs(layer);
    if (role != HalfRole::kFixed) {
      DataType data = role == HalfRole::kMoves && is_half(stored(layer.outputs[0]))
                          ? stored(layer.outputs[0])
                          : DataType::kF32;
      if (role == HalfRole::kProduct && is_half(product)) data = product;
      if (role == HalfRole::kReads && !inputs.data.empty() && layer.inputs[0] != ValueId::kNone &&
          is_short_float(dtype(layer.inputs[0])))
        data = type_as_stored(layer.inputs[0]);
      for (const size_t i : inputs.data) added.inputs[i] = as(layer.inputs[i], data, id);
      for (const auto& [input, number] : inputs.of_program)
        added.inputs[input] = as_stored(layer.inputs[input]);
    }
    for (size_t i = static_cast<size_t>(layer.op_input_count); i < layer.inputs.size(); ++i)
      added.inputs[i] = as_stored(layer.inputs[i]);
    retype_op(added.op, added.inputs, inputs, layer);
    added.epilogues = epilogues(layer, role, added.inputs);
    const bool same =
        added.op == layer.op && added.inputs == layer.inputs && added.epilogues == layer.epilogues;
    return {std::move(added), !same};
  }

  std::vector<DataType> wanted(const Layer& layer, size_t first, size_t count) const {
    std::vector<DataType> types;
    for (size_t k = first; k < first + count; ++k) types.push_back(stored(layer.outputs[k]));
    return types;
  }

  void retype_op(Op& op, const std::vector<ValueId>& values, const DataInputs& inputs,
                 const Layer& layer) const {
    if (inputs.of_program.empty()) return;
    std::vector<ValueId> given;
    for (const auto& [input, number] : inputs.of_program) given.push_back(values[input]);
    const auto apply = [&](Program& program, std::span<const DataType> results) {
      if (program.empty()) return;
      const auto first = static_cast<size_t>(inputs.of_program[0].second);
      program = retyped(program, input_types(program, given, first), results);
    };
    if (auto* pointwise = std::get_if<Pointwise>(&op))
      apply(pointwise->program, wanted(layer, 0, layer.outputs.size()));
    if (auto* softmax = std::get_if<Softmax>(&op)) apply(softmax->map, {});
    if (auto* reduce = std::get_if<Reduce>(&op)) apply(reduce->map, {});
    if (auto* attention = std::get_if<Attention>(&op)) apply(attention->score, {});
  }

  // The type of the op's results, before its epilogues, with these inputs.
  DataType result_type(const Layer& layer, const std::vector<ValueId>& inputs) const {
    const Program* map = nullptr;
    if (const auto* softmax = std::get_if<Softmax>(&layer.op)) map = &softmax->map;
    if (const auto* reduce = std::get_if<Reduce>(&layer.op)) map = &reduce->map;
    return map && !map->empty() ? map->results()[0].dtype : dtype(inputs[0]);
  }

  std::vector<Program> epilogues(const Layer& layer, HalfRole role,
                                 const std::vector<ValueId>& inputs) const {
    if (role == HalfRole::kFixed && layer.epilogues.empty()) return {};
    if (std::holds_alternative<Custom>(layer.op)) return {};
    std::vector<Program> programs = layer.epilogues;
    if (programs.empty()) {
      if (role == HalfRole::kMoves || std::holds_alternative<Pointwise>(layer.op)) return {};
      programs.resize(layer.outputs.size());
    }
    auto next = static_cast<size_t>(layer.op_input_count);
    size_t output = 0;
    for (Program& program : programs) {
      if (program.empty()) {
        program = bare_epilogue(layer, inputs, layer.outputs[output]);
        ++output;
        continue;
      }
      const std::vector<DataType> results = wanted(layer, output, program.results().size());
      const std::span<const ValueId> further(inputs.data() + next, program.inputs().size() - 1);
      output += program.results().size();
      next += further.size();
      program = retyped(program, input_types(program, further, 1), results);
    }
    if (std::ranges::all_of(programs, &Program::empty)) programs.clear();
    return programs;
  }

  // An epilogue for an op without a program that stores another type than its own.
  Program bare_epilogue(const Layer& layer, const std::vector<ValueId>& inputs,
                        ValueId output) const {
    if (!is_short_float(dtype(output))) return {};
    const DataType to = stored(output), made = result_type(layer, inputs);
    if (type_of(to) == made && (native_.has(to) || !is_half(to))) return {};
    ProgramBuilder builder;
    const Reg sum = builder.input(0, DataType::kF32);
    return is_half(to) ? builder.finish(builder.round(sum, to), type_of(to))
                       : builder.finish(sum, to);
  }

  bool visit(LayerId id) {
    if (!bodies_of(graph_.layer(id).op).empty() || graph_.layer(id).outputs.empty()) return false;
    const auto found = storage_.products.find(id);
    const DataType product = found == storage_.products.end() ? DataType::kF32 : found->second;
    EditedLayer next = made(id, product);
    if (!next.is_changed) return false;
    if (std::string why = why_not_outside(next.layer, id); !why.empty())
      return leave(id, std::move(why));
    if (std::string why = why_not_joined(graph_, run_, id, next.layer); !why.empty()) {
      if (!is_half(product)) return leave(id, std::move(why));
      run_.refused(graph_.layer(id).name, fmt::format("stays f32: {}", why));
      next = made(id, DataType::kF32);
      if (!next.is_changed) return false;
      why = why_not_joined(graph_, run_, id, next.layer);
      if (!why.empty()) return leave(id, std::move(why));
    }
    put(id, std::move(next.layer), product);
    return true;
  }

  // Why an operator from outside does not take these inputs in place of its present ones.
  std::string why_not_outside(const NewLayer& layer, LayerId id) const {
    if (!std::holds_alternative<Custom>(layer.op)) return {};
    std::vector<Fact> facts;
    facts.reserve(layer.inputs.size());
    std::vector<InferInput> inputs;
    for (const ValueId input : layer.inputs) {
      if (input == ValueId::kNone) {
        inputs.push_back({});
        continue;
      }
      facts.push_back({graph_.value(input).type(), std::nullopt});
      inputs.push_back({&facts.back(), nullptr});
    }
    Facts outputs;
    try {
      outputs =
          infer_layer(layer.op, {}, layer.op_input_count, InferInputs(inputs, graph_.sizes()));
    } catch (const Error& error) {
      return error.what();
    }
    for (size_t i = 0; i < outputs.size(); ++i) {
      const DataType now = outputs[i].type.dtype, before = dtype(graph_.layer(id).outputs[i]);
      if (now != before && !(before == DataType::kF32 && is_half(now)))
        return fmt::format("output {} would be {} in place of {}", i, to_string(now),
                           to_string(before));
    }
    return {};
  }

  // Leaves the layer unchanged: readers that need 16 bits cast its result.
  bool leave(LayerId id, std::string why) {
    run_.refused(graph_.layer(id).name, fmt::format("stores f32: {}", why));
    for (const ValueId output : graph_.layer(id).outputs) storage_.values.erase(output);
    return false;
  }

  void put(LayerId id, NewLayer layer, DataType product) {
    const Layer old = graph_.layer(id);
    const LayerId now = graph_.add(std::move(layer));
    std::string halves;
    for (size_t k = 0; k < old.outputs.size(); ++k) {
      const ValueId before = old.outputs[k], after = graph_.layer(now).outputs[k];
      // The library decides what it gives.
      if (std::holds_alternative<Custom>(old.op)) {
        storage_.values.erase(before);
        if (is_half(dtype(after))) storage_.values[before] = dtype(after);
      }
      const DataType to = stored(before);
      if (is_half(to) && !is_half(dtype(before))) halves = to_string(to);
      ValueId read = after;
      if (dtype(after) != dtype(before)) {
        ProgramBuilder builder;
        read = add_program(graph_.value(before).name + "/f32",
                           builder.finish(builder.input(0, dtype(after)), dtype(before)), after);
        narrow_[read] = after;
      }
      if (is_half(to) && !native_.has(to)) storage_.values[after] = to;
      graph_.replace_uses(before, read);
      graph_.swap_names(before, after);
    }
    graph_.swap_names(id, now);
    const std::string what =
        is_half(product) ? fmt::format("computes with operands of {}", to_string(product)) : "";
    const std::string stores = halves.empty() ? "" : fmt::format("stores {}", halves);
    run_.did(old.name, what.empty() && stores.empty() ? "reads values that are stored in 16 bits"
                       : what.empty()                 ? stores
                       : stores.empty()               ? what
                                                      : what + ", " + stores);
  }

  Graph& graph_;
  PassRun& run_;
  const NativeHalves native_;
  const double bytes_;  // of weights, as floats
  HalfStorage storage_;
  std::unordered_map<ValueId, ValueId> narrow_;
  std::map<std::pair<ValueId, DataType>, ValueId> casts_;
};

bool wants_half(const PrecisionOptions& options) {
  return options.allows_half() ||
         std::ranges::any_of(options.layers, [](const LayerPrecision& layer) {
           return layer.precision == Precision::kF16 || layer.precision == Precision::kBF16;
         });
}

}  // namespace

bool assign_precision(Graph& graph, PassRun& run) {
  return wants_half(run.options.precision) && Assigner(graph, run).run();
}

}  // namespace anneal
