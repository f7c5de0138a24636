#include "anneal/tests/virtual_card/cudnn/execute.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "anneal/core/float16.h"
#include "anneal/tests/virtual_card/cudnn/pointwise.h"

namespace anneal::fake_cudnn {
namespace {

template <class T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}
template <class T>
void store(std::byte* to, T value) {
  std::memcpy(to, &value, sizeof(T));
}

double load(DataType type, const std::byte* from) {
  switch (type) {
    case CUDNN_DATA_FLOAT:
      return static_cast<double>(load<float>(from));
    case CUDNN_DATA_DOUBLE:
      return load<double>(from);
    case CUDNN_DATA_HALF:
      return static_cast<double>(to_f32(load<Float16>(from)));
    case CUDNN_DATA_BFLOAT16:
      return static_cast<double>(to_f32(load<BFloat16>(from)));
    case CUDNN_DATA_INT8:
      return load<int8_t>(from);
    case CUDNN_DATA_UINT8:
    case CUDNN_DATA_BOOLEAN:
      return load<uint8_t>(from);
    case CUDNN_DATA_INT32:
      return load<int32_t>(from);
    case CUDNN_DATA_INT64:
      return static_cast<double>(load<int64_t>(from));
    default:
      return std::numeric_limits<double>::quiet_NaN();
  }
}

// To the nearest integer, ties to even, within the type's range.
template <class T>
T to_integer(double value) {
  if (std::isnan(value)) return 0;
  const double nearest = std::nearbyint(value);
  constexpr auto kLeast = static_cast<double>(std::numeric_limits<T>::min());
  constexpr auto kMost = static_cast<double>(std::numeric_limits<T>::max());
  if (nearest <= kLeast) return std::numeric_limits<T>::min();
  if (nearest >= kMost) return std::numeric_limits<T>::max();
  return static_cast<T>(nearest);
}

void store(DataType type, std::byte* to, double value) {
  switch (type) {
    case CUDNN_DATA_FLOAT:
      return store(to, static_cast<float>(value));
    case CUDNN_DATA_DOUBLE:
      return store(to, value);
    case CUDNN_DATA_HALF:
      return store(to, to_f16(static_cast<float>(value)));
    case CUDNN_DATA_BFLOAT16:
      return store(to, to_bf16(static_cast<float>(value)));
    case CUDNN_DATA_INT8:
      return store(to, to_integer<int8_t>(value));
    case CUDNN_DATA_UINT8:
      return store(to, to_integer<uint8_t>(value));
    case CUDNN_DATA_BOOLEAN:
      return store(to, static_cast<uint8_t>(value != 0));
    case CUDNN_DATA_INT32:
      return store(to, to_integer<int32_t>(value));
    case CUDNN_DATA_INT64:
      return store(to, to_integer<int64_t>(value));
    default:
      return;
  }
}

// Calls with the offset of each element, in row-major order of the dimensions.
template <class Function>
void for_each_offset(const Tensor& tensor, const Function& function) {
  const size_t rank = tensor.dims.size();
  std::vector<int64_t> index(rank, 0);
  int64_t offset = 0;
  const int64_t count = tensor.count(), last = tensor.dims[rank - 1],
                step = tensor.strides[rank - 1];
  for (int64_t done = 0; done < count; done += last) {
    for (int64_t i = 0; i < last; ++i) function(static_cast<size_t>(offset + i * step));
    for (size_t axis = rank - 1; axis-- > 0;) {
      offset += tensor.strides[axis];
      if (++index[axis] < tensor.dims[axis]) break;
      offset -= index[axis] * tensor.strides[axis];
      index[axis] = 0;
    }
  }
}

// The matrix of an operand for each batch of the result.
std::vector<size_t> matrices_of(const Tensor& operand, const Tensor& result) {
  const size_t batch_rank = result.dims.size() - 2;
  int64_t count = 1;
  for (size_t i = 0; i < batch_rank; ++i) count *= result.dims[i];
  std::vector<size_t> matrices;
  for (int64_t batch = 0; batch < count; ++batch) {
    int64_t rest = batch, matrix = 0, scale = 1;
    for (size_t i = batch_rank; i-- > 0;) {
      const int64_t index = rest % result.dims[i];
      rest /= result.dims[i];
      matrix += index * operand.dims[i] / result.dims[i] * scale;
      scale *= operand.dims[i];
    }
    matrices.push_back(static_cast<size_t>(matrix));
  }
  return matrices;
}

Elements product(const Tensor& a, const Tensor& b, const Tensor& c, const Elements& left,
                 const Elements& right) {
  const size_t rank = c.dims.size();
  const auto m = static_cast<size_t>(c.dims[rank - 2]), n = static_cast<size_t>(c.dims[rank - 1]),
             k = static_cast<size_t>(a.dims[rank - 1]);
  const std::vector<size_t> of_a = matrices_of(a, c), of_b = matrices_of(b, c);
  Elements result(static_cast<size_t>(c.count()), 0);
  for (size_t i = 0; i < of_a.size(); ++i)
    add_product(m, n, k, left.data() + of_a[i] * m * k, right.data() + of_b[i] * k * n,
                result.data() + i * m * n);
  return result;
}

double scale_of(const Operation& operation, const std::map<int64_t, Elements>& values) {
  const auto found = operation.inputs.find("scale");
  return found == operation.inputs.end() ? 1 : values.at(found->second)[0];
}

// softmax(scale * q k^T) v, where several heads of q may have one of k and v.
Elements attention(const Tensor& q, const Tensor& k, const Tensor& v, double scale,
                   const Elements& queries, const Elements& keys, const Elements& values) {
  const auto rows = static_cast<size_t>(q.dims[2]), columns = static_cast<size_t>(k.dims[2]),
             depth = static_cast<size_t>(q.dims[3]), width = static_cast<size_t>(v.dims[3]);
  const auto heads = static_cast<size_t>(q.dims[1]),
             shared = heads / static_cast<size_t>(k.dims[1]);
  Elements result(static_cast<size_t>(q.dims[0]) * heads * rows * width, 0);
  Elements weights(rows * columns), transposed(depth * columns);
  for (size_t i = 0; i < static_cast<size_t>(q.dims[0]) * heads; ++i) {
    const size_t j = i / shared;
    for (size_t c = 0; c < columns; ++c)
      for (size_t d = 0; d < depth; ++d)
        transposed[d * columns + c] = keys[(j * columns + c) * depth + d];
    std::ranges::fill(weights, 0);
    add_product(rows, columns, depth, queries.data() + i * rows * depth, transposed.data(),
                weights.data());
    for (size_t r = 0; r < rows; ++r) {
      double* const row = weights.data() + r * columns;
      const double most = *std::max_element(row, row + columns);
      double sum = 0;
      for (size_t c = 0; c < columns; ++c) sum += row[c] = std::exp(scale * (row[c] - most));
      for (size_t c = 0; c < columns; ++c) row[c] /= sum;
    }
    add_product(rows, width, columns, weights.data(), values.data() + j * columns * width,
                result.data() + i * rows * width);
  }
  return result;
}

Elements result_of(const Operation& o, const OperationGraph& graph, const Tensor& result,
                   const std::map<int64_t, Elements>& values) {
  const auto tensor = [&](const char* name) -> const Tensor& {
    return graph.tensors.at(o.inputs.at(name));
  };
  const auto elements = [&](const char* name) -> const Elements& {
    return values.at(o.inputs.at(name));
  };
  const auto scaled = [&](Elements made) {
    if (o.alpha != 1)
      for (double& each : made) each *= o.alpha;
    return made;
  };
  switch (o.type) {
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
      return scaled(convolution(o, tensor("x"), tensor("w"), result, elements("x"), elements("w")));
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
      return scaled(transposed_convolution(o, result, tensor("w"), tensor("y"), elements("y"),
                                           elements("w")));
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
      return product(tensor("a"), tensor("b"), result, elements("a"), elements("b"));
    case CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR:
      return attention(tensor("q"), tensor("k"), tensor("v"), scale_of(o, values), elements("q"),
                       elements("k"), elements("v"));
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
      return reduction(o, tensor("x"), result, elements("x"));
    case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR:
      return elements("x");
    default: {
      std::vector<Operand> operands;
      for (const char* const name : {"x", "b", "t"})
        if (o.inputs.contains(name)) operands.push_back({&tensor(name), &elements(name)});
      return pointwise(o, result, operands);
    }
  }
}

}  // namespace

