// Packing, zero points, and how products are cut. The inner loops are in gemm/blocks.cc.
#include "anneal/kernels/cpu/gemm/gemm.h"

#include <fmt/format.h>
#include <hwy/cache_control.h>
#include <immintrin.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

#include "anneal/core/fail.h"
#include "anneal/core/float16.h"
#include "anneal/core/integer.h"
#include "anneal/kernels/cpu/base/workspace.h"
#include "anneal/kernels/cpu/gemm/bf16.h"
#include "anneal/kernels/cpu/gemm/transpose.h"
#include "anneal/kernels/cpu/gemm/vnni.h"

namespace anneal::cpu {
namespace {

int32_t load_8bit(DataType dtype, const std::byte* at) {
  return dtype == DataType::kI8 ? int32_t{*reinterpret_cast<const int8_t*>(at)}
                                : int32_t{*reinterpret_cast<const uint8_t*>(at)};
}

// Axes of k, the widest apart first.
std::array<int, kMaxRank> by_stride(const PackSource& source) {
  const auto stride = [&](int axis) { return std::abs(source.k_strides[axis]); };
  std::array<int, kMaxRank> order;
  for (int axis = 0; axis < source.k_dims.rank(); ++axis) {
    int at = axis;
    for (; at > 0 && stride(order[at - 1]) < stride(axis); --at) order[at] = order[at - 1];
    order[at] = axis;
  }
  return order;
}

// f(k, offset in elements) for every element of the source's k axes, in the order in which they
// lie.
template <class F>
void for_k(const PackSource& source, F f) {
  const int rank = source.k_dims.rank();
  if (count(source.k_dims) == 0) return;
  const std::array<int, kMaxRank> order = by_stride(source);
  const Dims k_steps = row_major_strides(source.k_dims);
  const int last = order[rank - 1];
  Dims at = Dims::filled(rank, 0);
  for (bool more = true; more;) {
    int64_t k = 0, offset = 0;
    for (int axis = 0; axis < rank; ++axis) {
      k += at[axis] * k_steps[axis];
      offset += at[axis] * source.k_strides[axis];
    }
    for (int64_t i = 0; i < source.k_dims[last]; ++i)
      f(k + i * k_steps[last], offset + i * source.k_strides[last]);
    more = false;
    for (int i = rank - 2; i >= 0 && !more; --i) {
      const int axis = order[i];
      more = ++at[axis] < source.k_dims[axis];
      if (!more) at[axis] = 0;
    }
  }
}

// Whether a column is one piece of memory, in whatever order of its axes.
bool is_dense(const PackSource& source) {
  const std::array<int, kMaxRank> order = by_stride(source);
  int64_t next = 1;
  for (int i = source.k_dims.rank() - 1; i >= 0; --i) {
    if (source.k_dims[order[i]] != 1 && source.k_strides[order[i]] != next) return false;
    next *= source.k_dims[order[i]];
  }
  return true;
}

// place(k) of each element of a column that is_dense(), in the order in which they lie.
template <class Place>
std::vector<int64_t> places_of(const PackSource& source, Place place) {
  std::vector<int64_t> places(static_cast<size_t>(count(source.k_dims)));
  for_k(source, [&](int64_t k, int64_t offset) { places[static_cast<size_t>(offset)] = place(k); });
  return places;
}

// A row of a panel, past the cache if it is not read soon: then whole lines need not be read
// before.
void store_row(const float* row, int64_t width, PackTo place, float* to) {
  if (place == PackTo::kCache || width % 4 != 0) {
    std::memcpy(to, row, static_cast<size_t>(width) * sizeof(float));
  } else {
    for (int64_t i = 0; i < width; i += 4) _mm_stream_ps(to + i, _mm_loadu_ps(row + i));
  }
}

void pack_f32(const PackLayout& layout, const PackSource& source, int64_t first, int64_t width,
              PackTo where, std::byte* to) {
  const int64_t step = source.column_stride;
  if (source.dtype == DataType::kF32 && step != 1 && is_dense(source)) {
    const auto* const in = reinterpret_cast<const float*>(source.data) + first * step;
    auto* const out = reinterpret_cast<float*>(to);
    const auto run = [&](const auto& place) {
      transpose_columns(in, step, width, count(source.k_dims), [&](int64_t i, const float* row) {
        store_row(row, layout.tile_columns, where, out + place(i) * layout.tile_columns);
      });
      if (where == PackTo::kMemory) hwy::FlushStream();
    };
    if (source.k_dims.rank() == 1) return run([](int64_t i) { return i; });
    const std::vector<int64_t> places = places_of(source, [](int64_t k) { return k; });
    return run([&](int64_t i) { return places[static_cast<size_t>(i)]; });
  }
  for_k(source, [&](int64_t k, int64_t offset) {
    auto* out = reinterpret_cast<float*>(to) + k * layout.tile_columns;
    offset += first * step;
    switch (source.dtype) {
      case DataType::kF32: {
        const auto* in = reinterpret_cast<const float*>(source.data) + offset;
        if (step == 1) {
          std::memcpy(out, in, static_cast<size_t>(width) * sizeof(float));
        } else {
          for (int64_t i = 0; i < width; ++i) out[i] = in[i * step];
        }
        break;
      }
      case DataType::kF16: {
        const auto* in = reinterpret_cast<const Float16*>(source.data) + offset;
        for (int64_t i = 0; i < width; ++i) out[i] = to_f32(in[i * step]);
        break;
      }
      default: {
        const auto* in = reinterpret_cast<const BFloat16*>(source.data) + offset;
        if (step == 1) return widen(in, width, out);
        for (int64_t i = 0; i < width; ++i) out[i] = to_f32(in[i * step]);
      }
    }
  });
}

// Columns of a panel in the order of k, where they lie otherwise and no tap ends within a lane:
// what packs matrices packs them, too.
template <class T>
class InOrder {
 public:
  static bool applies(const PackLayout& layout, const PackSource& source) {
    return source.k_dims.rank() > 1 && layout.tap % layout.elements_per_lane == 0;
  }
  InOrder(const PackLayout& from_layout, const PackSource& from, int64_t first, int64_t width)
      : layout(from_layout), source(from), memory_(static_cast<size_t>(width * layout.k)) {
    const auto* in = reinterpret_cast<const T*>(from.data) + first * from.column_stride;
    T* to = memory_.data();
    for (int64_t i = 0; i < width; ++i, in += from.column_stride) to = copy(from, 0, in, to);
    layout.tap = layout.k;
    source.data = reinterpret_cast<const std::byte*>(memory_.data());
    source.column_stride = layout.k;
    source.k_dims = {layout.k};
    source.k_strides = {1};
  }
  PackLayout layout;
  PackSource source;

