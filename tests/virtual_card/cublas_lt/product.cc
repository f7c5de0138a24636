#include "anneal/tests/virtual_card/cublas_lt/product.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "anneal/core/float16.h"
#include "anneal/tests/virtual_card/cublas_lt/rules.h"

namespace anneal::fake_cublas_lt {
namespace {

template <class T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

float element(cudaDataType type, const std::byte* from) {
  switch (type) {
    case CUDA_R_16F:
      return to_f32(load<Float16>(from));
    case CUDA_R_16BF:
      return to_f32(load<BFloat16>(from));
    case CUDA_R_8I:
      return load<int8_t>(from);
    case CUDA_R_32I:
      return static_cast<float>(load<int32_t>(from));
    case CUDA_R_32F:
      break;
  }
  return load<float>(from);
}

void store(cudaDataType type, std::byte* to, float value) {
  const auto put = [&](auto stored) { std::memcpy(to, &stored, sizeof(stored)); };
  switch (type) {
    case CUDA_R_16F:
      return put(to_f16(value));
    case CUDA_R_16BF:
      return put(to_bf16(value));
    case CUDA_R_8I:
      return put(static_cast<int8_t>(std::clamp(std::nearbyint(value), -128.0F, 127.0F)));
    default:
      return put(value);
  }
}

// Of 10 bits of mantissa.
float to_tf32(float value) {
  auto bits = std::bit_cast<uint32_t>(value);
  bits += 0xfff + (bits >> 13 & 1);
  return std::bit_cast<float>(bits & ~0x1fffu);
}

// Row by row, of numbers as the sums are computed with.
template <class T>
std::vector<T> rows_of(const cublasLtMatrixLayoutObject& layout, bool transposed, bool tf32,
                       const std::byte* data) {
  const size_t rows = transposed ? layout.columns : layout.rows;
  const size_t columns = transposed ? layout.rows : layout.columns;
  const size_t bytes = bytes_of(layout.type), leading = static_cast<size_t>(layout.leading);
  std::vector<T> values(rows * columns);
  for (size_t i = 0; i < rows; ++i)
    for (size_t j = 0; j < columns; ++j) {
      const size_t at = transposed ? i * leading + j : j * leading + i;
      const float value = element(layout.type, data + at * bytes);
      values[i * columns + j] = static_cast<T>(tf32 ? to_tf32(value) : value);
    }
  return values;
}

template <class T>
std::vector<T> sums_of(const Problem& problem, int split, const Memory& memory) {
  const bool tf32 = problem.product->compute == CUBLAS_COMPUTE_32F_FAST_TF32;
  const auto a = rows_of<T>(*problem.a, problem.product->transpose_a != 0, tf32, memory.a);
  // Of B the columns: each beside the depth.
  const auto b = rows_of<T>(*problem.b, problem.product->transpose_b != 0, tf32, memory.b);
  const size_t m = problem.d->rows, n = problem.d->columns, k = problem.depth();
  const auto parts = static_cast<size_t>(split);
  std::vector<T> sums(m * n), part(n);
  for (size_t i = 0; i < m; ++i)
    for (size_t s = 0; s < parts; ++s) {
      std::fill(part.begin(), part.end(), T{});
      for (size_t q = k * s / parts; q < k * (s + 1) / parts; ++q)
        for (size_t j = 0; j < n; ++j) part[j] += a[i * k + q] * b[q * n + j];
      if (memory.sums != nullptr)
        std::memcpy(memory.sums + (s * m + i) * n * sizeof(T), part.data(), n * sizeof(T));
      for (size_t j = 0; j < n; ++j) sums[i * n + j] += part[j];
    }
  return sums;
}

float activated(uint32_t epilogue, float x) {
  if ((epilogue & CUBLASLT_EPILOGUE_RELU) != 0) return std::max(x, 0.0F);
  if ((epilogue & CUBLASLT_EPILOGUE_GELU) == 0) return x;
  return 0.5F * x * (1 + std::tanh(0.7978845608F * (x + 0.044715F * x * x * x)));
}

}  // namespace

void compute(const Problem& problem, int split, float alpha, float beta, const Memory& memory) {
  const auto& d = *problem.d;
  const size_t m = d.rows, n = d.columns, bytes = bytes_of(d.type);
  const auto at = [&](const cublasLtMatrixLayoutObject& layout, size_t i, size_t j) {
    return (j * static_cast<size_t>(layout.leading) + i) * bytes;
  };
  if (problem.product->compute == CUBLAS_COMPUTE_32I) {
    const auto sums = sums_of<int32_t>(problem, split, memory);
    for (size_t i = 0; i < m; ++i)
      for (size_t j = 0; j < n; ++j) {
        const int32_t sum = sums[i * n + j];
        if (d.type == CUDA_R_32I) {
          std::memcpy(memory.d + at(d, i, j), &sum, sizeof(sum));
          continue;
        }
        float scaled = alpha * static_cast<float>(sum);
        if (beta != 0) scaled += beta * element(d.type, memory.c + at(*problem.c, i, j));
        if (memory.bias != nullptr) scaled += load<float>(memory.bias + i * sizeof(float));
        store(d.type, memory.d + at(d, i, j), activated(problem.product->epilogue, scaled));
      }
    return;
  }
  const auto sums = sums_of<float>(problem, split, memory);
  for (size_t i = 0; i < m; ++i)
    for (size_t j = 0; j < n; ++j) {
      float value = alpha * sums[i * n + j];
      if (beta != 0) value += beta * element(d.type, memory.c + at(*problem.c, i, j));
      if (memory.bias != nullptr) value += element(d.type, memory.bias + i * bytes);
      store(d.type, memory.d + at(d, i, j), activated(problem.product->epilogue, value));
    }
}

}  // namespace anneal::fake_cublas_lt
