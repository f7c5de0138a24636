// Groups of elements that are reduced together, and the blocks in which they are visited. Blocks
// are long rows, or columns where a kept axis is the one adjacent in memory, or where rows would be
// short.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "anneal/core/fail.h"
#include "anneal/core/integer.h"
#include "anneal/core/parallel.h"
#include "anneal/core/tensor.h"
#include "anneal/kernels/cpu/program/tape_space.h"
#include "anneal/kernels/cpu/reduce/reduction_loops.h"

namespace anneal::cpu {

class ReductionSpace {
 public:
  static constexpr int64_t kBlock = 8192;   // elements of a block
  static constexpr int64_t kColumns = 256;  // of a block, where they lie side by side
  static constexpr int64_t kRows = 256;
  static constexpr int64_t kShortRow = 12;  // elements; such rows are computed side by side

  using Axes = std::array<bool, kMaxRank>;
  ReductionSpace() = default;
  // wide: whether several columns may be of one group.
  ReductionSpace(const TensorView& x, const Axes& folded, bool wide = false);

  // Groups are numbered through the axes that stay, row-major, but for the column axis; elements of
  // a group through the folded axes in the order of memory.
  int64_t groups() const { return groups_; }
  int64_t group_size() const { return group_size_; }
  int column_axis() const { return column_axis_; }  // -1: groups are rows
  int64_t columns() const { return columns_; }
  // This number of adjacent columns is one group: the columns are two axes, the column axis, which
  // is folded, and the one before it, which stays. group_size() is the size for one column.
  int64_t columns_per_group() const { return columns_per_group_; }
  // Elements of a group that lie along its last folded axis.
  int64_t last_size() const { return folded_.dims[folded_.dims.rank() - 1]; }
  // From group to group of a view of the same dims, if groups are rows of adjacent elements there
  // and lie evenly.
  std::optional<int64_t> row_stride(const TensorView& view) const;
  const Dims& kept_axes() const { return kept_axes_; }
  const Dims& reduced_axes() const { return reduced_axes_; }

  // How far apart the rows of a block of columns are that is not read in place.
  int64_t column_pitch() const { return std::min(columns_, kColumns); }

  // Makes a block of elements that are nowhere in memory: rows numbered through the axes that stay,
  // then the folded ones; columns along the column axis, or else the last folded one. Rows are
  // column_pitch() apart, or else last_size().
  using Make =
      FunctionRef<void(int64_t row, int64_t rows, int64_t column, int64_t columns, float* to)>;
  struct Source {
    const TensorView& x;
    LoadBlock load;
    float* buffer;               // of kBlock
    const Make* make = nullptr;  // in place of x
    mutable int64_t held = -1;   // the columns that are in the buffer, if all rows are
  };
  // f(x, rows, columns, first): blocks of a group without a column axis, dense; `first` is the
  // number of their first element. A block has several rows only if it has all columns.
  template <class F>
  void for_rows(const Source& source, int64_t group, const F& f) const;
  // From group to group, if for_groups() visits them: groups without a column axis of at most
  // kBlock elements, which are rows of x that lie evenly, or which are made (x is null).
  std::optional<int64_t> group_stride(const TensorView* x) const;
  // f(x, begin, end, stride): the groups [begin, end), each dense, `stride` apart.
  template <class F>
  void for_groups(const Source& source, int64_t group_stride, int64_t begin, int64_t end,
                  const F& f) const;
  // How many groups fill half a block. Their results then fit the first-level cache beside them.
  int64_t groups_of_block() const { return std::max<int64_t>(kBlock / 2 / group_size_, 1); }
  // Whether for_columns() visits one block.
  bool has_one_block() const {
    return group_size_ > 0 && group_size_ == folded_.size(0) &&
           group_size_ <= std::min(kRows, kBlock / column_pitch());
  }
  // One of several runs of the blocks of a group.
  struct Slice {
    int64_t index, count;
  };
  // f(block, first): columns [column, column + count) of a group's elements, from `first` on.
  // REQUIRES: a source that is made has one slice
  template <class F>
  void for_columns(const Source& source, int64_t group, int64_t column, int64_t count, const F& f,
                   Slice slice = {0, 1}) const;

 private:
  template <class F>
  void make_rows(const Source& source, int64_t group, const F& f) const;
  template <class F>
  void make_columns(const Source& source, int64_t group, int64_t column, int64_t count,
                    const F& f) const;

  struct AxisWalk {
    Dims dims, strides;
    int64_t offset(int64_t number) const {
      int64_t result = 0;
      for (int axis = dims.rank() - 1; axis >= 0; --axis) {
        result += number % dims[axis] * strides[axis];
        number /= dims[axis];
      }
      return result;
    }
    int64_t stride(int from_last) const {
      return dims.rank() > from_last ? strides[dims.rank() - 1 - from_last] : 0;
    }
    int64_t size(int from_last) const {
      return dims.rank() > from_last ? dims[dims.rank() - 1 - from_last] : 1;
    }
  };
  const std::byte* at(const TensorView& x, int64_t offset) const {
    return x.data + offset * static_cast<int64_t>(size_of(x.dtype));
  }

