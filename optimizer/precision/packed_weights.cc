#include "anneal/optimizer/precision/packed_weights.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <mutex>
#include <span>
#include <type_traits>
#include <vector>

#include "anneal/core/new_tensor.h"
#include "anneal/core/parallel.h"

namespace anneal {
namespace {

constexpr size_t kZeros = 3, kScales = 4;  // inputs of MatMul

struct Ends {
  int low = 0, high = 0;
};

constexpr int64_t kIntegersAtOnce = 1 << 16;  // numbers that a thread takes

// Vectors that every x86-64 CPU has.
using Bytes [[gnu::vector_size(16)]] = uint8_t;
Bytes bytes_at(const void* from) {
  Bytes bytes;
  std::memcpy(&bytes, from, sizeof bytes);
  return bytes;
}

template <class T>
Ends ends_of(std::span<const T> numbers, int threads) {
  constexpr uint8_t kFlip = std::is_signed_v<T> ? 0x80 : 0;  // keeps the order of signed numbers
  constexpr auto kAtOnce = static_cast<int64_t>(sizeof(Bytes));
  uint8_t lowest = 0xff, highest = 0;
  std::mutex merging;
  ThreadTeam(threads > 0 ? threads : hardware_threads())
      .for_ranges(std::ssize(numbers), kIntegersAtOnce, [&](int64_t begin, int64_t end) {
        Bytes low = {}, high = {};
        low = ~low;
        int64_t i = begin;
        for (; i + kAtOnce <= end; i += kAtOnce) {
          const Bytes some = bytes_at(&numbers[static_cast<size_t>(i)]) ^ kFlip;
          low = some < low ? some : low;
          high = some > high ? some : high;
        }
        const std::lock_guard lock(merging);
        for (size_t lane = 0; lane < sizeof(Bytes) && i > begin; ++lane) {
          lowest = std::min<uint8_t>(lowest, low[lane]);
          highest = std::max<uint8_t>(highest, high[lane]);
        }
        for (; i < end; ++i) {
          const auto byte = static_cast<uint8_t>(numbers[static_cast<size_t>(i)]) ^ kFlip;
          lowest = std::min(lowest, static_cast<uint8_t>(byte));
          highest = std::max(highest, static_cast<uint8_t>(byte));
        }
      });
  if (numbers.empty()) return {std::numeric_limits<T>::max(), std::numeric_limits<T>::lowest()};
  return {static_cast<T>(lowest ^ kFlip), static_cast<T>(highest ^ kFlip)};
}

Ends ends_of(const Tensor& integers, int threads) {
  return integers.dtype() == DataType::kI8 ? ends_of(integers.as<int8_t>(), threads)
                                           : ends_of(integers.as<uint8_t>(), threads);
}

int integer_at(const Tensor& integers, size_t i) {
  return integers.dtype() == DataType::kI8 ? int{integers.as<int8_t>()[i]}
                                           : int{integers.as<uint8_t>()[i]};
}

template <class T>
Tensor transposed_matrix(const Tensor& matrix) {
  const int64_t rows = matrix.dims()[0], columns = matrix.dims()[1];
  NewTensor made = allocate_tensor(matrix.dtype(), {columns, rows});
  const auto from = matrix.as<T>();
  auto* to = reinterpret_cast<T*>(made.data.data());
  for (int64_t column = 0; column < columns; ++column)
    for (int64_t row = 0; row < rows; ++row)
      *to++ = from[static_cast<size_t>(row * columns + column)];
  return made.tensor;
}

constexpr int middle_of(int bits) { return 1 << (bits - 1); }
constexpr int most_code(int bits) { return (1 << bits) - 1; }

// The number that is subtracted from the integers: one that makes all zero points the middle, if
// there is, else one that makes none negative, if there is.
int shift_of(const Ends& ends, const Ends& zero, int bits) {
  const int wanted = zero.low - middle_of(bits);
  const bool serves =
      zero.low == zero.high && wanted <= ends.low && ends.high <= wanted + most_code(bits);
  if (serves) return wanted;
  return ends.high - zero.low <= most_code(bits) ? std::min(ends.low, zero.low) : ends.low;
}

// Codes of 4 bits as codes_of() makes them, for bytes [begin, end) of the result, by whole vectors.
// Returns the first byte that is left.
int64_t join_fours(const void* numbers, int shift, int64_t begin, int64_t end, std::byte* to) {
  using Pairs [[gnu::vector_size(16)]] = uint16_t;
  const auto joined = [&](int64_t i) {
    const auto* const from = static_cast<const std::byte*>(numbers) + 2 * i;
    const auto codes =
        std::bit_cast<Pairs>((bytes_at(from) - static_cast<uint8_t>(shift)) & uint8_t{0xf});
    return std::bit_cast<Bytes>(codes | codes >> 4);
  };
  constexpr auto kAtOnce = static_cast<int64_t>(sizeof(Bytes));
  for (; begin + kAtOnce <= end; begin += kAtOnce) {
    const Bytes codes = __builtin_shufflevector(joined(begin), joined(begin + kAtOnce / 2), 0, 2, 4,
                                                6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    std::memcpy(to + begin, &codes, sizeof codes);
  }
  return begin;
}

// Codes of kBits bits, the first of a byte in its lowest bits: numbers of a row less `shift`.
template <int kBits, class T>
Tensor codes_of(const Tensor& rows, int shift, int threads) {
  constexpr int kInByte = 8 / kBits;
  NewTensor made = allocate_tensor(DataType::kU8, {rows.dims()[0], rows.dims()[1] / kInByte});
  const T* const numbers = rows.as<T>().data();
  ThreadTeam(threads > 0 ? threads : hardware_threads())
      .for_ranges(std::ssize(made.data), kIntegersAtOnce, [&](int64_t begin, int64_t end) {
        int64_t i = begin;
        if constexpr (kBits == 4) i = join_fours(numbers, shift, begin, end, made.data.data());
        for (; i < end; ++i) {
          int byte = 0;
          for (int k = 0; k < kInByte; ++k)
            byte |= (numbers[i * kInByte + k] - shift) << (k * kBits);
          made.data[static_cast<size_t>(i)] = static_cast<std::byte>(byte);
        }
      });
  return made.tensor;
}
template <int kBits>
Tensor codes_of(const Tensor& rows, int shift, int threads) {
  return rows.dtype() == DataType::kI8 ? codes_of<kBits, int8_t>(rows, shift, threads)
                                       : codes_of<kBits, uint8_t>(rows, shift, threads);
}
Tensor codes_of(const Tensor& rows, int shift, int bits, int threads) {
  return bits == 2 ? codes_of<2>(rows, shift, threads) : codes_of<4>(rows, shift, threads);
}

Tensor in_rows(const Tensor& matrix, bool transposed) {
  if (transposed) return matrix;
  if (matrix.dtype() == DataType::kF32) return transposed_matrix<float>(matrix);
  return matrix.dtype() == DataType::kI8 ? transposed_matrix<int8_t>(matrix)
                                         : transposed_matrix<uint8_t>(matrix);
}

std::optional<PackedWeights> in_bits(int bits, const Ends& ends, const Tensor& integers,
                                     const Tensor& scales, const Tensor* zeros, bool transposed,
                                     int threads) {
  const Ends zero = zeros ? ends_of(*zeros, threads) : Ends{};
  if (ends.high - ends.low > most_code(bits)) return std::nullopt;
  const int shift = shift_of(ends, zero, bits);
  if (zero.low - shift < 0 || zero.high - shift > 255) return std::nullopt;
  const Tensor rows = in_rows(integers, transposed);
  PackedWeights made{.encoding = bits == 2 ? WeightEncoding::kU2 : WeightEncoding::kU4,
                     .codes = codes_of(rows, shift, bits, threads),
                     .scales = in_rows(scales, transposed),
                     .zeros = {}};
  if (zero.low - shift == middle_of(bits) && zero.high == zero.low) return made;
  NewTensor moved = allocate_tensor(DataType::kU8, made.scales.dims());
  const std::optional<Tensor> given =
      zeros ? std::optional(in_rows(*zeros, transposed)) : std::nullopt;
  for (size_t i = 0; i < moved.data.size(); ++i)
    moved.data[i] = static_cast<std::byte>((given ? integer_at(*given, i) : 0) - shift);
  made.zeros = moved.tensor;
  return made;
}

}  // namespace

std::optional<PackedWeights> in_fewer_bits(const Tensor& integers, const Tensor& scales,
                                           const Tensor* zeros, bool transposed, int64_t piece,
                                           int threads) {
  if (integers.count() == 0) return std::nullopt;
  const Ends ends = ends_of(integers, threads);
  for (const int bits : {2, 4}) {
    if (piece % (8 / bits) != 0) continue;
    if (auto made = in_bits(bits, ends, integers, scales, zeros, transposed, threads)) return made;
  }
  return std::nullopt;
}

std::optional<PackedWeights> packed_floats(WeightEncoding encoding, const Tensor& codes,
                                           const Tensor& scales, bool transposed) {
  if (codes.dims()[transposed ? 1 : 0] % codes_in_byte(encoding) != 0) return std::nullopt;
  const Tensor rows = in_rows(codes, transposed);
  const int bits = bits_of(encoding);
  return PackedWeights{.encoding = encoding,
                       .codes = bits == 8 ? rows : codes_of(rows, 0, bits, 1),
                       .scales = in_rows(scales, transposed),
                       .zeros = {}};
}

double largest_number(WeightEncoding encoding, double stored) {
  if (encoding == WeightEncoding::kIntegers) return stored;
  if (has_integers(encoding)) return most_code(bits_of(encoding));
  if (encoding == WeightEncoding::kE5M2) return number_of(encoding, 0x7b);
  if (encoding == WeightEncoding::kE4M3) return number_of(encoding, 0x7e);
  return std::ranges::max(numbers_of_4_bits(encoding));
}

bool has_constant_codes(const Graph& graph, LayerId product) {
  const Layer& layer = graph.layer(product);
  if (!std::holds_alternative<MatMul>(layer.op) || layer.op_input_count <= int{kScales})
    return false;
  const ValueId zeros = layer.inputs[kZeros], scales = layer.inputs[kScales];
  return graph.constant(layer.inputs[1]) && scales != ValueId::kNone && graph.constant(scales) &&
         (zeros == ValueId::kNone || graph.constant(zeros));
}

ProductNorms norms_of_packed(const Graph& graph, LayerId product) {
  const Layer& layer = graph.layer(product);
  const auto& op = std::get<MatMul>(layer.op);
  const Tensor &codes = *graph.constant(layer.inputs[1]),
               &scales = *graph.constant(layer.inputs[kScales]);
  const Tensor* zeros =
      layer.inputs[kZeros] == ValueId::kNone ? nullptr : graph.constant(layer.inputs[kZeros]);
  const int bits = bits_of(op.b_encoding), in_byte = codes_in_byte(op.b_encoding);
  const int of_depth = op.transpose_b ? 1 : 0, of_columns = 1 - of_depth;
  const int64_t depth = codes.dims()[of_depth] * in_byte, columns = codes.dims()[of_columns];
  const int64_t groups = scales.dims()[of_depth], scale_columns = scales.dims()[of_columns];
  const float middle =
      has_integers(op.b_encoding) && bits < 8 ? static_cast<float>(middle_of(bits)) : 0.0F;
  float numbers[256];
  for (int code = 0; code <= most_code(bits); ++code)
    numbers[code] = codes.dtype() == DataType::kI8 ? static_cast<float>(static_cast<int8_t>(code))
                    : has_integers(op.b_encoding)
                        ? static_cast<float>(code)
                        : number_of(op.b_encoding, static_cast<uint8_t>(code));
  ProductNorms norms;
  std::vector<double> sums(static_cast<size_t>(std::max<int64_t>(columns, 1))),
      squares(sums.size()), totals(sums.size());
  std::vector<int64_t> group_of(static_cast<size_t>(depth));
  for (size_t k = 0; k < group_of.size(); ++k)
    group_of[k] = static_cast<int64_t>(k) / (depth / groups);
  const auto* byte = reinterpret_cast<const uint8_t*>(codes.bytes().data());
  const int64_t rows = codes.dims()[0], row_bytes = codes.dims()[1];
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t i = 0; i < row_bytes; ++i, ++byte)
      for (int j = 0; j < in_byte; ++j) {
        const auto column = static_cast<size_t>(op.transpose_b ? row : i);
        const int64_t group = group_of[static_cast<size_t>(op.transpose_b ? i * in_byte + j : row)];
        const auto at = scale_columns == 1 ? int64_t{0} : static_cast<int64_t>(column);
        const auto of_scale =
            static_cast<size_t>(op.transpose_b ? at * groups + group : group * scale_columns + at);
        const float zero = zeros ? static_cast<float>(integer_at(*zeros, of_scale)) : middle;
        const float number = numbers[*byte >> (j * bits) & most_code(bits)];
        const double weight = double{number - zero} * double{scales.as<float>()[of_scale]};
        norms.most = std::max(norms.most, std::abs(weight));
        sums[column] += std::abs(weight);
        squares[column] += weight * weight;
        totals[column] += weight;
      }
  norms.sum = std::ranges::max(sums);
  norms.root = std::sqrt(std::ranges::max(squares));
  for (const double total : totals) norms.mean = std::max(norms.mean, std::abs(total));
  return norms;
}

Tensor unpacked_codes(const Tensor& codes, WeightEncoding encoding) {
  const int bits = bits_of(encoding), in_byte = codes_in_byte(encoding);
  NewTensor made = allocate_tensor(DataType::kU8, {codes.dims()[0], in_byte * codes.dims()[1]});
  std::byte* to = made.data.data();
  for (const uint8_t byte : codes.as<uint8_t>())
    for (int i = 0; i < in_byte; ++i)
      *to++ = static_cast<std::byte>(byte >> (i * bits) & most_code(bits));
  return made.tensor;
}

}  // namespace anneal
