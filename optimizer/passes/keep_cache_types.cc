// keep_cache_types: attention of f32 reads keys and values of f16, bf16, i8 and 4 bits in their own
// type.
//
//   k = Concat(f32(past), new); present = f16(k); y = Attention(q, k, v)
//     =>   present = Concat(past, f16(new)); y = Attention(q, present, v)
//
// Likewise for new tokens that ScatterElements and ScatterND write into the past. For models with
// caches in 16 bits on targets that do not compute in 16 bits, where attention is f32, and for
// quantized caches. The past is not converted in each run, and the cache can be updated in place.
// Changes numerics where it moves a rounding: new tokens are rounded before attention reads them,
// as in the model. Runs after assign_precision.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "anneal/core/dtype_kinds.h"
#include "anneal/optimizer/analysis/query.h"
#include "anneal/optimizer/passes/passes.h"
#include "anneal/optimizer/precision/half_weights.h"
#include "anneal/optimizer/rewrite.h"

namespace anneal {
namespace {

Program stored_as(DataType from, DataType to) {
  ProgramBuilder builder;
  return builder.finish(builder.input(0, from), to);
}

// What the layer rounds, if that is all it does.
ValueId rounded(const Graph& graph, LayerId id, DataType to) {
  const auto* pointwise = op_as<Pointwise>(graph, id);
  if (!pointwise || pointwise->program != stored_as(DataType::kF32, to)) return ValueId::kNone;
  return graph.layer(id).inputs[0];
}

// The bytes, as Attention reads them, of which `rows` has the numbers of 4 bits; kNone: none.
ValueId packed_of(const Graph& graph, ValueId rows) {
  constexpr std::string_view kUnpack =
      "(u8,u8)->(i8) round_i8(i32(sub(bitand(shr($0,$1),15u32),8u32)))";
  const auto reshaped = [&](ValueId value) {
    const LayerId id = producer(graph, value);
    return op_as<Reshape>(graph, id) ? graph.layer(id).inputs[0] : ValueId::kNone;
  };
  const ValueId numbers = reshaped(rows);
  const auto* unpack =
      numbers == ValueId::kNone ? nullptr : op_as<Pointwise>(graph, producer(graph, numbers));
  if (unpack == nullptr || unpack->program != parse_program(kUnpack)) return ValueId::kNone;
  const std::vector<ValueId>& inputs = graph.layer(producer(graph, numbers)).inputs;
  const Tensor* const shifts = graph.constant(inputs[1]);
  const ValueId bytes = reshaped(inputs[0]);
  if (bytes == ValueId::kNone || shifts == nullptr || shifts->dims() != Dims{2, 1} ||
      !std::ranges::equal(shifts->as<uint8_t>(), std::array<uint8_t, 2>{0, 4}))
    return ValueId::kNone;
  const auto shape_of = [&](ValueId value) { return graph.value(value).type().shape; };
  const Shape shape = shape_of(bytes);
  if (shape.rank() != 4 || !shape[3].known()) return ValueId::kNone;
  const Shape apart{shape[0], shape[1], shape[2], 1, shape[3]};
  const Shape whole{shape[0], shape[1], shape[2], 2 * shape[3].value()};
  return shape_of(inputs[0]) == apart && shape_of(rows) == whole ? bytes : ValueId::kNone;
}

bool is_shorter(DataType dtype) { return is_half(dtype) || dtype == DataType::kI8; }

// The value of a shorter type of which `wide` has the numbers; kNone: there is none.
ValueId shorter_of(const Graph& graph, ValueId wide) {
  const LayerId made_by = producer(graph, wide);
  const auto* pointwise = op_as<Pointwise>(graph, made_by);
  if (!pointwise) return ValueId::kNone;
  const Layer& layer = graph.layer(made_by);
  const Program& program = pointwise->program;
  const auto result =
      static_cast<size_t>(std::ranges::find(layer.outputs, wide) - layer.outputs.begin());
  const auto code = program.code();
  size_t reg = program.results()[result].reg;
  if (code[reg].opcode == Opcode::kCast) reg = code[reg].operands[0];
  const Instruction& made = code[reg];
  if (made.opcode != Opcode::kInput || program.results()[result].dtype != DataType::kF32 ||
      !is_shorter(program.inputs()[made.immediate]))
    return ValueId::kNone;
  const ValueId shorter = layer.inputs[made.immediate];
  const bool is_whole = graph.value(shorter).type().shape == graph.value(wide).type().shape;
  return is_whole ? shorter : ValueId::kNone;  // others are repeated along an axis
}

// The inputs of a Concat or a scatter whose elements are those of the result; empty: another layer.
std::vector<size_t> token_inputs(const Graph& graph, LayerId id) {
  std::vector<size_t> inputs;
  if (op_as<Concat>(graph, id))
    for (size_t i = 0; i < graph.layer(id).inputs.size(); ++i) inputs.push_back(i);
  const auto* elements = op_as<ScatterElements>(graph, id);
  const auto* slices = op_as<ScatterND>(graph, id);
  if ((elements && elements->reduction == ScatterReduction::kNone) ||
      (slices && slices->reduction == ScatterReduction::kNone))
    inputs = {0, 2};
  return inputs;
}

bool is_key_or_value(const Graph& graph, LayerId reader, ValueId value) {
  const Layer& layer = graph.layer(reader);
  return op_as<Attention>(graph, reader) &&
         std::ranges::count(layer.inputs, value) ==
             (layer.inputs[1] == value) + (layer.inputs[2] == value);
}

// The attention with a key or value of a shorter type.
NewLayer reading(const Graph& graph, LayerId attention, ValueId wide, ValueId shorter) {
  NewLayer layer = copy_of(graph, attention);
  for (const size_t i : {size_t{1}, size_t{2}})
    if (layer.inputs[i] == wide) layer.inputs[i] = shorter;
  return layer;
}

// A past in 16 bits with new tokens, which attention and outputs in 16 bits read.
class Cache {
 public:
  Cache(Graph& graph, ValueId wide) : graph_(graph), update_(producer(graph, wide)) {
    if (update_ == LayerId::kNone || graph.is_output(wide)) return;
    for (const size_t i : token_inputs(graph, update_)) {
      const ValueId halves = shorter_of(graph, graph.layer(update_).inputs[i]);
      if (halves == ValueId::kNone) continue;
      const DataType dtype = graph.value(halves).type().dtype;
      if (!is_half(dtype)) continue;
      if (is_half(half_) && dtype != half_) return;
      half_ = dtype;
    }
    for (const LayerId reader : users_of(graph, wide)) {
      if (is_key_or_value(graph, reader, wide)) continue;
      if (rounded(graph, reader, half_) == ValueId::kNone) {
        roundings_.clear();
        return;
      }
      roundings_.push_back(reader);
    }
  }

