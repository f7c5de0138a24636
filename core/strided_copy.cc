#include "anneal/core/strided_copy.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "anneal/core/parallel.h"

namespace anneal {
namespace {

// The least that one thread copies at a time: far more than waking another thread costs.
constexpr int64_t kPieceBytes = 256 << 10;

template <class T>
void copy_elements(std::byte* to, int64_t to_step, const std::byte* from, int64_t from_step,
                   int64_t count) {
  for (int64_t i = 0; i < count; ++i)
    std::memcpy(to + i * to_step, from + i * from_step, sizeof(T));
}

// The views with as few axes as can be: lines of elements along the last one. Steps are in bytes.
class Lines {
 public:
  Lines(const TensorView& to, const ConstTensorView& from)
      : to_(to.data), from_(from.data), element_(static_cast<int64_t>(size_of(to.dtype))) {
    for (int axis = 0; axis < to.dims.rank(); ++axis)
      if (to.dims[axis] != 1)
        add(to.dims[axis], to.strides[axis] * element_, from.strides[axis] * element_);
    if (dims_.rank() == 0) add(1, element_, element_);
    for (int axis = 0; axis + 1 < dims_.rank(); ++axis) lines_ *= dims_[axis];
    pieces_ = std::max<int64_t>(1, (length() * element_ + kPieceBytes - 1) / kPieceBytes);
  }

  int64_t bytes() const { return lines_ * length() * element_; }
  // Parts that can be copied apart: lines, or pieces of long ones.
  int64_t items() const { return lines_ * pieces_; }
  int64_t items_of_a_piece() const {
    return std::max<int64_t>(1, kPieceBytes * items() / std::max<int64_t>(bytes(), 1));
  }
  // Whether each stride exceeds the reach of all smaller ones, so that no two elements share
  // memory. Where elements share memory the last write counts, so one thread must do all writes.
  bool writes_apart() const {
    for (int axis = 0; axis < dims_.rank(); ++axis) {
      const int64_t step = std::abs(to_steps_[axis]);
      int64_t reach = element_;
      for (int other = 0; other < dims_.rank(); ++other) {
        const int64_t smaller = std::abs(to_steps_[other]);
        if (smaller < step || (smaller == step && other < axis))
          reach += (dims_[other] - 1) * smaller;
      }
      if (step < reach) return false;
    }
    return true;
  }

  void copy(int64_t begin, int64_t end) const {
    for (int64_t item = begin; item < end; ++item) {
      const int64_t piece = item % pieces_;
      copy_part(item / pieces_, length() * piece / pieces_, length() * (piece + 1) / pieces_);
    }
  }

 private:
  int64_t length() const { return dims_[dims_.rank() - 1]; }

  // Joins the axis with the one around it where both views go on from one to the other.
  void add(int64_t size, int64_t to_step, int64_t from_step) {
    const int last = dims_.rank() - 1;
    if (last >= 0 && to_steps_[last] == size * to_step && from_steps_[last] == size * from_step) {
      dims_[last] *= size;
      to_steps_[last] = to_step;
      from_steps_[last] = from_step;
      return;
    }
    dims_.push_back(size);
    to_steps_.push_back(to_step);
    from_steps_.push_back(from_step);
  }

  // Elements [begin, end) of a line.
  void copy_part(int64_t line, int64_t begin, int64_t end) const {
    const int last = dims_.rank() - 1;
    const int64_t to_step = to_steps_[last], from_step = from_steps_[last];
    std::byte* to = to_ + begin * to_step;
    const std::byte* from = from_ + begin * from_step;
    for (int axis = last - 1; axis >= 0; --axis) {
      to += line % dims_[axis] * to_steps_[axis];
      from += line % dims_[axis] * from_steps_[axis];
      line /= dims_[axis];
    }
    const int64_t count = end - begin;
    if (to_step == element_ && from_step == element_) {
      std::memcpy(to, from, static_cast<size_t>(count * element_));
    } else if (element_ == 1) {
      copy_elements<uint8_t>(to, to_step, from, from_step, count);
    } else if (element_ == 2) {
      copy_elements<uint16_t>(to, to_step, from, from_step, count);
    } else if (element_ == 4) {
      copy_elements<uint32_t>(to, to_step, from, from_step, count);
    } else {
      copy_elements<uint64_t>(to, to_step, from, from_step, count);
    }
  }

  std::byte* to_;
  const std::byte* from_;
  int64_t element_, lines_ = 1, pieces_ = 1;
  Dims dims_, to_steps_, from_steps_;
};

// Calls visit(address) for each element until it is true; whether it was.
template <class Visit>
bool any_element(const ConstTensorView& view, int axis, intptr_t at, const Visit& visit) {
  if (axis == view.dims.rank()) return visit(at);
  const int64_t step = view.strides[axis] * static_cast<int64_t>(size_of(view.dtype));
  const int64_t size = step == 0 ? 1 : view.dims[axis];
  for (int64_t i = 0; i < size; ++i)
    if (any_element(view, axis + 1, at + i * step, visit)) return true;
  return false;
}

}  // namespace

MemoryExtent::MemoryExtent(const ConstTensorView& view) {
  if (!view.data || count(view.dims) == 0) return;
  const auto element = static_cast<int64_t>(size_of(view.dtype));
  int64_t low = 0, high = element;
  for (int axis = 0; axis < view.dims.rank(); ++axis) {
    const int64_t reach = (view.dims[axis] - 1) * view.strides[axis] * element;
    (reach < 0 ? low : high) += reach;
  }
  begin = reinterpret_cast<intptr_t>(view.data) + low;
  end = reinterpret_cast<intptr_t>(view.data) + high;
}

bool views_overlap(const ConstTensorView& a, const ConstTensorView& b) {
  const MemoryExtent of_a(a), of_b(b);
  if (!of_a.meets(of_b)) return false;
  if (is_row_major(a) && is_row_major(b)) return true;
  std::vector<bool> is_of_a(static_cast<size_t>(of_a.end - of_a.begin));
  const auto size_a = static_cast<intptr_t>(size_of(a.dtype));
  any_element(a, 0, reinterpret_cast<intptr_t>(a.data), [&](intptr_t at) {
    for (intptr_t byte = at; byte < at + size_a; ++byte)
      is_of_a[static_cast<size_t>(byte - of_a.begin)] = true;
    return false;
  });
  const auto size_b = static_cast<intptr_t>(size_of(b.dtype));
  return any_element(b, 0, reinterpret_cast<intptr_t>(b.data), [&](intptr_t at) {
    for (intptr_t byte = std::max(at, of_a.begin); byte < std::min(at + size_b, of_a.end); ++byte)
      if (is_of_a[static_cast<size_t>(byte - of_a.begin)]) return true;
    return false;
  });
}

void strided_copy(const TensorView& to, const ConstTensorView& from) {
  if (count(to.dims) == 0) return;
  const Lines lines(to, from);
  lines.copy(0, lines.items());
}

void strided_copy(const TensorView& to, const ConstTensorView& from, ThreadTeam& team) {
  if (count(to.dims) == 0) return;
  const Lines lines(to, from);
  if (lines.bytes() < 2 * kPieceBytes || !lines.writes_apart()) return lines.copy(0, lines.items());
  team.for_ranges(lines.items(), lines.items_of_a_piece(),
                  [&](int64_t begin, int64_t end) { lines.copy(begin, end); });
}

}  // namespace anneal
