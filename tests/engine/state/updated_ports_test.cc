// State that a run updates in place: an output that is the memory of an input, and scatters that
// write over their data.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "anneal/tests/engine/build_and_run.h"

namespace anneal::testing {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kRows = 16, kWidth = 1024;  // a row is a page of 4 KiB

// Rows of a cache of which only some may be written: others are pages that may only be read.
class ProtectedRows {
 public:
  ProtectedRows() {
    const auto bytes = static_cast<size_t>(kRows * kWidth) * sizeof(float);
    void* const memory =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    data_ = memory == MAP_FAILED ? nullptr : static_cast<float*>(memory);
  }
  ~ProtectedRows() { munmap(data_, static_cast<size_t>(kRows * kWidth) * sizeof(float)); }
  ProtectedRows(const ProtectedRows&) = delete;
  ProtectedRows& operator=(const ProtectedRows&) = delete;

  void fill(const std::vector<float>& values) { std::ranges::copy(values, data_); }
  void write_only_to(int64_t row) {
    protect(0, kRows, PROT_READ);
    protect(row, 1, PROT_READ | PROT_WRITE);
  }
  TensorView view() {
    return row_major_view(DataType::kF32, {1, 1, kRows, kWidth},
                          reinterpret_cast<std::byte*>(data_));
  }
  std::vector<float> values() const { return {data_, data_ + kRows * kWidth}; }

 private:
  void protect(int64_t row, int64_t count, int rights) {
    mprotect(data_ + row * kWidth, static_cast<size_t>(count * kWidth) * sizeof(float), rights);
  }
  float* data_ = nullptr;
};

constexpr std::string_view kCache = R"txt(
graph cache(past: f32[1,1,16,1024], own: f32[1,1,1,1024], at: i64[1,1,1,1024])
  present = ScatterElements(past, at, own) axis=2
  most = Reduce(present, i64{2,3}) kind=max keepdims=false
  return present, most
)txt";

Tensor places(int64_t row) {
  const std::vector<int64_t> rows(static_cast<size_t>(kWidth), row);
  return Tensor::of<int64_t>(DataType::kI64, {1, 1, 1, kWidth}, rows);
}

TEST(State, IsUpdatedInPlaceWithoutACopy) {
  if (sysconf(_SC_PAGESIZE) != kWidth * 4) GTEST_SKIP() << "pages are not of 4 KiB";
  const EngineFile file = build_text(kCache);
  EXPECT_THAT(file.plans[0].updated_ports, Contains(PortPair{0, 0}));
  const auto engine = engine_of(file);
  ExecutionContext updated(engine), copied(engine);
  ProtectedRows cache;
  Tensor state = random_f32({1, 1, kRows, kWidth}, 1);
  cache.fill(elements(state.view()));
  for (const int64_t row : {3, 4, 5}) {
    const Tensor own = random_f32({1, 1, 1, kWidth}, static_cast<uint32_t>(row)), at = places(row);
    const auto wanted = run(copied, *engine, {state, own, at});
    cache.write_only_to(row);
    updated.set_input("past", cache.view());
    updated.set_input("own", own.view());
    updated.set_input("at", at.view());
    updated.set_output("present", cache.view());
    updated.run();  // a write to another row ends the process
    EXPECT_EQ(cache.values(), wanted.at("present"));
    EXPECT_EQ(elements(updated.output("most")), wanted.at("most"));
    state = Tensor::of<float>(DataType::kF32, {1, 1, kRows, kWidth}, wanted.at("present"));
  }
}

// As GroupQueryAttention writes it: the cache grows to `total` rows, or has them already.
constexpr std::string_view kGrowingCache = R"txt(
size P in 1..64 opt 16
size T in 1..64 opt 16
graph growing(past: f32[1,1,P,1024], mask: i64[T], own: f32[1,1,1,1024], at: i64[1,1,1,1024])
  pads = SizeTensor() elements=[0,0,0,0,0,0,max(T, P) - P,0]
  grown = Pad(past, pads, f32[]{0})
  present = ScatterElements(grown, at, own) axis=2
  most = Reduce(present, i64{2,3}) kind=max keepdims=false
  return present, most
)txt";

