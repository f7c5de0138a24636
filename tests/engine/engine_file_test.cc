// Engine files: round trips, the same bytes from two builds, and hostile bytes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <thread>

#include "anneal/core/bytes.h"
#include "anneal/core/fail.h"
#include "anneal/core/file.h"
#include "anneal/core/new_tensor.h"
#include "anneal/engine/run/make_engine.h"
#include "anneal/tests/engine/build_and_run.h"
#include "anneal/tests/engine/graphs.h"
#include "anneal/tests/error_of.h"

namespace anneal::testing {
namespace {

using ::testing::HasSubstr;
using Bytes = std::vector<std::byte>;

EngineFile load(const Bytes& bytes) {
  const auto owner = std::make_shared<Bytes>(bytes);
  return load_engine_file(*owner, owner);
}

std::string refusal(const Bytes& bytes) {
  try {
    static_cast<void>(load(bytes));
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kIncompatiblePlan) << error.what();
    return error.what();
  }
  return "accepted";
}

// Makes every checksum right again, as an attacker would.
void recompute_checksums(Bytes& bytes) {
  uint32_t count = 0;
  std::memcpy(&count, bytes.data() + 12, 4);
  for (uint32_t i = 0; i < count; ++i) {
    uint64_t offset = 0, size = 0;
    std::memcpy(&offset, bytes.data() + 20 + 24 * i + 8, 8);
    std::memcpy(&size, bytes.data() + 20 + 24 * i + 16, 8);
    if (offset > bytes.size() || size > bytes.size() - offset) continue;
    const uint32_t crc = crc32c(std::span(bytes).subspan(offset, size));
    std::memcpy(bytes.data() + 20 + 24 * i + 4, &crc, 4);
  }
  const uint32_t crc = crc32c(std::span(bytes).subspan(20, 24 * count), count);
  std::memcpy(bytes.data() + 16, &crc, 4);
}

class EngineFiles : public ::testing::TestWithParam<std::string_view> {};

TEST_P(EngineFiles, TwoBuildsGiveTheSameBytes) {
  EXPECT_EQ(save(build_text(GetParam())), save(build_text(GetParam())));
}

TEST_P(EngineFiles, SaveAndLoadKeepEverything) {
  const EngineFile file = build_text(GetParam());
  const EngineFile loaded = load(save(file));
  ASSERT_EQ(loaded.plans.size(), file.plans.size());
  EXPECT_EQ(to_string(loaded.plans[0]), to_string(file.plans[0]));
  EXPECT_EQ(loaded.weights, file.weights);
  EXPECT_EQ(save(loaded), save(file));
}

TEST_P(EngineFiles, EveryTruncationIsRefused) {
  const Bytes bytes = save(build_text(GetParam()));
  const size_t step = std::max<size_t>(1, bytes.size() / 700);
  for (size_t size = 0; size < bytes.size(); size += size < 600 ? 1 : step)
    EXPECT_NE(refusal(Bytes(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(size))),
              "accepted")
        << size;
}

TEST_P(EngineFiles, EveryFlippedByteIsRefused) {
  const Bytes bytes = save(build_text(GetParam()));
  std::mt19937 random(3);
  for (int i = 0; i < 1000; ++i) {
    Bytes flipped = bytes;
    const size_t at = random() % bytes.size();
    flipped[at] ^= static_cast<std::byte>(1 + random() % 255);
    EXPECT_NE(refusal(flipped), "accepted") << "byte " << at;
  }
}

// With right checksums a changed byte may be a changed weight or name; then the engine loads, and
// running it is harmless. The sanitizers are the judges.
TEST_P(EngineFiles, FlippedBytesWithRightChecksumsDoNoHarm) {
  const Bytes bytes = save(build_text(GetParam()));
  std::mt19937 random(4);
  int accepted = 0;
  for (int i = 0; i < 1000; ++i) {
    Bytes flipped = bytes;
    // Half of the flips hit the plan, which is small beside the weights.
    const size_t at =
        i % 2 ? random() % bytes.size() : random() % std::min<size_t>(bytes.size(), 6000);
    flipped[at] ^= static_cast<std::byte>(1 + random() % 255);
    if (at >= 20) recompute_checksums(flipped);
    try {
      const auto engine = make_engine(load(flipped));
      ExecutionContext context(engine);
      std::vector<Tensor> inputs;
      for (const TensorInfo& port : engine->inputs()) {
        Dims dims = port.dims;
        for (int axis = 0; axis < dims.rank(); ++axis)
          if (dims[axis] < 0) dims[axis] = std::min<int64_t>(port.max_dims[axis], 3);
        if (count(dims) > 1 << 20) fail(ErrorCode::kInvalidArgument, "a size was changed");
        inputs.push_back(port.dtype == DataType::kI64 ? tensor_i64({2, 3}) : random_f32(dims, 1));
        context.set_input(port.name, inputs.back().view());
      }
      context.run();
      ++accepted;
    } catch (const Error&) {
    }
  }
  EXPECT_GT(accepted, 0);
}

constexpr std::string_view kBatchNet = R"txt(
graph batch_net(x: f32[4,6,5,5], b: f32[7,1,1] = f32[7,1,1]{1, 2, 3, 4, 5, 6, 7})
  const w: f32[7,6,3,3] = random(1)
  c = Conv(x, w; b) strides=[1,1] pads_begin=[1,1] pads_end=[1,1] dilations=[1,1] epilogue="(f32,f32)->(f32) add($0,$1)"
  y = Softmax(c) axis=1
  return y
)txt";