  AxisWalk kept_, folded_;
  Dims kept_axes_, reduced_axes_;
  int column_axis_ = -1;
  int64_t column_stride_ = 1;  // elements, from column to column
  int64_t groups_ = 1, group_size_ = 1, columns_ = 1, columns_per_group_ = 1;
};

template <class F>
void ReductionSpace::make_rows(const Source& source, int64_t group, const F& f) const {
  const int64_t width = last_size(), rows = group_size_ / width, first = group * rows;
  if (group_size_ <= kBlock) {
    if (source.held != group) (*source.make)(first, rows, 0, width, source.buffer);
    source.held = group;
    return f(static_cast<const float*>(source.buffer), rows, width, int64_t{0});
  }
  const int64_t row_step = std::max<int64_t>(kBlock / width, 1), step = std::min(width, kBlock);
  for (int64_t row = 0; row < rows; row += row_step) {
    for (int64_t column = 0; column < width; column += step) {
      const int64_t height = std::min(row_step, rows - row),
                    length = std::min(step, width - column);
      (*source.make)(first + row, height, column, length, source.buffer);
      f(static_cast<const float*>(source.buffer), height, length, row * width + column);
    }
  }
}

template <class F>
void ReductionSpace::make_columns(const Source& source, int64_t group, int64_t column,
                                  int64_t count, const F& f) const {
  const int64_t pitch = column_pitch();
  const int64_t row_step = std::min({group_size_, kRows, kBlock / pitch});
  const int64_t number = group * columns_ + column;
  for (int64_t row = 0; row < group_size_; row += row_step) {
    const int64_t rows = std::min(row_step, group_size_ - row);
    if (source.held != number)
      (*source.make)(group * group_size_ + row, rows, column, count, source.buffer);
    if (rows == group_size_) source.held = number;
    f(ReductionBlock{source.buffer, pitch, rows, count}, row);
  }
}

template <class F>
void ReductionSpace::for_rows(const Source& source, int64_t group, const F& f) const {
  if (group_size_ == 0) return;
  if (source.make != nullptr) return make_rows(source, group, f);
  const int64_t base = kept_.offset(group);
  const int64_t width = folded_.size(0), height = folded_.size(1);
  const int64_t column_step = std::min(width, kBlock);
  const int64_t row_step = width > kBlock ? 1 : std::min(height, kBlock / width);
  const int64_t step = folded_.stride(0), row_stride = folded_.stride(1);
  for (int64_t outer = 0; outer < group_size_; outer += width * height) {
    const int64_t offset = base + folded_.offset(outer);
    for (int64_t row = 0; row < height; row += row_step) {
      for (int64_t column = 0; column < width; column += column_step) {
        const int64_t rows = std::min(row_step, height - row);
        const int64_t columns = std::min(column_step, width - column);
        const std::byte* data = at(source.x, offset + row * row_stride + column * step);
        const bool dense = source.x.dtype == DataType::kF32 && (step == 1 || columns == 1) &&
                           (rows == 1 || row_stride == columns);
        if (!dense) {
          const TapePort port{const_cast<std::byte*>(data), 0, row_stride, step};
          source.load(source.x.dtype, port, reinterpret_cast<std::byte*>(source.buffer), columns,
                      rows, columns);
        }
        f(dense ? reinterpret_cast<const float*>(data) : source.buffer, rows, columns,
          outer + row * width + column);
      }
    }
  }
}

template <class F>
void ReductionSpace::for_groups(const Source& source, int64_t group_stride, int64_t begin,
                                int64_t end, const F& f) const {
  if (source.make == nullptr && source.x.dtype == DataType::kF32)
    return f(reinterpret_cast<const float*>(at(source.x, begin * group_stride)), begin, end,
             group_stride);
  const int64_t step = groups_of_block();
  for (int64_t first = begin; first < end; first += step) {
    const int64_t last = std::min(first + step, end);
    if (source.make != nullptr) {
      const int64_t width = last_size(), rows = group_size_ / width;
      (*source.make)(first * rows, (last - first) * rows, 0, width, source.buffer);
    } else {
      const std::byte* const data = at(source.x, first * group_stride);
      source.load(source.x.dtype, {const_cast<std::byte*>(data), 0, group_stride, 1},
                  reinterpret_cast<std::byte*>(source.buffer), group_size_, last - first,
                  group_size_);
    }
    f(static_cast<const float*>(source.buffer), first, last, group_size_);
  }
}

template <class F>
void ReductionSpace::for_columns(const Source& source, int64_t group, int64_t column, int64_t count,
                                 const F& f, Slice slice) const {
  if (group_size_ == 0) return;
  if (source.make != nullptr) {
    check(slice.count == 1, "made columns are not sliced");
    return make_columns(source, group, column, count, f);
  }
  const int64_t base = kept_.offset(group) + column * column_stride_;
  const int64_t height = folded_.size(0), row_stride = folded_.stride(0);
  const int64_t row_step = std::min({height, kRows, kBlock / count});
  const int64_t of_outer = ceil_div(height, row_step);  // blocks
  const int64_t blocks = of_outer * (group_size_ / height);
  const int64_t end = blocks * (slice.index + 1) / slice.count;
  int64_t number = blocks * slice.index / slice.count;
  while (number < end) {
    const int64_t outer = number / of_outer * height;
    const int64_t offset = base + folded_.offset(outer);
    const int64_t end_of_outer = std::min((number / of_outer + 1) * of_outer, end);
    for (; number < end_of_outer; ++number) {
      const int64_t row = number % of_outer * row_step;
      ReductionBlock block;
      block.rows = std::min(row_step, height - row);
      block.columns = count;
      const std::byte* data = at(source.x, offset + row * row_stride);
      if (source.x.dtype == DataType::kF32 && column_stride_ == 1) {
        block.x = reinterpret_cast<const float*>(data);
        block.row_stride = row_stride;
      } else {
        const int64_t place = group * columns_ + column;
        if (source.held != place) {
          const TapePort port{const_cast<std::byte*>(data), 0, row_stride, column_stride_};
          source.load(source.x.dtype, port, reinterpret_cast<std::byte*>(source.buffer), count,
                      block.rows, count);
        }
        source.held = block.rows == group_size_ ? place : -1;
        block.x = source.buffer;
        block.row_stride = count;
      }
      f(block, outer + row);
    }
  }
}

}  // namespace anneal::cpu