TEST(State, GrowsByACopyOrNotAtAll) {
  if (sysconf(_SC_PAGESIZE) != kWidth * 4) GTEST_SKIP() << "pages are not of 4 KiB";
  const EngineFile file = build_text(kGrowingCache);
  EXPECT_THAT(file.plans[0].updated_ports, Contains(PortPair{0, 0}));
  const auto engine = engine_of(file);
  const Tensor own = random_f32({1, 1, 1, kWidth}, 1), at = places(7);
  const Tensor state = random_f32({1, 1, kRows, kWidth}, 2);
  ExecutionContext copied(engine), updated(engine);
  for (const int64_t total : {3, 40, 9}) {
    const Tensor mask = tensor_i64(std::vector<int64_t>(static_cast<size_t>(total), 1));
    const std::vector<Tensor> inputs = {state, mask, own, at};
    const auto wanted = reference(kGrowingCache, inputs);
    EXPECT_EQ(run(copied, *engine, inputs), wanted);
    if (total > kRows) continue;
    ProtectedRows cache;
    cache.fill(elements(state.view()));
    cache.write_only_to(7);
    updated.set_input("past", cache.view());
    updated.set_input("mask", mask.view());
    updated.set_input("own", own.view());
    updated.set_input("at", at.view());
    updated.set_output("present", cache.view());
    updated.run();
    EXPECT_EQ(cache.values(), wanted.at("present"));
    EXPECT_EQ(elements(updated.output("most")), wanted.at("most"));
  }
  // Pads that move the rows are no update.
  const auto moved = engine_of(build_text(R"txt(
size P in 1..64 opt 16
graph moved(past: f32[P,8])
  pads = SizeTensor() elements=[P - P + 1,0,-1,0]
  present = Pad(past, pads, f32[]{0})
  return present
)txt"));
  ExecutionContext context(moved);
  std::vector<float> memory(32);
  const TensorView view =
      row_major_view(DataType::kF32, {4, 8}, reinterpret_cast<std::byte*>(memory.data()));
  context.set_input("past", view);
  context.set_output("present", view);
  EXPECT_THROW(context.run(), Error);
}

TEST(State, OfLinearAttentionIsUpdatedInPlace) {
  for (const int64_t length : {1, 7}) {
    for (const bool transposed : {false, true}) {
      const Dims shape = transposed ? Dims{2, 2, 40, 24} : Dims{2, 2, 24, 40};
      const std::string text =
          fmt::format(R"txt(
graph linear(q: f32[2,{0},2,24], v: f32[2,{0},2,40], past: f32[{1}], decay: f32[2,{0},2,1], beta: f32[2,{0},2])
  y, present = LinearAttention(q, q, v, past, decay, beta) scale=0.1 transposed={2}
  return y, present
)txt",
                      length, transposed ? "2,2,40,24" : "2,2,24,40", transposed);
      SCOPED_TRACE(text);
      const EngineFile file = build_text(text);
      EXPECT_EQ(file.plans[0].updated_ports, (std::vector<PortPair>{{2, 1}}));
      const auto engine = engine_of(file);
      ExecutionContext updated(engine), copied(engine);
      const std::vector<Tensor> inputs = {
          random_f32({2, length, 2, 24}, 1), random_f32({2, length, 2, 40}, 2),
          random_f32(shape, 3), random_f32({2, length, 2, 1}, 4), random_f32({2, length, 2}, 5)};
      const auto wanted = run(copied, *engine, inputs);
      std::vector<float> state = elements(inputs[2].view());
      const TensorView view =
          row_major_view(DataType::kF32, shape, reinterpret_cast<std::byte*>(state.data()));
      const char* const names[] = {"q", "v", "past", "decay", "beta"};
      for (size_t i = 0; i < inputs.size(); ++i)
        updated.set_input(names[i], i == 2 ? view : inputs[i].view());
      updated.set_output("present", view);
      updated.run();
      EXPECT_EQ(state, wanted.at("present"));
      EXPECT_EQ(elements(updated.output("y")), wanted.at("y"));
    }
  }
}