  bool is_in_16_bits() const { return is_half(half_) && !roundings_.empty(); }

  // The same in 16 bits, beside it.
  ValueId narrowed() {
    NewLayer made = copy_of(graph_, update_);
    for (Type& type : made.output_types) type.dtype = half_;
    for (const size_t i : token_inputs(graph_, update_)) made.inputs[i] = narrowed(made.inputs[i]);
    return graph_.layer(graph_.add(std::move(made))).outputs[0];
  }
  // Outputs in 16 bits are what attention reads. halves: the result of narrowed().
  void finish(ValueId halves) {
    graph_.swap_names(update_, producer(graph_, halves));
    for (const LayerId rounding : roundings_) {
      const ValueId rounded = graph_.layer(rounding).outputs[0];
      graph_.replace_uses(rounded, halves);
      if (rounding == roundings_.front()) graph_.swap_names(rounded, halves);
    }
  }

 private:
  ValueId narrowed(ValueId part) {
    const ValueId halves = shorter_of(graph_, part);
    if (halves != ValueId::kNone && graph_.value(halves).type().dtype == half_) return halves;
    const std::string name = fmt::format("{}/{}", graph_.value(part).name, to_string(half_));
    if (const Tensor* constant = graph_.constant(part))
      return graph_.add_constant(name, in_16_bits(*constant, half_));
    return graph_
        .layer(graph_.add({.name = name,
                           .op = Pointwise{stored_as(DataType::kF32, half_)},
                           .inputs = {part},
                           .origins = graph_.layer(update_).origins,
                           .output_names = {name}}))
        .outputs[0];
  }

  Graph& graph_;
  LayerId update_;
  DataType half_ = DataType::kF32;
  std::vector<LayerId> roundings_;
};

// Attention reads `shorter` in place of `wide`.
bool read_shorter(Graph& graph, ValueId wide, ValueId shorter, PassRun& run) {
  std::vector<LayerId> readers;
  for (const LayerId reader : users_of(graph, wide))
    if (is_key_or_value(graph, reader, wide)) readers.push_back(reader);
  const DataType dtype = graph.value(shorter).type().dtype;
  for (const LayerId reader : readers)
    if (const std::string why = run.ask_targets(graph, reading(graph, reader, wide, shorter));
        !why.empty()) {
      run.refused(graph.layer(reader).name,
                  fmt::format("reads \"{}\" as f32, not {}: {}", graph.value(wide).name,
                              to_string(dtype), why));
      return false;
    }
  for (const LayerId reader : readers) {
    const std::string name = graph.layer(reader).name;
    graph.replace_layer(reader, graph.add(reading(graph, reader, wide, shorter)));
    run.did(name, fmt::format("reads \"{}\" in {}", graph.value(shorter).name, to_string(dtype)));
  }
  return true;
}

bool keep_cache(Graph& graph, LayerId id, PassRun& run) {
  const auto* attention = op_as<Attention>(graph, id);
  if (!attention || graph.value(graph.layer(id).inputs[0]).type().dtype != DataType::kF32)
    return false;
  for (const size_t i : {size_t{1}, size_t{2}}) {
    const ValueId wide = graph.layer(id).inputs[i];
    if (!is_key_or_value(graph, id, wide)) continue;
    if (const ValueId shorter = shorter_of(graph, wide); shorter != ValueId::kNone) {
      const ValueId packed = packed_of(graph, shorter);
      if (packed != ValueId::kNone && read_shorter(graph, wide, packed, run)) return true;
      if (read_shorter(graph, wide, shorter, run)) return true;
      continue;
    }
    Cache cache(graph, wide);
    if (!cache.is_in_16_bits()) continue;
    const ValueId halves = cache.narrowed();
    if (read_shorter(graph, wide, halves, run)) {
      cache.finish(halves);
      return true;
    }
    graph.erase_unused();
  }
  return false;
}

}  // namespace

bool keep_cache_types(Graph& graph, PassRun& run) { return sweep(graph, run, keep_cache); }

}  // namespace anneal
