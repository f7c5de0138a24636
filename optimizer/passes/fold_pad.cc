// fold_pad: padding is merged into the convolution or pooling that reads it.
//
//   p = Pad(x, [0,0,1,1, 0,0,2,2]); y = Conv(p, w)   =>   y = Conv(x, w) pads_begin=[1,1]
//                                                         pads_end=[2,2]
//   p = Pad(x, ..., -inf); y = Pool(p) kind=max      =>   y = Pool(x) with these pads
//
// For constant pads of the spatial axes that crop nothing. The padding must equal the layer's own
// padding: zero for Conv (its zero point, if it has one), whose float weights must be constant and
// finite, as zero times infinity is NaN; zero for the sum of powers; for an average, zero that
// counts in the divisor, and then either the pool counts its own pads, too, or it has none; for a
// maximum, -inf or the smallest integer. Not while a layer that cannot take it reads the padded
// value as well: the padding would be done all the same. Not where a target has no kernel for it.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "anneal/core/dtype_kinds.h"
#include "anneal/optimizer/analysis/query.h"
#include "anneal/optimizer/passes/passes.h"

namespace anneal {
namespace {

struct Padding {
  std::vector<int64_t> begin, end;  // of the spatial axes
  DataType dtype = DataType::kF32;
  Scalar value;
};

std::optional<Padding> padding_of(const Graph& graph, LayerId id) {
  const auto* op = op_as<Pad>(graph, id);
  if (!op || op->mode != PadMode::kConstant || !graph.layer(id).epilogues.empty())
    return std::nullopt;
  const Layer& layer = graph.layer(id);
  const Type& type = graph.value(layer.outputs[0]).type();
  const auto& pads = graph.value(layer.inputs[1]).fact.elements;
  const auto rank = static_cast<size_t>(type.shape.rank());
  if (!pads || rank < 3) return std::nullopt;
  Padding padding;
  for (size_t i = 0; i < 2 * rank; ++i) {
    const Size pad = (*pads)[i];
    if (!pad.known() || pad.value() < 0) return std::nullopt;
    if (i % rank >= 2)
      (i < rank ? padding.begin : padding.end).push_back(pad.value());
    else if (pad.value() != 0)
      return std::nullopt;
  }
  padding.dtype = type.dtype;
  if (layer.inputs.size() > 2 && layer.inputs[2] != ValueId::kNone) {
    const Tensor* value = graph.constant(layer.inputs[2]);
    if (!value) return std::nullopt;
    padding.value = load_scalar(type.dtype, value->bytes().data());
  }
  return padding;
}

double as_double(const Padding& padding) {
  const RegisterType type = register_type(padding.dtype), f64 = RegisterType::kF64;
  if (type == f64) return padding.value.as<double>();
  return evaluate({Opcode::kCast, f64, {}, 0}, std::span(&padding.value, 1), std::span(&type, 1))
      .as<double>();
}

bool is_lowest(const Padding& padding) {
  const double value = as_double(padding);
  if (is_float(padding.dtype)) return value == -std::numeric_limits<double>::infinity();
  switch (padding.dtype) {
    case DataType::kI8:
      return value == -128;
    case DataType::kU8:
      return value == 0;
    default:
      return false;
  }
}

void add_pads(const Padding& padding, std::vector<int64_t>& begin, std::vector<int64_t>& end) {
  for (size_t i = 0; i < begin.size(); ++i) {
    begin[i] += padding.begin[i];
    end[i] += padding.end[i];
  }
}

// Whether zero times each weight is zero.
bool are_finite(const Graph& graph, ValueId weights) {
  const DataType dtype = graph.value(weights).type().dtype;
  if (!is_float(dtype)) return true;
  const Tensor* constant = graph.constant(weights);
  if (!constant) return false;
  const RegisterType type = register_type(dtype);
  for (int64_t i = 0; i < constant->count(); ++i) {
    const std::byte* at = constant->bytes().data() + static_cast<size_t>(i) * size_of(dtype);
    const Scalar value = load_scalar(dtype, at);
    if (!(type == RegisterType::kF64 ? std::isfinite(value.as<double>())
                                     : std::isfinite(value.as<float>())))
      return false;
  }
  return true;
}

std::optional<Op> padded(const Graph& graph, const Layer& layer, Conv op, const Padding& padding) {
  double neutral = 0;
  if (layer.op_input_count > 2 && layer.inputs[2] != ValueId::kNone) {
    const Tensor* zero_point = graph.constant(layer.inputs[2]);
    if (!zero_point || zero_point->count() != 1) return std::nullopt;
    neutral = as_double({{},
                         {},
                         zero_point->dtype(),
                         load_scalar(zero_point->dtype(), zero_point->bytes().data())});
  }
  if (as_double(padding) != neutral || !are_finite(graph, layer.inputs[1])) return std::nullopt;
  add_pads(padding, op.pads_begin, op.pads_end);
  return op;
}

std::optional<Op> padded(const Graph&, const Layer&, Pool op, const Padding& padding) {
  if (op.with_indices) return std::nullopt;
  if (op.kind == PoolKind::kMax ? !is_lowest(padding) : as_double(padding) != 0)
    return std::nullopt;
  if (op.kind == PoolKind::kAverage && !op.count_include_pad) {
    const auto is_zero = [](int64_t pad) { return pad == 0; };
    if (!std::ranges::all_of(op.pads_begin, is_zero) || !std::ranges::all_of(op.pads_end, is_zero))
      return std::nullopt;
    op.count_include_pad = true;
  }
  add_pads(padding, op.pads_begin, op.pads_end);
  for (size_t i = 0; i < op.kernel.size(); ++i) {
    const int64_t reach = (op.kernel[i] - 1) * op.dilations[i] + 1;
    if (op.pads_begin[i] >= reach || op.pads_end[i] >= reach) return std::nullopt;
  }
  return op;
}

// The op that also does the padding of its first input; nullopt if there is none.
std::optional<Op> taking(const Graph& graph, LayerId id, ValueId value, const Padding& padding) {
  const Layer& layer = graph.layer(id);
  if (layer.inputs[0] != value || std::ranges::count(layer.inputs, value) != 1) return std::nullopt;
  if (const auto* conv = op_as<Conv>(graph, id)) return padded(graph, layer, *conv, padding);
  if (const auto* pool = op_as<Pool>(graph, id)) return padded(graph, layer, *pool, padding);
  return std::nullopt;
}

bool fold_pad_at(Graph& graph, LayerId id, PassRun& run) {
  if (!op_as<Conv>(graph, id) && !op_as<Pool>(graph, id)) return false;
  const Layer& layer = graph.layer(id);
  const ValueId value = layer.inputs[0];
  const LayerId pad = producer(graph, value);
  const auto padding = padding_of(graph, pad);
  if (!padding) return false;
  const auto op = taking(graph, id, value, *padding);
  if (!op) return false;
  const std::string name = layer.name, of = graph.layer(pad).name;
  const bool needed =
      graph.is_output(value) || std::ranges::any_of(users_of(graph, value), [&](LayerId user) {
        return !taking(graph, user, value, *padding);
      });
  if (needed) {
    run.refused(name, fmt::format("others read what \"{}\" pads", of));
    return false;
  }
  std::vector<std::string> origins = graph.layer(pad).origins;
  origins.insert(origins.end(), layer.origins.begin(), layer.origins.end());
  NewLayer folded = {.name = name,
                     .op = *op,
                     .inputs = layer.inputs,
                     .epilogues = layer.epilogues,
                     .op_input_count = layer.op_input_count,
                     .origins = std::move(origins)};
  folded.inputs[0] = graph.layer(pad).inputs[0];
  if (const std::string why_not = run.ask_targets(graph, folded); !why_not.empty()) {
    run.refused(name, fmt::format("cannot pad as \"{}\" does: {}", of, why_not));
    return false;
  }
  const LayerId added = graph.add(std::move(folded));
  const auto same = [&](ValueId a, ValueId b) {
    return graph.value(a).type() == graph.value(b).type();
  };
  if (!std::ranges::equal(graph.layer(added).outputs, layer.outputs, same)) return false;
  const Saving saved = saving_of(graph, value);
  graph.replace_layer(id, added);
  run.did(name, fmt::format("pads as \"{}\" did", of), saved);
  return true;
}

}  // namespace

bool fold_pad(Graph& graph, PassRun& run) { return sweep(graph, run, fold_pad_at); }

}  // namespace anneal