std::vector<PortPair> updated_by(std::string_view text) {
  return build_text(text).plans[0].updated_ports;
}

TEST(State, IsCopiedWhereItIsReadAfterwards) {
  EXPECT_THAT(updated_by(R"txt(
graph read_later(past: f32[4,8], at: i64[1,1], own: f32[1,8])
  present = ScatterND(past, at, own)
  most = Reduce(present, i64{0}) kind=max keepdims=false
  old = Reduce(past, i64{0}) kind=max keepdims=false
  both = Pointwise(most, old) program="(f32,f32)->(f32) sub($0,$1)"
  twice = MatMul(present, past) transpose_b=true
  return present, both, twice
)txt"),
              IsEmpty());
  EXPECT_THAT(updated_by(R"txt(
graph other_place(past: f32[8,8])
  present = Transpose(past) permutation=[1,0]
  return present
)txt"),
              IsEmpty());
  EXPECT_THAT(updated_by(R"txt(
graph as_updates(past: f32[4,8], at: i64[4,8])
  present = ScatterElements(past, at, past)
  return present
)txt"),
              IsEmpty());
  EXPECT_THAT(updated_by(R"txt(
graph other_type(past: f32[8])
  present = Pointwise(past) program="(f32)->(i32) i32($0)"
  return present
)txt"),
              IsEmpty());
}

// An output may be written through a view of it, at other places.
TEST(State, IsCopiedWhereTheOutputIsWrittenElsewhere) {
  EXPECT_THAT(updated_by(R"txt(
graph transposed(x: f32[64,64])
  a = Pointwise(x) program="(f32)->(f32) neg($0)"
  y = Transpose(a) permutation=[1,0]
  return y
)txt"),
              IsEmpty());
  EXPECT_THAT(updated_by(R"txt(
graph scattered(x: f32[4,4], at: i64[1,4], own: f32[1,4])
  a = ScatterElements(x, at, own) axis=0
  y = Transpose(a) permutation=[1,0]
  return y
)txt"),
              IsEmpty());
  EXPECT_THAT(updated_by(R"txt(
size P in 1..64 opt 16
graph joined(x: f32[P,4], n: f32[1,4])
  m = Pointwise(n) program="(f32)->(f32) mul($0,$0)"
  pads = SizeTensor() elements=[0,0,-1,0]
  a = Pad(x, pads, f32[]{0})
  y = Concat(m, a) axis=0
  return y
)txt"),
              IsEmpty());
  EXPECT_THAT(updated_by(R"txt(
graph in_place(x: f32[64,64])
  y = Pointwise(x) program="(f32)->(f32) neg($0)"
  return y
)txt"),
              Contains(PortPair{0, 0}));
}

// Parts of a batch, each in place.
TEST(State, IsUpdatedByPartsOfABatch) {
  constexpr std::string_view kRows = R"txt(
size N in 1..64 opt 64
graph rows(x: f32[N,256])
  most = Reduce(x, i64{1}) kind=max
  y = Pointwise(x, most) program="(f32,f32)->(f32) sub($0,$1)"
  return y
)txt";
  const EngineFile file = build_text(kRows);
  EXPECT_TRUE(file.plans[0].batch_split);
  EXPECT_THAT(file.plans[0].updated_ports, Contains(PortPair{0, 0}));
  const auto engine = engine_of(file);
  for (const int64_t micro_batch : {0, 5}) {
    ExecutionContext context(engine, {.micro_batch = micro_batch});
    const Tensor x = random_f32({64, 256}, 1);
    std::vector<float> memory = elements(x.view());
    const TensorView view =
        row_major_view(DataType::kF32, {64, 256}, reinterpret_cast<std::byte*>(memory.data()));
    context.set_input("x", view);
    context.set_output("y", view);
    context.run();
    EXPECT_EQ(memory, reference(kRows, {x}).at("y"));
  }
}

