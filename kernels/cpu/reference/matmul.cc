// MatMul: each tile of an output row is the sum over K of an element of a times a row of b.
#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "anneal/core/integer.h"
#include "anneal/kernels/cpu/base/entries.h"
#include "anneal/kernels/cpu/reference/reference.h"

namespace anneal::cpu {
namespace {

constexpr int64_t kColumnTile = 256;

TensorView transposed(TensorView view) {
  const int rank = view.dims.rank();
  std::swap(view.dims[rank - 2], view.dims[rank - 1]);
  std::swap(view.strides[rank - 2], view.strides[rank - 1]);
  return view;
}

// The view with its leading axes broadcast to those of y.
TensorView batched(const TensorView& view, const Dims& y) {
  Dims dims = y;
  const int rank = view.dims.rank();
  dims[y.rank() - 2] = view.dims[rank - 2];
  dims[y.rank() - 1] = view.dims[rank - 1];
  return broadcast(view, dims);
}

// A zero point per row of a or column of b, or one for all.
template <class E, class Sum>
Sum zero_point(const ReferenceArgs& args, size_t input, int64_t i) {
  if (!args.has(input)) return Sum{0};
  const TensorView& zero = args.inputs[input];
  const bool many = count(zero.dims) > 1;
  return widen<Sum>(E::load(zero.data, many ? i * zero.strides[zero.dims.rank() - 1] : 0));
}

template <class A, class B, class Y>
void matmul(const MatMul& op, const ReferenceArgs& args) {
  using Sum = typename Y::Sum;
  using Acc = typename Y::Acc;
  const TensorView& y = args.results[0];
  const int rank = y.dims.rank(), row = rank - 2, column = rank - 1;
  const TensorView a =
      batched(op.transpose_a ? transposed(args.inputs[0]) : args.inputs[0], y.dims);
  const TensorView b =
      batched(op.transpose_b ? transposed(args.inputs[1]) : args.inputs[1], y.dims);
  const int64_t depth = a.dims[column], columns = y.dims[column];
  check(b.dims[row] == depth, "MatMul's inputs agree in K");

  const Dims rows = part(y.dims, 0, column);
  const int64_t tiles = ceil_div(columns, kColumnTile);
  args.team.for_ranges(count(rows) * tiles, 1, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      Dims at = coordinates(rows, i / tiles);
      const int64_t begin = i % tiles * kColumnTile, end = std::min(begin + kColumnTile, columns);
      at.push_back(begin);
      const int64_t m = at[row];
      int64_t a_offset = dot(at, a.strides) - begin * a.strides[column];
      int64_t b_offset = dot(at, b.strides) - m * b.strides[row];
      const Sum a_zero = zero_point<A, Sum>(args, 2, m);
      std::array<Sum, kColumnTile> sums{}, b_zeros{};
      for (int64_t n = begin; n < end; ++n) b_zeros[n - begin] = zero_point<B, Sum>(args, 3, n);
      for (int64_t k = 0; k < depth; ++k) {
        const Sum factor = widen<Sum>(A::load(a.data, a_offset)) - a_zero;
        for (int64_t n = 0; n < end - begin; ++n) {
          const auto value = widen<Sum>(B::load(b.data, b_offset + n * b.strides[column]));
          sums[n] += factor * (value - b_zeros[n]);
        }
        a_offset += a.strides[column];
        b_offset += b.strides[row];
      }
      const ResultElements<Acc> out(with_offset(y, dot(at, y.strides)));
      for (int64_t n = 0; n < end - begin; ++n)
        out.put(n * y.strides[column], static_cast<Acc>(sums[n]));
    }
  });
}

// Quantized weights, as f32.
struct QuantizedWeights {
  QuantizedWeights(const MatMul& op, const ReferenceArgs& args)
      : encoding(op.b_encoding),
        b(op.transpose_b ? transposed(args.inputs[1]) : args.inputs[1]),
        scale(op.transpose_b ? transposed(args.inputs[4]) : args.inputs[4]) {
    if (args.has(3)) zero = op.transpose_b ? transposed(args.inputs[3]) : args.inputs[3];
    const int64_t depth = b.dims[0] * codes_in_byte(encoding);
    if (depth > 0) rows_per_scale = depth / scale.dims[0];
  }
  float at(int64_t k, int64_t n) const {
    const Dims of_scale{k / rows_per_scale, scale.dims[1] == 1 ? 0 : n};
    return number(k, n, of_scale) * scale.as<float>()[dot(of_scale, scale.strides)];
  }

