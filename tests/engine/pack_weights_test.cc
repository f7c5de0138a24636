// Weights packed when the engine is built: what is stored, what is read, and when it is not.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "anneal/core/new_tensor.h"
#include "anneal/core/parallel.h"
#include "anneal/engine/run/make_engine.h"
#include "anneal/engine/run/pack_weights.h"
#include "anneal/tests/engine/build_and_run.h"
#include "anneal/tests/error_of.h"
#include "anneal/tests/worker_budget.h"

namespace anneal::testing {
namespace {

// Convolutions with windows (by a matrix product, and by Winograd's tiles where there are nine) and
// of one pixel, one by channels, and a product.
constexpr std::string_view kNet = R"txt(
graph net(x: f32[1,3,12,9])
  const w: f32[40,3,3,3] = random(1)
  const u: f32[40,40,3,3] = random(6)
  const v: f32[24,40,1,1] = random(2)
  const d: f32[24,1,3,3] = random(3)
  const m: f32[2592,10] = random(4)
  a = Conv(x, w) strides=[1,1] pads_begin=[1,1] pads_end=[1,1] dilations=[1,1]
  t = Conv(a, u) strides=[1,1] pads_begin=[1,1] pads_end=[1,1] dilations=[1,1]
  b = Conv(t, v) strides=[1,1] pads_begin=[0,0] pads_end=[0,0] dilations=[1,1]
  c = Conv(b, d) strides=[1,1] pads_begin=[1,1] pads_end=[1,1] dilations=[1,1] groups=24
  r = Reshape(c, i64{1, -1})
  y = MatMul(r, m)
  return y
)txt";

EngineFile packed_file(std::string_view target, int threads = 1) {
  GraphBuildOptions options;
  options.targets = {std::string(target)};
  EngineFile file = build_text(kNet, options);
  ThreadTeam team(threads);
  pack_weights(file, team);
  return file;
}

// Every packed number is 0.
EngineFile emptied(EngineFile file) {
  for (ReadyConstant& each : file.packed)
    each.bytes = allocate_tensor(DataType::kU8, each.bytes.dims()).tensor;
  return file;
}

std::vector<float> result_of(const EngineFile& file, const std::string& device, int threads = 1) {
  const auto bytes = std::make_shared<std::vector<std::byte>>(save(file));
  const auto engine =
      make_engine(load_engine_file(*bytes, bytes), {.device = device, .threads = threads});
  ExecutionContext context(engine);
  return run(context, *engine, {random_f32({1, 3, 12, 9}, 5)}).at("y");
}

class PackWeights : public ::testing::TestWithParam<std::string> {};

TEST_P(PackWeights, SavingKeepsThemAndTwoBuildsAgree) {
  const EngineFile file = packed_file(GetParam());
  EXPECT_GE(file.packed.size(), 5) << "each layer reads packed weights";
  const auto bytes = save(file);
  EXPECT_EQ(bytes, save(packed_file(GetParam())));
  const EngineFile loaded = load_engine_file(bytes, nullptr);
  ASSERT_EQ(loaded.packed.size(), file.packed.size());
  for (size_t i = 0; i < file.packed.size(); ++i) {
    EXPECT_EQ(loaded.packed[i].key, file.packed[i].key);
    EXPECT_EQ(loaded.packed[i].bytes, file.packed[i].bytes);
    EXPECT_EQ((loaded.packed[i].bytes.bytes().data() - bytes.data()) % 64, 0);
  }
  EXPECT_EQ(save(loaded), bytes);
}

TEST_P(PackWeights, AnswersAreThoseOfWeightsPackedAtLoad) {
  const EngineFile file = packed_file(GetParam());
  EngineFile plain = file;
  plain.packed.clear();
  EXPECT_EQ(result_of(file, GetParam()), result_of(plain, GetParam()));
}

TEST_P(PackWeights, AnyTeamPacksTheSame) {
  const WorkerBudget budget(3);
  const auto alone = save(packed_file(GetParam()));
  EngineFile plain = packed_file(GetParam());
  plain.packed.clear();
  const std::vector<float> expected = result_of(plain, GetParam());
  for (const int threads : {2, 4}) {
    EXPECT_EQ(save(packed_file(GetParam(), threads)), alone) << threads << " threads";
    EXPECT_EQ(result_of(plain, GetParam(), threads), expected) << threads << " threads";
  }
}

// Shows that what is stored is what is read, and nothing is packed again.
TEST_P(PackWeights, StoredOnesAreRead) {
  for (const float each : result_of(emptied(packed_file(GetParam())), GetParam()))
    EXPECT_EQ(each, 0);
}

TEST_P(PackWeights, OfAnotherSizeOrFormTheyAreNot) {
  const EngineFile file = packed_file(GetParam());
  EngineFile other_size = emptied(file), other_form = emptied(file), plain = file;
  for (ReadyConstant& each : other_size.packed)
    each.bytes = allocate_tensor(DataType::kU8, {each.bytes.dims()[0] - 1}).tensor;
  for (ReadyConstant& each : other_form.packed) each.key += '?';
  plain.packed.clear();
  const std::vector<float> expected = result_of(plain, GetParam());
  EXPECT_EQ(result_of(other_size, GetParam()), expected);
  EXPECT_EQ(result_of(other_form, GetParam()), expected);
}

INSTANTIATE_TEST_SUITE_P(InstructionSets, PackWeights, ::testing::Values("cpu", "cpu:baseline"),
                         [](const auto& info) { return info.param == "cpu" ? "all" : "baseline"; });

// u8 weights of 0 to 15, and a last one, which may be larger.
std::string quantized_net(int last) {
  constexpr int kDepth = 1000, kColumns = 64;  // whole panels of every CPU
  std::string weights;
  for (int i = 0; i < kDepth * kColumns - 1; ++i) weights += std::to_string(i * 7 % 16) + ", ";
  return "graph net(x: f32[2,1000])\n  const w: u8[1000,64] = {" + weights + std::to_string(last) +
         "}\n  r = Dequantize(w, f32[]{0.02}, u8[]{8})\n"
         "  y = MatMul(x, r)\n  return y\n";
}

EngineFile quantized_file(int last) {
  GraphBuildOptions options;
  options.targets = {"cpu"};
  options.passes.cached_weight_bytes = 0;
  EngineFile file = build_text(quantized_net(last), options);
  ThreadTeam team(1);
  pack_weights(file, team);
  return file;
}

// Of 1000 x 64 weights with a scale for each column; those of 8 bits have room for zero points.
TEST(PackQuantizedWeights, ThoseNearToEachOtherTakeHalfAByte) {
  for (const int last : {15, 16}) {
    EngineFile file = quantized_file(last);
    ASSERT_EQ(file.packed.size(), 1u) << "the kernel is cpu.matmul.quantized_weights";
    const size_t bytes = last == 15 ? 32'000 + 64 * 4 : 64'000 + 2 * 64 * 4;
    EXPECT_EQ(file.packed[0].bytes.bytes().size(), bytes);
    const auto run_of = [](const EngineFile& made) {
      const auto saved = std::make_shared<std::vector<std::byte>>(save(made));
      const auto engine = make_engine(load_engine_file(*saved, saved), {.device = "cpu"});
      ExecutionContext context(engine);
      return run(context, *engine, {random_f32({2, 1000}, 5)}).at("y");
    };
    const std::vector<float> ready = run_of(file);
    file.packed.clear();
    EXPECT_EQ(run_of(file), ready);
    const std::vector<Tensor> inputs = {random_f32({2, 1000}, 5)};
    const Tensor wanted = evaluate(parse_graph(quantized_net(last)), inputs)[0];
    for (size_t i = 0; i < ready.size(); ++i)
      ASSERT_NEAR(ready[i], wanted.as<float>()[i], 1e-4 * (1 + std::abs(wanted.as<float>()[i])));
  }
}

TEST(PackWeightsThreads, FewerThanNoneAreRefused) {
  EXPECT_NE(error_of([] { result_of(packed_file("cpu"), "cpu", -1); }).find("threads is -1"),
            std::string::npos);
}

TEST(PackedSections, DamageIsRefused) {
  const EngineFile file = packed_file("cpu");
  auto bytes = save(file);
  bytes[bytes.size() - 64] ^= std::byte{1};
  EXPECT_NE(error_of([&] { load_engine_file(bytes, nullptr); }).find("checksum"),
            std::string::npos);

  EngineFile unordered = file;
  std::swap(unordered.packed[0], unordered.packed[1]);
  EXPECT_NE(error_of([&] { load_engine_file(save(unordered), nullptr); }).find("out of order"),
            std::string::npos);
}

}  // namespace
}  // namespace anneal::testing