TEST(State, OtherMemoryThatOverlapsIsRefused) {
  const auto engine = engine_of(build_text(kCache));
  ExecutionContext context(engine);
  std::vector<float> memory(static_cast<size_t>((kRows + 1) * kWidth));
  const auto at_row = [&](int64_t row) {
    return row_major_view(DataType::kF32, {1, 1, kRows, kWidth},
                          reinterpret_cast<std::byte*>(memory.data() + row * kWidth));
  };
  const Tensor own = random_f32({1, 1, 1, kWidth}, 1), at = places(2);
  context.set_input("own", own.view());
  context.set_input("at", at.view());
  context.set_input("past", at_row(0));
  context.set_output("present", at_row(1));
  try {
    context.run();
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("output \"present\" overlaps that of input \"past\""));
  }
  context.set_output("present", at_row(0));
  context.run();
}

// Memory that the context allocates during the run.
constexpr std::string_view kLateCache = R"txt(
size T in 0..4096 opt 8
graph late_cache(past: f32[2,3,4], pads: i64[6], at: i64[2,1,4], own: f32[2,1,4])
  grown = Pad(past, pads, f32[]{0})
  present = ScatterElements(grown, at, own) axis=1
  most = Reduce(present, i64{1}) kind=max keepdims=false
  return present, most
)txt";

TEST(State, LateScattersWriteOverTheirData) {
  const EngineFile file = build_text(kLateCache);
  const Plan& plan = file.plans[0];
  const Slot& present = plan.slots[plan.outputs[0]];
  ASSERT_EQ(present.storage, Storage::kDataDependent);
  ASSERT_NE(present.base, kNoSlot);
  EXPECT_EQ(plan.slots[present.base].storage, Storage::kDataDependent);
  const auto engine = engine_of(file);
  ExecutionContext context(engine);
  const std::vector<int64_t> rows = {0, 1, 2, 0, 1, 2, 0, 1};
  for (const int64_t growth : {1, 0, 700, 2}) {
    const std::vector<Tensor> inputs = {
        random_f32({2, 3, 4}, 1), tensor_i64({0, 0, 0, 0, growth, 0}),
        Tensor::of<int64_t>(DataType::kI64, {2, 1, 4}, std::span<const int64_t>(rows)),
        random_f32({2, 1, 4}, 2)};
    EXPECT_EQ(run(context, *engine, inputs), reference(kLateCache, inputs));
  }
}

std::string refusal_of(const std::function<void(Plan&)>& change, std::string_view text) {
  EngineFile file = build_text(text);
  change(file.plans[0]);
  try {
    engine_of(file);
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

TEST(State, DamagedPlansAreRefused) {
  EXPECT_EQ(refusal_of([](Plan&) {}, kCache), "accepted");
  EXPECT_THAT(refusal_of([](Plan& plan) { plan.updated_ports[0].input = 9; }, kCache),
              HasSubstr("an output updates an input, and one of them does not exist"));
  EXPECT_THAT(refusal_of([](Plan& plan) { plan.updated_ports[0].output = 9; }, kCache),
              HasSubstr("an output updates an input, and one of them does not exist"));
  const auto with_base = [](uint32_t base) {
    return [base](Plan& plan) { plan.slots[plan.outputs[0]].base = base; };
  };
  EXPECT_THAT(refusal_of(with_base(1000), kLateCache), HasSubstr("a slot that is not late"));
  EXPECT_THAT(
      refusal_of([](Plan& plan) { plan.slots[plan.outputs[0]].base = plan.inputs[0]; }, kLateCache),
      HasSubstr("a slot that is not late"));
  EXPECT_THAT(refusal_of([](Plan& plan) { plan.slots[plan.outputs[0]].base = plan.outputs[0]; },
                         kLateCache),
              HasSubstr("a slot that is not late"));
  // The memory of a slot that is computed later, and may grow then.
  const auto reversed = [](Plan& plan) {
    Slot& present = plan.slots[plan.outputs[0]];
    plan.slots[present.base].base = plan.outputs[0];
    present.base = kNoSlot;
  };
  EXPECT_THAT(refusal_of(reversed, kLateCache),
              HasSubstr("over one of another size, or before it"));
}

}  // namespace
}  // namespace anneal::testing
