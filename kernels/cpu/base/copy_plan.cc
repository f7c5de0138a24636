#include "anneal/kernels/cpu/base/copy_plan.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>

#include "anneal/core/integer.h"
#include "anneal/kernels/cpu/base/interleave.h"
#include "anneal/kernels/cpu/base/transpose_square.h"

namespace anneal::cpu {
namespace {

constexpr int64_t kItem = 16384;  // elements worth a thread of their own
constexpr int64_t kSide = 32;     // of a square that is transposed within the first-level cache

struct Axis {
  int64_t size, from, to;
};

// By falling stride in `to`; axes behind each other in both views joined.
int joined_axes(const Dims& dims, const Dims& from, const Dims& to,
                std::array<Axis, kMaxRank>& axes) {
  int count = 0;
  for (int axis = 0; axis < dims.rank(); ++axis)
    if (dims[axis] != 1) axes[count++] = {dims[axis], from[axis], to[axis]};
  std::stable_sort(axes.begin(), axes.begin() + count,
                   [](const Axis& a, const Axis& b) { return std::abs(a.to) > std::abs(b.to); });
  int joined = 0;
  for (int i = 0; i < count; ++i) {
    const Axis& next = axes[i];
    if (joined > 0 && axes[joined - 1].from == next.from * next.size &&
        axes[joined - 1].to == next.to * next.size) {
      axes[joined - 1] = {axes[joined - 1].size * next.size, next.from, next.to};
    } else {
      axes[joined++] = next;
    }
  }
  return joined;
}

struct Block {
  int64_t rows, columns, row_from, row_to, column_from, column_to;
};

struct Same {
  template <class T>
  T operator()(T x) const {
    return x;
  }
};

template <class T, class Map>
void copy_rows(const Block& b, const T* from, T* to, Map map) {
  for (int64_t row = 0; row < b.rows; ++row, from += b.row_from, to += b.row_to)
    for (int64_t i = 0; i < b.columns; ++i) to[i * b.column_to] = map(from[i * b.column_from]);
}

// Square by square, so that both views are read and written in whole cache lines.
template <class T, class Map>
void copy_squares(const Block& b, const T* from, T* to, Map map) {
  for (int64_t row = 0; row < b.rows; row += kSide) {
    for (int64_t column = 0; column < b.columns; column += kSide) {
      const Block square{std::min(kSide, b.rows - row),
                         std::min(kSide, b.columns - column),
                         b.row_from,
                         b.row_to,
                         b.column_from,
                         b.column_to};
      copy_rows(square, from + row * b.row_from + column * b.column_from,
                to + row * b.row_to + column * b.column_to, map);
    }
  }
}

// Where rows are adjacent in `from`, and columns in `to`.
void transpose_numbers(const Block& b, const uint32_t* from, uint32_t* to) {
  const int64_t rows = b.rows / 4 * 4, columns = b.columns / 4 * 4;
  const auto copy_rest = [&](int64_t row, int64_t column, int64_t width) {
    const Block rest{b.rows - row, width, 1, b.row_to, b.column_from, 1};
    copy_squares(rest, from + row + column * b.column_from, to + row * b.row_to + column, Same());
  };
  for (int64_t row = 0; row < rows; row += kSide)
    for (int64_t column = 0; column < columns; column += kSide)
      for (int64_t i = row; i < std::min(row + kSide, rows); i += 4)
        for (int64_t j = column; j < std::min(column + kSide, columns); j += 4)
          transpose_square(from + i + j * b.column_from, b.column_from, to + i * b.row_to + j,
                           b.row_to);
  if (rows < b.rows) copy_rest(rows, 0, columns);
  if (columns < b.columns) copy_rest(0, columns, b.columns - columns);
}

// Each row is one element again and again.
template <class T>
void repeat_elements(const Block& b, const T* from, T* to) {
  constexpr int64_t kFirst = 64 / sizeof(T), kMost = 4096 / sizeof(T);
  for (int64_t row = 0; row < b.rows; ++row, from += b.row_from, to += b.row_to) {
    int64_t done = std::min(kFirst, b.columns);
    std::fill_n(to, done, *from);
    for (int64_t more = 0; done < b.columns; done += more) {
      more = std::min({done, kMost, b.columns - done});
      std::memcpy(to + done, to, static_cast<size_t>(more) * sizeof(T));
    }
  }
}

// Pixels from planes.
bool is_interleaving(const Block& b, size_t size) {
  return b.columns >= 2 && b.columns <= kMostPlanes && b.column_to == 1 && b.row_from == 1 &&
         b.row_to == b.columns && (size == 1 || size == 4);
}

template <class T>
void copy_block(const Block& b, const std::byte* from, std::byte* to) {
  if (is_interleaving(b, sizeof(T))) {
    static const Interleave run = interleave(current_isa());
    return run(sizeof(T), b.columns, from, b.column_from, b.rows, to);
  }
  const auto* in = reinterpret_cast<const T*>(from);
  auto* out = reinterpret_cast<T*>(to);
  if (b.column_from == 1 && b.column_to == 1) {
    if (b.columns * static_cast<int64_t>(sizeof(T)) < 64) return copy_rows(b, in, out, Same());
    for (int64_t row = 0; row < b.rows; ++row)
      std::memcpy(out + row * b.row_to, in + row * b.row_from,
                  static_cast<size_t>(b.columns) * sizeof(T));
    return;
  }
  if (b.column_from == 0 && b.column_to == 1) return repeat_elements(b, in, out);
  if constexpr (sizeof(T) == 4)
    if (b.row_from == 1 && b.column_to == 1) return transpose_numbers(b, in, out);
  copy_squares(b, in, out, Same());
}

void look_up_block(const Block& b, const ByteLookup& lookup, const uint8_t* in, uint8_t* out) {
  if (b.column_from != 1 || b.column_to != 1)
    return copy_squares(b, in, out, [&](uint8_t x) { return lookup.table[x]; });
  for (int64_t row = 0; row < b.rows; ++row)
    lookup.look_up(lookup.table, in + row * b.row_from, out + row * b.row_to, b.columns);
}

}  // namespace

CopyPlan::CopyPlan(size_t element_size, const Dims& dims, const Dims& from, const Dims& to)
    : element_size_(element_size), elements_(count(dims)) {
  if (elements_ == 0) return;
  std::array<Axis, kMaxRank> axes{};
  int rank = joined_axes(dims, from, to, axes);
  if (rank > 0) {
    const Axis& column = axes[--rank];
    columns_ = column.size, column_from_ = column.from, column_to_ = column.to;
  }
  if (rank > 0) {
    // The row axis is the one that is closest together in `from`, unless columns are so already.
    int row = rank - 1;
    for (int axis = 0; column_from_ != 1 && axis < rank; ++axis)
      if (std::abs(axes[axis].from) < std::abs(axes[row].from)) row = axis;
    rows_ = axes[row].size, row_from_ = axes[row].from, row_to_ = axes[row].to;
    std::copy(axes.begin() + row + 1, axes.begin() + rank, axes.begin() + row);
    --rank;
  } else if (columns_ > kItem) {
    // One long run: cut into rows, if it divides.
    for (int64_t width = kItem; width > kItem / 2; --width) {
      if (columns_ % width != 0) continue;
      rows_ = columns_ / width, row_from_ = column_from_ * width, row_to_ = column_to_ * width;
      columns_ = width;
      break;
    }
  }
  for (int axis = 0; axis < rank; ++axis) {
    outer_.push_back(axes[axis].size);
    outer_from_.push_back(axes[axis].from);
    outer_to_.push_back(axes[axis].to);
  }
  rows_of_item_ = std::clamp<int64_t>(kItem / columns_, 1, rows_);
  if (rows_of_item_ > kSide) rows_of_item_ = rows_of_item_ / kSide * kSide;
  blocks_ = ceil_div(rows_, rows_of_item_);
  items_ = count(outer_) * blocks_;
}

void CopyPlan::run(const std::byte* from, std::byte* to, int64_t begin, int64_t end,
                   const ByteLookup* lookup) const {
  const auto size = static_cast<int64_t>(element_size_);
  for (int64_t item = begin; item < end; ++item) {
    const int64_t row = item % blocks_ * rows_of_item_;
    int64_t from_offset = row * row_from_, to_offset = row * row_to_;
    int64_t rest = item / blocks_;
    for (int axis = outer_.rank() - 1; axis >= 0; --axis) {
      from_offset += rest % outer_[axis] * outer_from_[axis];
      to_offset += rest % outer_[axis] * outer_to_[axis];
      rest /= outer_[axis];
    }
    const Block block{std::min(rows_of_item_, rows_ - row),
                      columns_,
                      row_from_,
                      row_to_,
                      column_from_,
                      column_to_};
    const std::byte* const in = from + from_offset * size;
    std::byte* const out = to + to_offset * size;
    if (lookup != nullptr) {
      look_up_block(block, *lookup, reinterpret_cast<const uint8_t*>(in),
                    reinterpret_cast<uint8_t*>(out));
      continue;
    }
    switch (element_size_) {
      case 1:
        copy_block<uint8_t>(block, in, out);
        break;
      case 2:
        copy_block<uint16_t>(block, in, out);
        break;
      case 4:
        copy_block<uint32_t>(block, in, out);
        break;
      default:
        copy_block<uint64_t>(block, in, out);
    }
  }
}

void CopyPlan::run(const std::byte* from, std::byte* to, ThreadTeam& team,
                   const ByteLookup* lookup) const {
  const int64_t elements_of_item = rows_of_item_ * columns_;
  team.for_ranges(items_, 1 + kItem / std::max<int64_t>(elements_of_item, 1),
                  [&](int64_t begin, int64_t end) { run(from, to, begin, end, lookup); });
}

}  // namespace anneal::cpu