std::vector<ElementRows> rows_of(const Tensor& tensor) {
  // Dimensions of more than one element, by ascending strides, as bytes.
  struct Dimension {
    size_t count, stride;
  };
  const size_t element = bytes_of(tensor.type);
  std::vector<Dimension> dims;
  for (size_t i = 0; i < tensor.dims.size(); ++i)
    if (tensor.dims[i] > 1)
      dims.push_back(
          {static_cast<size_t>(tensor.dims[i]), static_cast<size_t>(tensor.strides[i]) * element});
  std::ranges::sort(dims, {}, &Dimension::stride);
  ElementRows row{.bytes = element};
  size_t next = 0;
  for (; next < dims.size() && dims[next].stride == row.bytes; ++next)
    row.bytes *= dims[next].count;
  if (next < dims.size()) {
    row.rows = dims[next].count, row.pitch = dims[next].stride;
    for (++next; next < dims.size() && dims[next].stride == row.rows * row.pitch; ++next)
      row.rows *= dims[next].count;
  }
  std::vector<ElementRows> all = {row};
  for (; next < dims.size(); ++next) {
    const size_t before = all.size();
    for (size_t i = 1; i < dims[next].count; ++i)
      for (size_t j = 0; j < before; ++j) {
        all.push_back(all[j]);
        all.back().offset += i * dims[next].stride;
      }
  }
  return all;
}

