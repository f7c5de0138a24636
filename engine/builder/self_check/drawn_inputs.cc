#include "anneal/engine/builder/self_check/drawn_inputs.h"

#include <algorithm>
#include <cmath>

#include "anneal/engine/builder/self_check/value_error.h"
#include "anneal/graph/op_traits.h"

namespace anneal {
namespace {

// A size above has no end that anybody meant.
constexpr int64_t kLargestSize = int64_t{1} << 24;
// Of integers that become floats by a product: positions.
constexpr int64_t kMostPosition = 8191;

// SplitMix64.
class Draw {
 public:
  explicit Draw(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }
  // Nearly normal, and the same on every machine: a sum of twelve.
  double normal() {
    double sum = -6;
    for (int i = 0; i < 12; ++i) sum += uniform();
    return sum;
  }

 private:
  uint64_t state_;
};

// The largest value that the readers of an integer take; negative if none says.
int64_t largest_index(const Graph& graph, ValueId value, int depth = 8) {
  int64_t most = -1;
  if (depth == 0) return most;
  const auto at_most = [&](int64_t limit) {
    if (limit >= 0) most = most < 0 ? limit : std::min(most, limit);
  };
  for (const LayerId user : graph.value(value).users) {
    const Layer& layer = graph.layer(user);
    const auto* gather = std::get_if<Gather>(&layer.op);
    if (gather && layer.inputs.size() > 1 && layer.inputs[1] == value) {
      const Shape& table = graph.value(layer.inputs[0]).type().shape;
      const int64_t axis = gather->axis < 0 ? gather->axis + table.rank() : gather->axis;
      if (axis < table.rank()) {
        const Size size = table[static_cast<int>(axis)];
        at_most(graph.sizes().is_integer(size) ? graph.sizes().range(size).min - 1 : 0);
      }
    } else if (std::holds_alternative<GatherND>(layer.op) ||
               std::holds_alternative<GatherElements>(layer.op) ||
               std::holds_alternative<ScatterElements>(layer.op) ||
               std::holds_alternative<ScatterND>(layer.op)) {
      at_most(0);
    } else if (*traits_of(layer.op).half == HalfRole::kMoves ||
               (std::holds_alternative<Pointwise>(layer.op) && layer.inputs.size() == 1)) {
      for (const ValueId output : layer.outputs) at_most(largest_index(graph, output, depth - 1));
    } else if (*traits_of(layer.op).half == HalfRole::kProduct) {
      at_most(kMostPosition);
    }
  }
  return most;
}

Tensor drawn(const Graph& graph, ValueId input, const Dims& dims, const CalibrationTable* ranges,
             Draw& draw) {
  const Value& value = graph.value(input);
  const DataType dtype = value.type().dtype;
  std::vector<float> elements(static_cast<size_t>(count(dims)));
  if (is_float(dtype)) {
    const TensorRange* range = nullptr;
    if (ranges) {
      const auto found = ranges->tensors.find(value.name);
      if (found != ranges->tensors.end()) range = &found->second;
    }
    for (float& element : elements)
      element = range ? static_cast<float>(range->seen_min +
                                           (range->seen_max - range->seen_min) * draw.uniform())
                      : static_cast<float>(draw.normal());
  } else {
    int64_t most = is_8bit(dtype) ? 255 : largest_index(graph, input);
    if (dtype == DataType::kI8) most = 127;
    if (dtype == DataType::kBool || most < 0) most = 1;
    for (float& element : elements)
      element = static_cast<float>(draw.next() % static_cast<uint64_t>(most + 1));
    if (!elements.empty()) elements.front() = 0, elements.back() = static_cast<float>(most);
  }
  const Tensor::Fresh fresh = Tensor::allocate(dtype, dims);
  write_floats(fresh.tensor.view(), elements);
  return fresh.tensor;
}

}  // namespace

std::string_view to_string(DrawnSizes sizes) {
  return sizes == DrawnSizes::kOptimal   ? "optimal"
         : sizes == DrawnSizes::kLargest ? "largest"
                                         : "smallest";
}

std::optional<std::vector<Dims>> dims_at(const Graph& graph, DrawnSizes sizes, int64_t open_size) {
  std::vector<std::optional<int64_t>> values;
  for (const SizeSymbol& symbol : graph.sizes().symbols()) {
    const Bounds& bounds = symbol.bounds;
    values.emplace_back(
        sizes == DrawnSizes::kOptimal ? bounds.opt
        : sizes == DrawnSizes::kLargest
            ? (bounds.max > kLargestSize ? std::max(bounds.opt, open_size) : bounds.max)
            : std::max<int64_t>(bounds.min, 1));
  }
  std::vector<Dims> result;
  for (const ValueId input : graph.inputs()) {
    const Type& type = graph.value(input).type();
    if (type.container != Container::kTensor || type.dtype == DataType::kString)
      return std::nullopt;
    for (const Size size : type.shape)
      if (!graph.sizes().is_integer(size)) return std::nullopt;
    try {
      result.push_back(graph.sizes().evaluate(type.shape, values));
    } catch (const Error&) {
      return std::nullopt;  // these sizes do not go together
    }
    for (const int64_t dim : result.back())
      if (dim < 0 || dim > kLargestSize) return std::nullopt;
  }
  return result;
}

std::vector<Tensor> draw_inputs(const Graph& graph, const std::vector<Dims>& dims,
                                const CalibrationTable* ranges, uint64_t seed) {
  std::vector<Tensor> inputs;
  Draw draw(seed);
  for (size_t i = 0; i < dims.size(); ++i)
    inputs.push_back(drawn(graph, graph.inputs()[i], dims[i], ranges, draw));
  return inputs;
}

}  // namespace anneal