std::string name_of(const ::testing::TestParamInfo<std::string_view>& info) {
  const std::string_view names[] = {"Conv", "Dynamic", "Late", "Bodies", "Batch"};
  return std::string(names[info.index]);
}
INSTANTIATE_TEST_SUITE_P(Nets, EngineFiles,
                         ::testing::Values(kConvNet, kDynamicNet, kLateNet, kBodiesNet, kBatchNet),
                         name_of);

TEST(EngineFile, AnotherVersionIsRefusedByName) {
  Bytes bytes = save(build_text(kDynamicNet));
  bytes[8] = std::byte{16};
  EXPECT_THAT(refusal(bytes), HasSubstr("format version 16, this library reads version 15"));
}

TEST(EngineFile, OtherFilesAreNoEngines) {
  EXPECT_THAT(refusal({}), HasSubstr("not an engine file"));
  EXPECT_THAT(refusal(Bytes(4096)), HasSubstr("not an engine file"));
}

TEST(EngineFile, IsWrittenWholeOrNotAtAll) {
  const auto folder = std::filesystem::temp_directory_path() / "anneal_engine_file_test";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  const EngineFile file = build_text(kConvNet);
  const std::string path = folder / "net.engine";
  write_engine_file(path, file);
  for (const bool map : {true, false})
    EXPECT_EQ(save(read_engine_file(path, {.map = map})), save(file));
  EXPECT_THROW(write_engine_file(folder / "missing" / "net.engine", file), Error);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 1);
  std::filesystem::remove_all(folder);
}

// The checksums of a file are computed while it is written, those of a pipe before.
TEST(EngineFile, LargeOnesReportHowMuchIsWritten) {
  const auto folder = std::filesystem::temp_directory_path() / "anneal_large_file_test";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  EngineFile file = build_text(kConvNet);
  file.weights.push_back(allocate_tensor(DataType::kF32, {40'000'003}).tensor);
  const std::string path = folder / "net.engine";
  const Bytes saved = save(file);
  std::vector<uint64_t> reports;
  const auto report = [&](uint64_t done, uint64_t total) {
    EXPECT_GT(done, reports.empty() ? 0 : reports.back());
    EXPECT_EQ(total, saved.size());
    reports.push_back(done);
  };
  EXPECT_EQ(write_engine_file(path, file, report), saved.size());
  EXPECT_EQ(reports.size(), 2U);  // of 160 MB, after every 64 MiB
  EXPECT_TRUE(std::ranges::equal(read_file(path).bytes, saved));

  const auto stop = [](uint64_t, uint64_t) { fail(ErrorCode::kCancelled, "stopped"); };
  EXPECT_THAT(error_of([&] { write_engine_file(path, build_text(kDynamicNet)); }), "");
  const Bytes small = save(build_text(kDynamicNet));
  EXPECT_THAT(error_of([&] { write_engine_file(path, file, stop); }), HasSubstr("stopped"));
  EXPECT_TRUE(std::ranges::equal(read_file(path).bytes, small));

  const std::string pipe = folder / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  std::thread writer([&] { write_engine_file(pipe, build_text(kDynamicNet)); });
  EXPECT_TRUE(std::ranges::equal(read_file(pipe).bytes, small));
  writer.join();
  std::filesystem::remove_all(folder);
}

TEST(EngineFile, RefusesTheTargetsItDoesNotHold) {
  EngineFile file = build_text(kDynamicNet);
  file.plans[0].target = "sm_90";
  try {
    static_cast<void>(make_engine(load(save(file)), {.device = "cpu"}));
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kIncompatiblePlan);
    EXPECT_THAT(error.what(), HasSubstr("holds plans for sm_90"));
  }
}