Elements read_elements(const Tensor& tensor, const std::byte* memory) {
  Elements elements(static_cast<size_t>(tensor.count()));
  const size_t bytes = bytes_of(tensor.type);
  double* next = elements.data();
  for_each_offset(tensor,
                  [&](size_t offset) { *next++ = load(tensor.type, memory + offset * bytes); });
  return elements;
}

void write_elements(const Tensor& tensor, const Elements& elements, std::byte* memory) {
  const size_t bytes = bytes_of(tensor.type);
  const double* next = elements.data();
  for_each_offset(tensor,
                  [&](size_t offset) { store(tensor.type, memory + offset * bytes, *next++); });
}

void round_to(DataType type, Elements& elements) {
  if (type == CUDNN_DATA_FLOAT) {
    for (double& each : elements) each = static_cast<double>(static_cast<float>(each));
    return;
  }
  std::byte bytes[8];
  for (double& each : elements) {
    store(type, bytes, each);
    each = load(type, bytes);
  }
}

void add_product(size_t m, size_t n, size_t k, const double* a, const double* b, double* c) {
  constexpr size_t kRows = 4, kColumns = 256, kDepth = 128;  // of a block
  for (size_t j = 0; j < n; j += kColumns) {
    const size_t columns = std::min(kColumns, n - j);
    for (size_t p = 0; p < k; p += kDepth) {
      const size_t depth = std::min(kDepth, k - p);
      size_t i = 0;
      for (; i + kRows <= m; i += kRows)
        for (size_t q = p; q < p + depth; ++q) {
          const double f0 = a[i * k + q], f1 = a[(i + 1) * k + q], f2 = a[(i + 2) * k + q],
                       f3 = a[(i + 3) * k + q];
          const double* const from = b + q * n + j;
          double* const to = c + i * n + j;
          for (size_t x = 0; x < columns; ++x) {
            to[x] += f0 * from[x];
            to[n + x] += f1 * from[x];
            to[2 * n + x] += f2 * from[x];
            to[3 * n + x] += f3 * from[x];
          }
        }
      for (; i < m; ++i)
        for (size_t q = p; q < p + depth; ++q) {
          const double factor = a[i * k + q];
          for (size_t x = 0; x < columns; ++x) c[i * n + j + x] += factor * b[q * n + j + x];
        }
    }
  }
}

void execute(const OperationGraph& graph, const TensorMemory& memory) {
  std::map<int64_t, Elements> values;
  for (const Operation& operation : graph.operations) {
    for (const auto& [name, uid] : operation.inputs)
      if (!values.contains(uid)) values[uid] = read_elements(graph.tensors.at(uid), memory.at(uid));
    const int64_t uid = operation.outputs.begin()->second;
    const Tensor& result = graph.tensors.at(uid);
    Elements made = result_of(operation, graph, result, values);
    round_to(result.type, made);
    if (!result.is_virtual) write_elements(result, made, memory.at(uid));
    values[uid] = std::move(made);
  }
}

}  // namespace anneal::fake_cudnn