 private:
  static T* copy(const PackSource& from, int axis, const T* in, T* to) {
    const int64_t step = from.k_strides[axis];
    if (axis + 1 < from.k_dims.rank()) {
      for (int64_t i = 0; i < from.k_dims[axis]; ++i) to = copy(from, axis + 1, in + i * step, to);
      return to;
    }
    for (int64_t i = 0; i < from.k_dims[axis]; ++i) to[i] = in[i * step];
    return to + from.k_dims[axis];
  }
  std::vector<T> memory_;
};

// store(value, column of the panel, place(k)) for every 8-bit element of a panel.
template <class Place, class Store>
void for_8bit(const PackSource& source, int64_t first, int64_t width, Place place, Store store) {
  const std::byte* from = source.data + first * source.column_stride;
  if (!is_dense(source)) {
    for (int64_t i = 0; i < width; ++i, from += source.column_stride)
      for_k(source, [&](int64_t k, int64_t offset) {
        store(load_8bit(source.dtype, from + offset), i, place(k));
      });
    return;
  }
  const std::vector<int64_t> places = places_of(source, place);
  const auto depth = static_cast<int64_t>(places.size());
  const auto run = [&](auto type) {
    for (int64_t i = 0; i < width; ++i, from += source.column_stride) {
      const auto* in = reinterpret_cast<const decltype(type)*>(from);
      for (int64_t k = 0; k < depth; ++k) store(int32_t{in[k]}, i, places[static_cast<size_t>(k)]);
    }
  };
  source.dtype == DataType::kI8 ? run(int8_t{}) : run(uint8_t{});
}

void pack_bf16(const PackLayout& layout, const PackSource& source, int64_t first, int64_t width,
               std::byte* to) {
  const auto* data = reinterpret_cast<const BFloat16*>(source.data) + first * source.column_stride;
  auto* const out = reinterpret_cast<BFloat16*>(to);
  for_k(source, [&](int64_t k, int64_t offset) {
    const int64_t at = layout.place(k);
    BFloat16* const lane = out + at / 2 * layout.tile_columns * 2 + at % 2;
    for (int64_t i = 0; i < width; ++i) lane[i * 2] = data[offset + i * source.column_stride];
  });
}

void pack_i16(const PackLayout& layout, const PackSource& source, int64_t first, int64_t width,
              std::byte* to) {
  auto* out = reinterpret_cast<int16_t*>(to);
  std::vector<int32_t> zeros(static_cast<size_t>(width));
  for (int64_t i = 0; i < width && source.zero != nullptr; ++i)
    zeros[static_cast<size_t>(i)] =
        load_8bit(source.dtype, source.zero + (first + i) * source.zero_stride);
  const auto place = [&](int64_t k) {
    const int64_t at = layout.place(k);
    return at / 2 * layout.tile_columns * 2 + at % 2;
  };
  for_8bit(source, first, width, place, [&](int32_t value, int64_t column, int64_t at) {
    out[at + column * 2] = static_cast<int16_t>(value - zeros[static_cast<size_t>(column)]);
  });
}

// The integers of one group of lanes of a panel, unchanged, and their ends in each column.
template <class T>
void copy_group(const PackSource& source, int64_t first, int64_t width, int64_t lane, int64_t lanes,
                int64_t pitch, std::byte* to, int16_t* low, int16_t* high) {
  std::fill_n(low, width, std::numeric_limits<int16_t>::max());
  std::fill_n(high, width, std::numeric_limits<int16_t>::min());
  const int64_t step = source.k_strides[0], column_step = source.column_stride;
  const auto* in = reinterpret_cast<const T*>(source.data) + first * column_step + lane * step;
  auto* out = reinterpret_cast<T*>(to);
  for (int64_t k = 0; k < lanes; ++k, in += step, out += pitch) {
    if (column_step == 1) {
      std::copy_n(in, width, out);
    } else {
      for (int64_t i = 0; i < width; ++i) out[i] = in[i * column_step];
    }
    for (int64_t i = 0; i < width; ++i) {
      low[i] = std::min<int16_t>(low[i], out[i]);
      high[i] = std::max<int16_t>(high[i], out[i]);
    }
  }
}

// Subtracts the zero point of the column and group from the weights if the result has 8 bits. Else
// the rest stays as a zero point, which f32 numbers subtract exactly.
void pack_weights8(const PackLayout& layout, const PackSource& source, int64_t first, int64_t width,
                   std::byte* base, std::byte* to) {
  constexpr int kMostColumns = 64;
  int16_t low[kMostColumns], high[kMostColumns];
  uint8_t taken[kMostColumns];
  check(layout.tile_columns <= kMostColumns, "a panel's columns fit");
  auto* scales = reinterpret_cast<float*>(base + layout.sums_offset()) + first;
  auto* zeros = reinterpret_cast<float*>(base + layout.zeros_offset()) + first;
  const bool is_signed = source.dtype == DataType::kI8;
  const auto copy = is_signed ? copy_group<int8_t> : copy_group<uint8_t>;
  auto* row = reinterpret_cast<uint8_t*>(to);
  for (int64_t group = 0; group < layout.groups(); ++group) {
    copy(source, first, width, group * layout.group, layout.group, layout.tile_columns,
         reinterpret_cast<std::byte*>(row), low, high);
    std::fill_n(scales, layout.tile_columns, 0.0F);
    if (layout.has_zeros) std::fill_n(zeros, layout.tile_columns, 0.0F);
    for (int64_t i = 0; i < width; ++i) {
      const int64_t at = group * source.scale_group_stride + (first + i) * source.scale_stride;
      const int32_t zero = source.zero == nullptr ? 0 : load_8bit(source.dtype, source.zero + at);
      const bool fits = low[i] - zero >= -128 && high[i] - zero <= 127;
      const int32_t take = fits ? zero : is_signed ? 0 : 128;
      taken[i] = static_cast<uint8_t>(take);
      scales[i] = source.scale[at];
      if (layout.has_zeros) zeros[i] = static_cast<float>(zero - take);
    }
    for (int64_t k = 0; k < layout.group; ++k, row += layout.tile_columns)
      for (int64_t i = 0; i < width; ++i) row[i] = static_cast<uint8_t>(row[i] - taken[i]);
    scales += layout.padded_columns(), zeros += layout.padded_columns();
  }
}

void clear_panel(const PackLayout& layout, int64_t panel, std::byte* to) {
  std::memset(to + panel * layout.panel_bytes(), 0, static_cast<size_t>(layout.panel_bytes()));
}

// Whether rows of panels are pieces of the matrix's rows, so that pack_rows() copies them.
bool has_rows_of_panels(const PackLayout& layout, const PackSource& source) {
  if (source.column_stride != 1 || source.k_dims.rank() != 1) return false;
  return has_half_weights(layout.kind) ||
         (layout.kind == GemmKind::kF32 && source.dtype == DataType::kF32);
}
// Copies one row of all panels after the other: the hardware fetches long pieces of rows ahead
// better than one short piece of each row.
template <class T>
void pack_rows(const PackLayout& layout, const PackSource& source, int64_t first, int64_t columns,
               PackTo where, std::byte* to) {
  constexpr int64_t kRowsAhead = 8, kOfALine = 64 / sizeof(T);
  const int64_t width = layout.tile_columns, step = source.k_strides[0];
  const int64_t panel = layout.panel_bytes() / static_cast<int64_t>(sizeof(T));
  const auto* from = reinterpret_cast<const T*>(source.data) + first;
  for (int64_t k = 0; k < layout.k; ++k, from += step) {
    if (k + kRowsAhead < layout.k)
      for (int64_t i = 0; i < columns; i += kOfALine) hwy::Prefetch(from + kRowsAhead * step + i);
    T* out = reinterpret_cast<T*>(to) + k * width;
    for (int64_t i = 0; i < columns; i += width, out += panel) {
      const int64_t taken = std::min(width, columns - i);
      if constexpr (std::is_same_v<T, float>)
        store_row(from + i, taken, where, out);
      else
        std::memcpy(out, from + i, static_cast<size_t>(taken) * sizeof(T));
    }
  }
  if (where == PackTo::kMemory) hwy::FlushStream();
}

// Copies weights of f16 or bf16.
void pack_half_weights(const PackLayout& layout, const PackSource& source, int64_t first,
                       int64_t width, std::byte* to) {
  const auto* from = reinterpret_cast<const uint16_t*>(source.data) + first * source.column_stride;
  auto* const out = reinterpret_cast<uint16_t*>(to);
  const int64_t step = source.k_strides[0], columns = layout.tile_columns;
  // Reads adjacent weights one after the other.
  for (int64_t i = 0; i < width; ++i, from += source.column_stride)
    for (int64_t k = 0; k < layout.k; ++k) out[k * columns + i] = from[k * step];
}

// Scales and zero points, less `middle`, of the columns of a panel.
void pack_factors(const PackLayout& layout, const PackSource& source, int64_t first, int64_t width,
                  int middle, std::byte* base) {
  auto* scales = reinterpret_cast<float*>(base + layout.sums_offset()) + first;
  auto* zeros = reinterpret_cast<float*>(base + layout.zeros_offset()) + first;
  for (int64_t group = 0; group < layout.groups(); ++group) {
    for (int64_t i = 0; i < layout.tile_columns; ++i) {
      const int64_t at = group * source.scale_group_stride + (first + i) * source.scale_stride;
      scales[i] = i < width ? source.scale[at] : 0.0F;
      if (!layout.has_zeros) continue;
      zeros[i] = i < width ? static_cast<float>(load_8bit(DataType::kU8, source.zero + at) - middle)
                           : 0.0F;
    }
    scales += layout.padded_columns(), zeros += layout.padded_columns();
  }
}

// The codes of weights; integers less the middle, so that they have a sign. Codes of 2 bits follow
// each other. Of 4 bits the second half of the columns lies in the high halves of the bytes.
void pack_codes(const PackLayout& layout, const PackSource& source, int64_t first, int64_t width,
                std::byte* base, std::byte* to) {
  const int bits = bits_of(layout.encoding), in_byte = codes_in_byte(layout.encoding);
  const bool are_integers = has_integers(layout.encoding);
  const int middle = are_integers ? 1 << (bits - 1) : 0, all = (1 << bits) - 1;
  const int64_t half = layout.tile_columns / 2, row_bytes = layout.lane_bytes();
  std::memset(to, 0, static_cast<size_t>(layout.panel_bytes()));
  for (int64_t i = 0; i < width; ++i) {
    const auto* from =
        reinterpret_cast<const uint8_t*>(source.data + (first + i) * source.column_stride);
    const int64_t place = bits == 8 ? i : bits == 4 ? i % half : i / 4;
    const int64_t shift = bits == 8 ? 0 : bits == 4 ? i / half * 4 : i % 4 * 2;
    auto* at = reinterpret_cast<uint8_t*>(to) + place;
    for (int64_t k = 0; k < layout.k; ++k, at += row_bytes) {
      const int code = (from[k / in_byte] >> k % in_byte * bits & all) ^ middle;
      *at = static_cast<uint8_t>(*at | code << shift);
    }
  }
  pack_factors(layout, source, first, width, middle, base);
}

void pack_s8(const PackLayout& layout, const PackSource& source, int64_t first, int64_t width,
             std::byte* to, int32_t* sums) {
  auto* out = reinterpret_cast<int8_t*>(to);
  const int32_t shift = source.dtype == DataType::kU8 ? 128 : 0;
  const auto place = [&](int64_t k) {
    const int64_t at = layout.place(k);
    return at / 4 * layout.tile_columns * 4 + at % 4;
  };
  for_8bit(source, first, width, place, [&](int32_t value, int64_t column, int64_t at) {
    out[at + column * 4] = static_cast<int8_t>(value - shift);
    sums[column] += value - shift;
  });
}

}  // namespace

PackLayout::PackLayout(const GemmKernels& kernels, int64_t rows, int64_t columns, int64_t tap)
    : k(rows),
      n(columns),
      tap(tap == 0 ? rows : tap),
      kind(kernels.kind),
      encoding(kernels.encoding),
      tile_columns(kernels.tile_columns),
      elements_per_lane(kernels.elements_per_lane) {}

size_t PackLayout::bytes() const {
  const int64_t sums = kind == GemmKind::kU8S8 ? padded_columns() * 4 : 0;
  const int64_t scales = (has_zeros ? 2 : 1) * groups() * padded_columns() * 4;
  return cache_aligned(static_cast<size_t>(sums_offset() + sums + scales));
}

std::string PackLayout::form() const {
  const std::string text =
      fmt::format("panels {}: {}x{} by {}, {} columns of {}", static_cast<int>(kind), k, n, tap,
                  tile_columns, elements_per_lane);
  if (group == 0) return text;
  return text + fmt::format(", code {}, scales{} of {}", static_cast<int>(encoding),
                            has_zeros ? " and zero points" : "", group);
}

void pack_panels(const PackLayout& layout, const PackSource& source, int64_t begin, int64_t end,
                 std::byte* to, PackTo where) {
  end = std::min(end, layout.panels());
  if (!has_rows_of_panels(layout, source)) {
    for (int64_t panel = begin; panel < end; ++panel) pack_panel(layout, source, panel, to, where);
    return;
  }
  const int64_t first = begin * layout.tile_columns;
  const int64_t columns = std::min(end * layout.tile_columns, layout.n) - first;
  std::byte* const out = to + begin * layout.panel_bytes();
  if (columns % layout.tile_columns != 0) clear_panel(layout, end - 1, to);
  layout.kind == GemmKind::kF32 ? pack_rows<float>(layout, source, first, columns, where, out)
                                : pack_rows<uint16_t>(layout, source, first, columns, where, out);
}

void pack_panel(const PackLayout& layout, const PackSource& source, int64_t panel, std::byte* to,
                PackTo where) {
  if (has_rows_of_panels(layout, source))
    return pack_panels(layout, source, panel, panel + 1, to, where);
  const int64_t first = panel * layout.tile_columns;
  const int64_t width = std::min<int64_t>(layout.tile_columns, layout.n - first);
  std::byte* const out = to + panel * layout.panel_bytes();
  // Columns and lanes beyond the matrix count as zeros.
  if (width < layout.tile_columns || layout.elements_per_lane > 1) clear_panel(layout, panel, to);
  switch (layout.kind) {
    case GemmKind::kF32:
      return pack_f32(layout, source, first, width, where, out);
    case GemmKind::kBf16:
      if (dpbf16_pack(layout, source, first, width, out)) return;
      if (where == PackTo::kMemory && source.dtype == DataType::kBF16 &&
          InOrder<uint16_t>::applies(layout, source)) {
        const InOrder<uint16_t> in_order(layout, source, first, width);
        if (dpbf16_pack(in_order.layout, in_order.source, 0, width, out)) return;
      }
      return pack_bf16(layout, source, first, width, out);
    case GemmKind::kWeights8:
      return pack_weights8(layout, source, first, width, to, out);
    case GemmKind::kWeights4:
    case GemmKind::kCodes:
      return pack_codes(layout, source, first, width, to, out);
    case GemmKind::kWeightsF16:
    case GemmKind::kWeightsBf16:
      return pack_half_weights(layout, source, first, width, out);
    case GemmKind::kI16:
      return pack_i16(layout, source, first, width, out);
    case GemmKind::kU8S8: {
      auto* sums = reinterpret_cast<int32_t*>(to + layout.sums_offset()) + first;
      std::fill(sums, sums + layout.tile_columns, 0);
      if (vnni_pack(layout, source, first, width, out, sums)) return;
      if (where == PackTo::kMemory && InOrder<uint8_t>::applies(layout, source)) {
        const InOrder<uint8_t> in_order(layout, source, first, width);
        if (vnni_pack(in_order.layout, in_order.source, 0, width, out, sums)) return;
      }
      return pack_s8(layout, source, first, width, out, sums);
    }
  }
}

bool Compensation::columns(const PackLayout& layout, const std::byte* packed, int32_t* initial,
                           int32_t* b_zeros) const {
  const auto* sums = reinterpret_cast<const int32_t*>(packed + layout.sums_offset());
  const int32_t moved = b_dtype == DataType::kU8 ? 128 : 0;
  const auto za = static_cast<uint32_t>(a_zero);  // sums wrap, as integer arithmetic does
  bool any = false;
  for (int64_t column = 0; column < layout.padded_columns(); ++column) {
    int32_t zero = 0;
    if (column < layout.n)
      zero = (b_zero == nullptr ? 0 : load_8bit(b_dtype, b_zero + column * b_zero_stride)) - moved;
    b_zeros[column] = zero;
    any = any || zero != 0;
    initial[column] =
        static_cast<int32_t>(za * (static_cast<uint32_t>(layout.k) * static_cast<uint32_t>(zero) -
                                   static_cast<uint32_t>(sums[column])));
  }
  return any;
}

int32_t load_zero_point(const TensorView& view) {
  return view.data == nullptr ? 0 : load_8bit(view.dtype, view.data);
}

GemmBlocks::GemmBlocks(const GemmKernels& kernels, int64_t m, int64_t n, int64_t all_lanes,
                       int64_t products, int threads) {
  // Rows of a block and 2 KiB of each fill a part of the second-level cache; its sums stay there,
  // too, until the epilogue has read them.
  static constexpr int64_t kColumns = 512;
  // The conversion of a panel to f32 serves more rows, of fewer lanes (kCachedLanes).
  const int64_t row_tiles = converts_weights(kernels.kind) ? 16 : 8;
  const int64_t height = kernels.tile_rows, width = kernels.tile_columns;
  rows = std::clamp<int64_t>(m, 1, height * row_tiles);
  columns = std::min(std::max<int64_t>(ceil_div(n, width), 1) * width,
                     std::max<int64_t>(kColumns / width, 1) * width);
  const auto too_few = [&] {
    return threads > 1 && products * ceil_div(m, rows) * ceil_div(n, columns) < 4 * threads;
  };
  while (too_few() && columns > 2 * width) columns = ceil_div(columns / width, 2) * width;
  while (too_few() && rows > height) rows = ceil_div(ceil_div(rows, height), 2) * height;
  row_blocks = std::max<int64_t>(ceil_div(m, rows), 1);
  column_blocks = std::max<int64_t>(ceil_div(n, columns), 1);
  rows = ceil_div(m, row_blocks);  // of nearly equal height
  const bool is_dequantized = converts_weights(kernels.kind) &&
                              rows > std::min<int64_t>(height, most_converting_rows(kernels.kind));
  const int64_t most = is_dequantized ? kCachedLanes : kBlockLanes;
  lanes = ceil_div(all_lanes, std::max<int64_t>(ceil_div(all_lanes, most), 1));
}

}  // namespace anneal::cpu