 private:
  float number(int64_t k, int64_t n, const Dims& of_scale) const {
    const int bits = bits_of(encoding), in_byte = codes_in_byte(encoding);
    int32_t value = integer(b, dot(Dims{k / in_byte, n}, b.strides));
    if (bits < 8) value = value >> k % in_byte * bits & ((1 << bits) - 1);
    if (!has_integers(encoding)) return number_of(encoding, static_cast<uint8_t>(value));
    if (zero.data != nullptr) {
      value -= integer(zero, dot(of_scale, zero.strides));
    } else if (bits < 8) {
      value -= 1 << (bits - 1);
    }
    return static_cast<float>(value);
  }
  static int32_t integer(const TensorView& view, int64_t offset) {
    return view.dtype == DataType::kI8 ? int32_t{view.as<int8_t>()[offset]}
                                       : int32_t{view.as<uint8_t>()[offset]};
  }
  WeightEncoding encoding;
  TensorView b, scale, zero;
  int64_t rows_per_scale = 1;
};

void matmul_by_quantized_weights(const MatMul& op, const ReferenceArgs& args) {
  const TensorView& y = args.results[0];
  const int rank = y.dims.rank();
  const QuantizedWeights weights(op, args);
  const TensorView a = op.transpose_a ? transposed(args.inputs[0]) : args.inputs[0];
  const int64_t depth = a.dims[rank - 1], columns = y.dims[rank - 1];
  const Dims rows = part(y.dims, 0, rank - 1);
  args.team.for_ranges(columns, 1, [&](int64_t first, int64_t last) {
    std::vector<float> column(static_cast<size_t>(depth));
    for (int64_t n = first; n < last; ++n) {
      for (int64_t k = 0; k < depth; ++k) column[static_cast<size_t>(k)] = weights.at(k, n);
      for (int64_t row = 0; row < count(rows); ++row) {
        Dims at = coordinates(rows, row);
        at.push_back(0);
        const int64_t from = dot(at, a.strides);
        double sum = 0;
        visit_float(a.dtype, [&]<class A>(A) {
          for (int64_t k = 0; k < depth; ++k)
            sum += double(A::load(a.data, from + k * a.strides[rank - 1])) *
                   double{column[static_cast<size_t>(k)]};
        });
        const ResultElements<float> out(with_offset(y, dot(at, y.strides)));
        out.put(n * y.strides[rank - 1], static_cast<float>(sum));
      }
    }
  });
}

void matmul_of_types(const MatMul& op, const ReferenceArgs& args) {
  if (args.has(4)) return matmul_by_quantized_weights(op, args);
  const DataType a = args.inputs[0].dtype, b = args.inputs[1].dtype;
  using I8 = Element<DataType::kI8, int8_t, int8_t>;
  using U8 = Element<DataType::kU8, uint8_t, uint8_t>;
  using I32 = Element<DataType::kI32, int32_t, int32_t>;
  if (a == DataType::kI8) {
    b == DataType::kI8 ? matmul<I8, I8, I32>(op, args) : matmul<I8, U8, I32>(op, args);
  } else if (a == DataType::kU8) {
    b == DataType::kI8 ? matmul<U8, I8, I32>(op, args) : matmul<U8, U8, I32>(op, args);
  } else if (a != b) {
    using F32 = Element<DataType::kF32, float, float>;
    b == DataType::kF16 ? matmul<F32, Element<DataType::kF16, Float16, float>, F32>(op, args)
                        : matmul<F32, Element<DataType::kBF16, BFloat16, float>, F32>(op, args);
  } else {
    visit_dtype(a, [&]<class E>(E) { matmul<E, E, E>(op, args); });
  }
}

void matmul(const MatMul& op, const ReferenceArgs& args) {
  const int rank = args.inputs[1].dims.rank();
  for_parts(args, op.transpose_b ? rank - 2 : rank - 1, args.results[0].dims.rank() - 1,
            [&](const ReferenceArgs& part) { matmul_of_types(op, part); });
}

constexpr KernelEntry kMatmulEntries[] = {reference<MatMul, matmul>("cpu.matmul.reference")};

}  // namespace

std::span<const KernelEntry> reference_matmul_entries() { return kMatmulEntries; }

}  // namespace anneal::cpu
