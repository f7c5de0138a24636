#include "anneal/optimizer/analysis/scaling.h"

#include <algorithm>

#include "anneal/core/dtype_kinds.h"
#include "anneal/core/new_tensor.h"
#include "anneal/optimizer/analysis/query.h"

namespace anneal {
namespace {

float float_at(const Tensor& tensor, int64_t i) {
  const auto offset = static_cast<size_t>(i) * size_of(tensor.dtype());
  return load_scalar(tensor.dtype(), tensor.bytes().data() + offset).as<float>();
}

int32_t integer_at(const Tensor& tensor, int64_t i) {
  const auto offset = static_cast<size_t>(i) * size_of(tensor.dtype());
  return load_scalar(tensor.dtype(), tensor.bytes().data() + offset).as<int32_t>();
}

bool is_narrow_float(DataType dtype) { return is_float(dtype) && dtype != DataType::kF64; }
bool is_narrow_integer(DataType dtype) { return is_integer(dtype) && size_of(dtype) <= 2; }

struct Ends {
  DataType integer, real;
  int64_t axis, block_size;
};

std::optional<Ends> ends_of(const Graph& graph, LayerId id) {
  const auto dtype = [&](ValueId value) { return graph.value(value).type().dtype; };
  if (const auto* op = op_as<Quantize>(graph, id))
    return Ends{op->dtype, dtype(graph.layer(id).inputs[0]), op->axis, op->block_size};
  if (const auto* op = op_as<Dequantize>(graph, id); op && has_integers(op->encoding))
    return Ends{dtype(graph.layer(id).inputs[0]), dtype(graph.layer(id).outputs[0]), op->axis,
                op->block_size};
  return std::nullopt;
}

ValueId add_parameters(Graph& graph, std::string name, DataType dtype, size_t count, auto&& at) {
  const Dims dims = count == 1 ? Dims{} : Dims{static_cast<int64_t>(count)};
  NewTensor fresh = allocate_tensor(dtype, dims);
  for (size_t i = 0; i < count; ++i)
    store_scalar(dtype, at(i), fresh.data.data() + i * size_of(dtype));
  return graph.add_constant(std::move(name), fresh.tensor);
}

}  // namespace

bool Scaling::has_zeros() const {
  return std::ranges::any_of(zeros, [](int32_t zero) { return zero != 0; });
}

std::optional<Scaling> scaling_of(const Graph& graph, LayerId id) {
  const auto ends = ends_of(graph, id);
  if (!ends || ends->block_size != 0 || !graph.layer(id).epilogues.empty() ||
      !is_narrow_integer(ends->integer) || !is_narrow_float(ends->real))
    return std::nullopt;
  const Layer& layer = graph.layer(id);
  const Tensor* scale = graph.constant(layer.inputs[1]);
  if (!scale || !is_narrow_float(scale->dtype()) || scale->count() == 0) return std::nullopt;
  Scaling scaling{.integer = ends->integer, .real = ends->real};
  for (int64_t i = 0; i < scale->count(); ++i) scaling.scales.push_back(float_at(*scale, i));
  if (!scaling.per_tensor()) scaling.axis = ends->axis;
  scaling.zeros = {0};
  if (layer.inputs.size() < 3 || layer.inputs[2] == ValueId::kNone) return scaling;
  const Tensor* zero = graph.constant(layer.inputs[2]);
  if (!zero) return std::nullopt;
  scaling.zeros.clear();
  for (int64_t i = 0; i < zero->count(); ++i) scaling.zeros.push_back(integer_at(*zero, i));
  const auto is_first = [&](int32_t other) { return other == scaling.zeros[0]; };
  if (std::ranges::all_of(scaling.zeros, is_first)) scaling.zeros.resize(1);
  return scaling;
}

std::optional<DequantizedValue> dequantized(const Graph& graph, ValueId value) {
  const LayerId id = value == ValueId::kNone ? LayerId::kNone : producer(graph, value);
  if (!op_as<Dequantize>(graph, id)) return std::nullopt;
  auto scaling = scaling_of(graph, id);
  if (!scaling) return std::nullopt;
  return DequantizedValue{graph.layer(id).inputs[0], id, std::move(*scaling)};
}

ValueId add_scales(Graph& graph, const std::string& name, const Scaling& scaling) {
  return add_parameters(graph, name + "/scale", scaling.real, scaling.scales.size(),
                        [&](size_t i) { return Scalar::of(scaling.scales[i]); });
}

ValueId add_zeros(Graph& graph, const std::string& name, const Scaling& scaling) {
  if (!scaling.has_zeros()) return ValueId::kNone;
  return add_parameters(graph, name + "/zero_point", scaling.integer, scaling.zeros.size(),
                        [&](size_t i) {
                          return is_signed_integer(scaling.integer)
                                     ? Scalar::of(scaling.zeros[i])
                                     : Scalar::of(static_cast<uint32_t>(scaling.zeros[i]));
                        });
}

}  // namespace anneal