// Parts of ports are views of them: wherever the plan says that a batch may be split, each view
// must lie in its port.
TEST(EngineFile, ABatchIsSplitAlongAxis0OfAllOutputs) {
  const auto forged = [](std::string_view text, const std::function<void(Plan&)>& change) {
    EngineFile file = build_text(text);
    change(file.plans[0]);
    return refusal(save(file));
  };
  const auto split_by_the_first = [](Plan& plan) { plan.batch_split = BatchSplit{.symbol = 0}; };
  EXPECT_EQ(forged(kBatchNet, [](Plan&) {}), "accepted");
  EXPECT_THAT(forged(kBatchNet, [](Plan& plan) { plan.batch_split->symbol = 7; }),
              HasSubstr("the symbol of its batch does not exist"));
  EXPECT_THAT(forged(kDynamicNet, split_by_the_first), HasSubstr("elsewhere than on axis 0"));
  EXPECT_THAT(forged(kLateNet, split_by_the_first), HasSubstr("late slots"));
  EXPECT_THAT(forged(kBodiesNet, split_by_the_first), HasSubstr("has control flow"));
  constexpr std::string_view kNoRows = R"txt(
size N in 1..16
graph no_rows(x: f32[N,6])
  y = Reduce(x, i64{0}) kind=sum keepdims=false
  return y
)txt";
  EXPECT_THAT(forged(kNoRows, split_by_the_first), HasSubstr("an output or all inputs"));
}

TEST(EngineFile, DefaultValuesAreOfTheirInputs) {
  const auto forged = [](const std::function<void(EngineFile&)>& change) {
    EngineFile file = build_text(R"txt(
graph scaled(x: f32[3], w: f32[3] = f32[3]{2, 3, 4})
  y = Pointwise(x, w) program="(f32,f32)->(f32) mul($0,$1)"
  return y
)txt");
    change(file);
    return refusal(save(file));
  };
  EXPECT_EQ(forged([](EngineFile&) {}), "accepted");
  EXPECT_THAT(forged([](EngineFile& file) { file.plans[0].input_defaults[1] = 7; }),
              HasSubstr("the default value of input \"w\" is not there"));
  EXPECT_THAT(forged([](EngineFile& file) { file.plans[0].input_defaults.pop_back(); }),
              HasSubstr("more or fewer default values than inputs"));
  EXPECT_THAT(forged([](EngineFile& file) { file.weights[0] = random_f32({2}, 1); }),
              HasSubstr("input \"w\" and its default value differ in type"));
}

TEST(EngineFile, LateSlotsMustBeDense) {
  EngineFile file = build_text(kLateNet);
  for (Slot& slot : file.plans[0].slots)
    if (slot.storage == Storage::kDataDependent && slot.strides.rank() == 2) slot.strides[0] = 1000;
  EXPECT_THAT(refusal(save(file)), HasSubstr("late and not row-major"));
}

// The result of a body is stored without conversion: an epilogue of the step would have another
// type, and an input after the op's own would be one that the body does not have.
TEST(EngineFile, StepsWithBodiesEndWithThem) {
  constexpr std::string_view kBranch = R"txt(
graph branch(c: bool[], x: f32[64])
  body then(a: f32[64])
    return a
  end
  body else(a: f32[64])
    d = Pointwise(a) program="(f32)->(f32) neg($0)"
    return d
  end
  y = If(c, x)
  return y
)txt";
  const auto forged = [&](int further) {
    EngineFile file = build_text(kBranch);
    Plan& plan = file.plans[0];
    for (Step& step : plan.steps) {
      if (!std::holds_alternative<If>(step.op)) continue;
      ProgramBuilder builder;
      const Reg value = builder.input(0, DataType::kF32);
      for (int i = 1; i <= further; ++i) builder.input(i, DataType::kF32);
      step.epilogues = {builder.finish(value, further == 0 ? DataType::kI8 : DataType::kF32)};
      for (int i = 0; i < further; ++i) step.inputs.push_back(step.inputs[1]);
      if (further == 0) plan.slots[step.outputs[0]].type.dtype = DataType::kI8;
    }
    return refusal(save(file));
  };
  EXPECT_THAT(forged(0), HasSubstr("behind a body"));
  EXPECT_THAT(forged(1000), HasSubstr("behind a body"));
}

// Bodies share the sizes of their plan: many bodies do not multiply them.
TEST(EngineFile, BodiesShareSizes) {
  const EngineFile file = load(save(build_text(kBodiesNet)));
  const Plan& plan = file.plans[0];
  ASSERT_EQ(plan.bodies.size(), 1u);
  EXPECT_EQ(plan.bodies[0].sizes, plan.sizes);
  EXPECT_EQ(plan.bodies[0].bodies[0].sizes, plan.sizes);
}

TEST(EngineFile, EqualWeightsAreStoredOnce) {
  constexpr std::string_view kTwice = R"txt(
graph twice(x: f32[2,64])
  const a: f32[64,64] = random(1)
  const b: f32[64,64] = random(1)
  y = MatMul(x, a)
  z = MatMul(y, b)
  return z
)txt";
  EXPECT_EQ(build_text(kTwice).weights.size(), 1u);
}

}  // namespace
}  // namespace anneal::testing
