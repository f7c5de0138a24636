// Products of small matrices on tensor cores, and loads of their operands from shared memory. Where
// a lane's registers lie in the matrices is in the PTX manual, "Matrix fragments for mma".
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "anneal/core/float16.h"
#include "anneal/tests/virtual_card/ptx/access.h"
#include "anneal/tests/virtual_card/ptx/entries.h"
#include "anneal/tests/virtual_card/ptx/float8.h"

namespace anneal::ptx {
namespace {

// Four matrices of 8 x 8 elements of 16 bits. Lane l has the address of row l % 8 of matrix l / 8,
// and gets elements 2 (l % 4) and the next one of row l / 4 of each matrix.
template <bool is_transposed>
void load_matrices(Warp& warp, const Instruction& instruction) {
  if (!warp.has_met(kAllLanes)) return;
  const auto* const addresses = warp.read<uint32_t>(instruction.at[4]);
  uint16_t rows[kLanes][8];
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    const auto address =
        static_cast<uint32_t>(addresses[lane] + static_cast<uint32_t>(instruction.offset));
    std::memcpy(rows[lane], checked_shared(warp, address, 16, lane, Access::kLoad), 16);
  }
  for (uint32_t matrix = 0; matrix < 4; ++matrix) {
    uint32_t result[kLanes];
    for (uint32_t lane = 0; lane < kLanes; ++lane) {
      const uint32_t row = lane / 4, column = lane % 4 * 2;
      const auto& of = rows + 8 * matrix;
      const uint16_t low = is_transposed ? of[column][row] : of[row][column];
      const uint16_t high = is_transposed ? of[column + 1][row] : of[row][column + 1];
      result[lane] = uint32_t{high} << 16 | low;
    }
    warp.write(instruction.at[matrix], result);
  }
}

// How a tensor core cuts sums off, as measured and published (Khattak and Mikaitis 2025, "Accurate
// Models of NVIDIA Tensor Cores"): `products` are added at once, all aligned to the largest
// addend with `fraction_bits` behind its first one.
struct Cut {
  int products = 16, fraction_bits = 25;
};

// c plus the products, cut off.
float cut_sum(float c, const double* products, int count, int fraction_bits) {
  double addends[33];
  std::copy_n(products, count, addends);
  addends[count] = c;
  int largest = -2000;
  double plain = 0;
  for (int i = 0; i <= count; ++i) {
    plain += addends[i];
    if (addends[i] != 0) largest = std::max(largest, std::ilogb(addends[i]));
  }
  if (!std::isfinite(plain)) return static_cast<float>(plain);
  if (largest == -2000) return 0;
  double sum = 0;
  for (int i = 0; i <= count; ++i)
    sum += std::trunc(std::ldexp(addends[i], fraction_bits - largest));
  const double value = std::ldexp(sum, largest - fraction_bits);
  // To f32 by cutting off, too.
  auto result = static_cast<float>(value);
  if (std::fabs(double{result}) > std::fabs(value)) result = std::nextafter(result, 0.0F);
  return result;
}

// The operands of a product of 16 x kDepth by kDepth x 8 elements.
template <int kDepth>
struct Operands {
  double a[16][kDepth], b[kDepth][8];
};

// Row and column of register i of c, and of the results.
uint32_t row_of(uint32_t lane, uint32_t i) { return lane / 4 + i / 2 * 8; }
uint32_t column_of(uint32_t lane, uint32_t i) { return lane % 4 * 2 + i % 2; }

// The manual leaves the order of sums open. Products are exact in f64; for 16-bit elements the sums
// are nearly so, and are rounded once.
template <int kDepth>
void add_products(Warp& warp, const Instruction& instruction, size_t c_at,
                  const Operands<kDepth>& of, Cut cut) {
  float c[16][8], results[16][8];
  for (uint32_t i = 0; i < 4; ++i) {
    const auto* const from = warp.read<float>(instruction.at[c_at + i]);
    for (uint32_t lane = 0; lane < kLanes; ++lane)
      c[row_of(lane, i)][column_of(lane, i)] = from[lane];
  }
  const TensorSums sums = warp.block().arithmetic.tensor_sums;
  for (size_t row = 0; row < 16; ++row) {
    if (sums == TensorSums::kExact) {
      double sum[8];
      for (size_t column = 0; column < 8; ++column) sum[column] = double{c[row][column]};
      for (size_t k = 0; k < kDepth; ++k)
        for (size_t column = 0; column < 8; ++column) sum[column] += of.a[row][k] * of.b[k][column];
      for (size_t column = 0; column < 8; ++column)
        results[row][column] = static_cast<float>(sum[column]);
    } else if (sums == TensorSums::kInOrder) {
      for (size_t column = 0; column < 8; ++column) results[row][column] = c[row][column];
      for (size_t k = 0; k < kDepth; ++k)
        for (size_t column = 0; column < 8; ++column)
          results[row][column] += static_cast<float>(of.a[row][k] * of.b[k][column]);
    } else {
      for (size_t column = 0; column < 8; ++column) {
        float sum = c[row][column];
        for (int first = 0; first < kDepth; first += cut.products) {
          double products[32];
          const int count = std::min(cut.products, kDepth - first);
          for (int k = 0; k < count; ++k)
            products[k] = of.a[row][first + k] * of.b[first + k][column];
          sum = cut_sum(sum, products, count, cut.fraction_bits);
        }
        results[row][column] = sum;
      }
    }
  }
  for (uint32_t i = 0; i < 4; ++i) {
    float result[kLanes];
    for (uint32_t lane = 0; lane < kLanes; ++lane) {
      const float value = results[row_of(lane, i)][column_of(lane, i)];
      result[lane] = std::isnan(value) ? std::bit_cast<float>(0x7fffffffu) : value;
    }
    warp.write(instruction.at[i], result);
  }
}

// m16n8k16 of 16-bit elements. Lane l holds of a rows l / 4 and l / 4 + 8, columns 2 (l % 4) and
// the next one, and both 8 further; of b column l / 4, rows 2 (l % 4), the next one, and 8 further.
template <class From>
void multiply_halves(Warp& warp, const Instruction& instruction) {
  if (!warp.has_met(kAllLanes)) return;
  Operands<16> of;
  for (uint32_t i = 0; i < 4; ++i) {
    const auto* const a = warp.read<uint32_t>(instruction.at[4 + i]);
    for (uint32_t lane = 0; lane < kLanes; ++lane) {
      double* const to = &of.a[lane / 4 + i % 2 * 8][lane % 4 * 2 + i / 2 * 8];
      to[0] = double{From()(static_cast<uint16_t>(a[lane]))};
      to[1] = double{From()(static_cast<uint16_t>(a[lane] >> 16))};
    }
  }
  for (uint32_t i = 0; i < 2; ++i) {
    const auto* const b = warp.read<uint32_t>(instruction.at[8 + i]);
    for (uint32_t lane = 0; lane < kLanes; ++lane) {
      const uint32_t row = lane % 4 * 2 + i * 8;
      of.b[row][lane / 4] = double{From()(static_cast<uint16_t>(b[lane]))};
      of.b[row + 1][lane / 4] = double{From()(static_cast<uint16_t>(b[lane] >> 16))};
    }
  }
  const bool is_hopper = warp.block().function.architecture >= 90;
  add_products(warp, instruction, 10, of, is_hopper ? Cut{16, 25} : Cut{8, 24});
}
struct FromF16 {
  float operator()(uint16_t bits) const { return to_f32(Float16{bits}); }
};
struct FromBf16 {
  float operator()(uint16_t bits) const { return to_f32(BFloat16{bits}); }
};

// m16n8k4 and m16n8k8: lane l holds of a rows l / 4 and l / 4 + 8, column l % 4, and both 4
// further; of b column l / 4, row l % 4, and 4 further.
template <int kDepth>
void multiply_tf32(Warp& warp, const Instruction& instruction) {
  if (!warp.has_met(kAllLanes)) return;
  constexpr size_t kSteps = kDepth / 4;
  const auto value = [&](uint32_t bits) {
    if ((bits & 0x1fff) != 0) warp.fault(Fault::kUndefined, "an operand was not converted to tf32");
    return double{std::bit_cast<float>(bits)};
  };
  Operands<kDepth> of;
  for (uint32_t i = 0; i < 2 * kSteps; ++i) {
    const auto* const a = warp.read<uint32_t>(instruction.at[4 + i]);
    for (uint32_t lane = 0; lane < kLanes; ++lane)
      of.a[lane / 4 + i % 2 * 8][lane % 4 + i / 2 * 4] = value(a[lane]);
  }
  for (uint32_t i = 0; i < kSteps; ++i) {
    const auto* const b = warp.read<uint32_t>(instruction.at[4 + 2 * kSteps + i]);
    for (uint32_t lane = 0; lane < kLanes; ++lane)
      of.b[lane % 4 + i * 4][lane / 4] = value(b[lane]);
  }
  const bool is_hopper = warp.block().function.architecture >= 90;
  add_products(warp, instruction, 4 + 3 * kSteps, of, is_hopper ? Cut{8, 25} : Cut{4, 24});
}

// Bytes of m16n8k32: as of 16-bit elements, with four of them in a register in place of two.
template <class Use>
void for_each_byte(const Warp& warp, const Instruction& instruction, Use use) {
  for (uint32_t i = 0; i < 4; ++i) {
    const auto* const a = warp.read<uint32_t>(instruction.at[4 + i]);
    for (uint32_t lane = 0; lane < kLanes; ++lane)
      for (uint32_t byte = 0; byte < 4; ++byte)
        use.a(lane / 4 + i % 2 * 8, lane % 4 * 4 + i / 2 * 16 + byte,
              static_cast<uint8_t>(a[lane] >> 8 * byte));
  }
  for (uint32_t i = 0; i < 2; ++i) {
    const auto* const b = warp.read<uint32_t>(instruction.at[8 + i]);
    for (uint32_t lane = 0; lane < kLanes; ++lane)
      for (uint32_t byte = 0; byte < 4; ++byte)
        use.b(lane % 4 * 4 + i * 16 + byte, lane / 4, static_cast<uint8_t>(b[lane] >> 8 * byte));
  }
}

// Sums wrap.
template <class A, class B>
void multiply_bytes(Warp& warp, const Instruction& instruction) {
  if (!warp.has_met(kAllLanes)) return;
  struct Integers {
    int16_t (&a_)[16][32];
    int16_t (&b_)[8][32];
    void a(uint32_t row, uint32_t k, uint8_t bits) { a_[row][k] = static_cast<A>(bits); }
    void b(uint32_t k, uint32_t column, uint8_t bits) { b_[column][k] = static_cast<B>(bits); }
  };
  int16_t a[16][32], b[8][32];
  for_each_byte(warp, instruction, Integers{a, b});
  for (uint32_t i = 0; i < 4; ++i) {
    const auto* const c = warp.read<uint32_t>(instruction.at[10 + i]);
    uint32_t result[kLanes];
    for (uint32_t lane = 0; lane < kLanes; ++lane) {
      int32_t sum = 0;  // of 32 products below 2^17
      for (size_t k = 0; k < 32; ++k)
        sum += int32_t{a[row_of(lane, i)][k]} * int32_t{b[column_of(lane, i)][k]};
      result[lane] = c[lane] + static_cast<uint32_t>(sum);
    }
    warp.write(instruction.at[i], result);
  }
}

template <Float8 kA, Float8 kB>
void multiply_float8(Warp& warp, const Instruction& instruction) {
  if (!warp.has_met(kAllLanes)) return;
  struct Floats {
    Operands<32>& of;
    void a(uint32_t row, uint32_t k, uint8_t bits) { of.a[row][k] = double{to_f32(kA, bits)}; }
    void b(uint32_t k, uint32_t column, uint8_t bits) {
      of.b[k][column] = double{to_f32(kB, bits)};
    }
  };
  Operands<32> of;
  for_each_byte(warp, instruction, Floats{of});
  // Ada and Hopper keep 13 bits of sums of 8-bit floats.
  add_products(warp, instruction, 10, of,
               warp.block().function.architecture >= 100 ? Cut{32, 25} : Cut{32, 13});
}

#define MMA_BYTES(a, A, b, B) \
  { "mma.sync.aligned.m16n8k32.row.col.s32." a "." b ".s32", multiply_bytes<A, B>, "4w=4w2w4w" }
#define MMA_FLOAT8(a, A, b, B)                               \
  {                                                          \
    "mma.sync.aligned.m16n8k32.row.col.f32." a "." b ".f32", \
        multiply_float8<Float8::A, Float8::B>, "4w=4w2w4w"   \
  }

constexpr Entry kEntries[] = {
    {"ldmatrix.sync.aligned.m8n8.x4.shared.b16", load_matrices<false>, "4w=a"},
    {"ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16", load_matrices<true>, "4w=a"},
    {"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", multiply_halves<FromF16>, "4w=4w2w4w"},
    {"mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", multiply_halves<FromBf16>, "4w=4w2w4w"},
    {"mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32", multiply_tf32<4>, "4w=2ww4w"},
    {"mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", multiply_tf32<8>, "4w=4w2w4w"},
    MMA_BYTES("s8", int8_t, "s8", int8_t),
    MMA_BYTES("u8", uint8_t, "s8", int8_t),
    MMA_BYTES("s8", int8_t, "u8", uint8_t),
    MMA_BYTES("u8", uint8_t, "u8", uint8_t),
    MMA_FLOAT8("e4m3", kE4m3, "e4m3", kE4m3),
    MMA_FLOAT8("e4m3", kE4m3, "e5m2", kE5m2),
    MMA_FLOAT8("e5m2", kE5m2, "e4m3", kE4m3),
    MMA_FLOAT8("e5m2", kE5m2, "e5m2", kE5m2),
};

}  // namespace

std::span<const Entry> matrix_entries() { return kEntries; }

}  // namespace anneal::ptx
