#include "anneal/optimizer/analysis/channel_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>

#include "anneal/core/dtype_kinds.h"
#include "anneal/core/float16.h"
#include "anneal/core/new_tensor.h"

namespace anneal {
namespace {

// Fewer weights are not worth the other threads.
constexpr int64_t kManyWeights = 1 << 16;
// Columns are taken by this many at least: a row of them is read at once.
constexpr int64_t kColumnsAtOnce = 512;

// The elements of a tensor of floats.
class Elements {
 public:
  explicit Elements(const Tensor& tensor) : dtype_(tensor.dtype()), data_(tensor.bytes().data()) {}
  double operator[](size_t at) const {
    switch (dtype_) {
      case DataType::kF64:
        return reinterpret_cast<const double*>(data_)[at];
      case DataType::kF16:
        return to_f32(reinterpret_cast<const Float16*>(data_)[at]);
      case DataType::kBF16:
        return to_f32(reinterpret_cast<const BFloat16*>(data_)[at]);
      default:
        return reinterpret_cast<const float*>(data_)[at];
    }
  }

 private:
  DataType dtype_;
  const std::byte* data_;
};

// The value as it is stored.
double store(DataType dtype, double value, std::byte* data, size_t at) {
  switch (dtype) {
    case DataType::kF64:
      return reinterpret_cast<double*>(data)[at] = value;
    case DataType::kF16:
      return to_f32(reinterpret_cast<Float16*>(data)[at] = to_f16(value));
    case DataType::kBF16:
      return to_f32(reinterpret_cast<BFloat16*>(data)[at] = to_bf16(static_cast<float>(value)));
    default:
      return reinterpret_cast<float*>(data)[at] = static_cast<float>(value);
  }
}

int64_t size_at(const Tensor& tensor, int axis) { return tensor.dims()[axis]; }

// Of [written, read / groups, kernel...], or with is_transposed [read, written / groups,
// kernel...].
ChannelWeights of_windows(const Tensor& weights, int64_t groups, bool is_transposed) {
  ChannelWeights made;
  made.input = 1;
  made.i_count = size_at(weights, 0);
  made.j_count = size_at(weights, 1);
  for (int axis = 2; axis < weights.dims().rank(); ++axis) made.inner *= size_at(weights, axis);
  const int64_t group = std::max<int64_t>(made.i_count / groups, 1), width = made.j_count;
  made.reads = {.divisor = group, .factor = width, .adds_j = true};
  made.read_count = width * groups, made.written_count = made.i_count;
  if (is_transposed) {
    std::swap(made.reads, made.writes);
    std::swap(made.read_count, made.written_count);
  }
  made.data_axis = made.result_axis = 1;
  return made;
}

// One operand of a MatMul.
struct ProductOperand {
  size_t input;  // 0: a, whose rows are channels of the result; 1: b, whose columns are
  int rank;
  bool is_transposed;
};
ChannelWeights of_product(const Tensor& weights, const ProductOperand& of_weights,
                          const ProductOperand& of_data, int result_rank) {
  ChannelWeights made;
  const bool is_left = of_weights.input == 0;
  const int rank = of_weights.rank;
  made.input = of_weights.input;
  made.data_input = of_data.input;
  for (int axis = 0; axis + 2 < rank; ++axis) made.outer *= size_at(weights, axis);
  made.i_count = size_at(weights, rank - 2);
  made.j_count = size_at(weights, rank - 1);
  const ChannelNumber first, second = {.factor = 0, .adds_j = true};
  if (is_left != of_weights.is_transposed) {
    made.writes = first, made.reads = second;
    made.written_count = made.i_count, made.read_count = made.j_count;
  } else {
    made.writes = second, made.reads = first;
    made.written_count = made.j_count, made.read_count = made.i_count;
  }
  made.result_axis = result_rank - (is_left ? 2 : 1);
  made.data_axis = of_data.rank - (is_left != of_data.is_transposed ? 2 : 1);
  return made;
}

}  // namespace

std::optional<ChannelWeights> channel_weights(const Graph& graph, LayerId id) {
  const Layer& layer = graph.layer(id);
  const auto constant = [&](size_t input) -> const Tensor* {
    const Tensor* tensor = graph.constant(layer.inputs[input]);
    return tensor && is_float(tensor->dtype()) && tensor->count() > 0 ? tensor : nullptr;
  };
  const auto rank = [&](ValueId value) { return graph.value(value).type().shape.rank(); };
  if (const auto* conv = std::get_if<Conv>(&layer.op)) {
    const Tensor* weights = constant(1);
    if (weights) return of_windows(*weights, conv->groups, false);
  } else if (const auto* conv = std::get_if<ConvTranspose>(&layer.op)) {
    const Tensor* weights = constant(1);
    if (weights) return of_windows(*weights, conv->groups, true);
  } else if (const auto* product = std::get_if<MatMul>(&layer.op)) {
    const ProductOperand a{0, rank(layer.inputs[0]), product->transpose_a};
    const ProductOperand b{1, rank(layer.inputs[1]), product->transpose_b};
    const int result_rank = rank(layer.outputs[0]);
    if (const Tensor* weights = constant(1)) return of_product(*weights, b, a, result_rank);
    if (const Tensor* weights = constant(0)) return of_product(*weights, a, b, result_rank);
  }
  return std::nullopt;
}

ChannelWindows windows_of(const ChannelWeights& layout, int64_t outer, int64_t written) {
  const ChannelNumber& number = layout.writes;
  int64_t i = written, j = 0, count = layout.j_count, stride = layout.inner;
  if (number.adds_j) {
    const bool is_grouped = number.factor > 0;
    i = is_grouped ? written / number.factor * number.divisor : 0;
    j = is_grouped ? written % number.factor : written;
    count = is_grouped ? number.divisor : layout.i_count;
    stride *= layout.j_count;
  }
  const int64_t begin = ((outer * layout.i_count + i) * layout.j_count + j) * layout.inner;
  return {static_cast<size_t>(begin), static_cast<size_t>(count), static_cast<size_t>(stride)};
}

void for_written_channels(const ChannelWeights& layout, int threads,
                          FunctionRef<void(int64_t begin, int64_t end)> f) {
  const int64_t weights = layout.outer * layout.i_count * layout.j_count * layout.inner;
  if (weights < kManyWeights) return f(0, layout.written_count);
  ThreadTeam team(threads > 0 ? threads : hardware_threads());
  team.for_ranges(layout.written_count, layout.writes.adds_j ? kColumnsAtOnce : 1, f);
}

std::optional<std::vector<double>> per_channel_values(const Tensor& tensor, int rank, int axis,
                                                      int64_t count) {
  const int missing = rank - tensor.dims().rank();
  if (missing < 0) return std::nullopt;
  for (int i = 0; i < tensor.dims().rank(); ++i)
    if (tensor.dims()[i] != 1 && (i + missing != axis || tensor.dims()[i] != count))
      return std::nullopt;
  std::vector<double> values(static_cast<size_t>(count));
  const Elements elements(tensor);
  for (size_t i = 0; i < values.size(); ++i) values[i] = elements[tensor.count() == 1 ? 0 : i];
  return values;
}

Result<Tensor> scaled_weights(const Tensor& weights, const ChannelWeights& layout,
                              const std::vector<double>& factors, FactorOf channel, int threads) {
  // In 16 bits, what is far below the largest weight of its channel may be lost, but not more.
  constexpr double kSmallestHalf = 0x1p-10;
  NewTensor fresh = allocate_tensor(weights.dtype(), weights.dims());
  std::vector<double> largest(static_cast<size_t>(layout.written_count));
  std::atomic<bool> is_finite = true;
  const bool is_of_read = channel == FactorOf::kReadChannel;
  const Elements elements(weights);
  for_written_channels(layout, threads, [&](int64_t begin, int64_t end) {
    bool are_finite = true;
    for_each_weight(layout, begin, end, [&](size_t at, size_t read, size_t written) {
      const double scaled = elements[at] * factors[is_of_read ? read : written];
      largest[written] = std::max(largest[written], std::abs(scaled));
      are_finite &= std::isfinite(store(weights.dtype(), scaled, fresh.data.data(), at));
    });
    if (!are_finite) is_finite = false;
  });
  if (!is_finite)
    return refuse(
        fmt::format("scaled weights would leave the range of {}", to_string(weights.dtype())));
  if (weights.dtype() == DataType::kF16 &&
      std::any_of(largest.begin(), largest.end(),
                  [](double most) { return most > 0 && most < kSmallestHalf; }))
    return refuse("scaled weights would be too small for f16");
  return fresh.tensor;
}

std::vector<double> sums_of_shift(const Tensor& weights, const ChannelWeights& layout,
                                  const std::vector<double>& shift, int threads) {
  std::vector<double> sums(static_cast<size_t>(layout.written_count));
  const Elements elements(weights);
  for_written_channels(layout, threads, [&](int64_t begin, int64_t end) {
    for_each_weight(layout, begin, end, [&](size_t at, size_t read, size_t written) {
      sums[written] += elements[at] * shift[read];
    });
  });
  return sums;
}

}  // namespace anneal
