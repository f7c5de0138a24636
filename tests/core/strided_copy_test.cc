#include "anneal/core/strided_copy.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "anneal/core/channels_last.h"
#include "anneal/core/parallel.h"
#include "anneal/tests/worker_budget.h"

namespace anneal {
namespace {

using testing::WorkerBudget;

// Memory of a view with these strides, between bytes that must not be accessed.
struct Memory {
  Memory(DataType dtype, const Dims& dims, const Dims& strides, std::byte filling) {
    int64_t before = 0, behind = 1;
    for (int axis = 0; axis < dims.rank(); ++axis) {
      const int64_t reach = std::max<int64_t>(dims[axis] - 1, 0) * strides[axis];
      (reach < 0 ? before : behind) += std::abs(reach);
    }
    constexpr int64_t kAround = 3;
    bytes.assign(static_cast<size_t>(before + behind + 2 * kAround) * size_of(dtype), filling);
    view = {dtype, dims, strides,
            bytes.data() + static_cast<size_t>(before + kAround) * size_of(dtype)};
  }
  std::vector<std::byte> bytes;
  TensorView view;
};

// Element by element, in order.
void copy_plainly(const TensorView& to, const TensorView& from) {
  const auto size = static_cast<int64_t>(size_of(to.dtype));
  Dims at = Dims::filled(to.dims.rank(), 0);
  for (int64_t i = 0, elements = count(to.dims); i < elements; ++i) {
    int64_t to_offset = 0, from_offset = 0;
    for (int axis = 0; axis < at.rank(); ++axis) {
      to_offset += at[axis] * to.strides[axis];
      from_offset += at[axis] * from.strides[axis];
    }
    std::memcpy(to.data + to_offset * size, from.data + from_offset * size,
                static_cast<size_t>(size));
    for (int axis = at.rank() - 1; axis >= 0 && ++at[axis] == to.dims[axis]; --axis) at[axis] = 0;
  }
}

void expect_copies(DataType dtype, const Dims& dims, const Dims& to, const Dims& from) {
  SCOPED_TRACE(std::string(to_string(dtype)) + to_string(dims) + " from " + to_string(from) +
               " to " + to_string(to));
  Memory source(dtype, dims, from, std::byte{0});
  std::mt19937 random(1);
  for (std::byte& byte : source.bytes) byte = static_cast<std::byte>(random());
  Memory wanted(dtype, dims, to, std::byte{0xa5});
  copy_plainly(wanted.view, source.view);
  Memory alone(dtype, dims, to, std::byte{0xa5});
  strided_copy(alone.view, source.view);
  EXPECT_TRUE(alone.bytes == wanted.bytes) << "alone";
  for (const int threads : {1, 2, 4}) {
    ThreadTeam team(threads);
    ASSERT_EQ(team.size(), threads);
    Memory got(dtype, dims, to, std::byte{0xa5});
    strided_copy(got.view, source.view, team);
    EXPECT_TRUE(got.bytes == wanted.bytes) << threads << " threads";
  }
}

Dims row_major(const Dims& dims) { return row_major_strides(dims); }

TEST(StridedCopy, CopiesOnePieceOfMemory) {
  const WorkerBudget budget(3);
  for (const DataType dtype : {DataType::kU8, DataType::kF16, DataType::kF32, DataType::kI64})
    for (const Dims& dims : {Dims{}, Dims{1}, Dims{7}, Dims{3, 1, 5}, Dims{1, 3, 400, 401},
                             Dims{1'000'003}, Dims{2, 300'001}})
      expect_copies(dtype, dims, row_major(dims), row_major(dims));
}

TEST(StridedCopy, TakesAnyStrides) {
  const WorkerBudget budget(3);
  for (const DataType dtype : {DataType::kI8, DataType::kBF16, DataType::kF32, DataType::kF64}) {
    // Channels last, both ways.
    const Dims image = {2, 3, 260, 250};
    const Dims last = channels_last_strides(image);
    expect_copies(dtype, image, row_major(image), last);
    expect_copies(dtype, image, last, row_major(image));
    expect_copies(dtype, image, last, last);
    // Rows with gaps, elements with gaps, backwards, and one element for all.
    expect_copies(dtype, {600, 700}, {700, 1}, {901, 1});
    expect_copies(dtype, {600, 700}, {701, 1}, {1400, 2});
    expect_copies(dtype, {600, 700}, {700, 1}, {-700, -1});
    expect_copies(dtype, {600, 700}, {-700, 1}, {700, -1});
    expect_copies(dtype, {600, 700}, {700, 1}, {0, 1});
    expect_copies(dtype, {600, 700}, {700, 1}, {1, 0});
    expect_copies(dtype, {600, 700}, {700, 1}, {0, 0});
    expect_copies(dtype, {420'000}, {1}, {0});
    expect_copies(dtype, {420'000}, {3}, {-2});
    // Of axes of size 1 no stride counts.
    expect_copies(dtype, {1, 600, 1, 700}, {5, 700, 3, 1}, {0, 700, -9, 1});
  }
}

TEST(StridedCopy, OfElementsThatShareMemoryTheLastStays) {
  const WorkerBudget budget(3);
  for (int round = 0; round < 3; ++round) {
    expect_copies(DataType::kF32, {600, 700}, {0, 1}, {700, 1});
    expect_copies(DataType::kF32, {600, 700}, {1, 0}, {700, 1});
    expect_copies(DataType::kF32, {600, 700}, {1, 1}, {700, 1});
    expect_copies(DataType::kF32, {600, 700}, {-699, 1}, {700, 1});
    expect_copies(DataType::kF32, {2, 200, 700}, {700, 1400, -2}, {140'000, 700, 1});
  }
}

TEST(StridedCopy, CopiesNothingOfNoElements) {
  const WorkerBudget budget(3);
  ThreadTeam team(4);
  for (const Dims& dims : {Dims{0}, Dims{3, 0, 5}, Dims{0, 1'000'000}}) {
    const TensorView nothing{DataType::kF32, dims, row_major(dims), nullptr};
    strided_copy(nothing, nothing);
    strided_copy(nothing, nothing, team);
  }
}

// All views of a small memory, against the addresses of their elements.
TEST(ViewsOverlap, IsExact) {
  std::vector<std::byte> memory(128);
  const auto bytes_of = [](const TensorView& view) {
    std::vector<const std::byte*> bytes;
    for (int64_t i = 0; i < view.dims[0]; ++i)
      for (int64_t k = 0; k < view.dims[1]; ++k)
        for (size_t byte = 0; byte < size_of(view.dtype); ++byte)
          bytes.push_back(view.data +
                          (i * view.strides[0] + k * view.strides[1]) *
                              static_cast<int64_t>(size_of(view.dtype)) +
                          byte);
    return bytes;
  };
  std::mt19937 random(1);
  const auto draw = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  int overlapping = 0, apart = 0;
  while (overlapping + apart < 4000) {
    const auto view = [&] {
      return TensorView{draw(0, 1) ? DataType::kI16 : DataType::kU8,
                        {draw(0, 3), draw(1, 3)},
                        {draw(-4, 8), draw(-1, 3)},
                        memory.data() + 24 + 2 * draw(0, 8)};
    };
    const TensorView a = view(), b = view();
    bool share = false;
    for (const std::byte* one : bytes_of(a))
      for (const std::byte* other : bytes_of(b)) share |= one == other;
    ASSERT_EQ(views_overlap(a, b), share);
    ASSERT_EQ(views_overlap(b, a), share);
    ++(share ? overlapping : apart);
  }
  EXPECT_GT(std::min(overlapping, apart), 500);
}

}  // namespace
}  // namespace anneal
