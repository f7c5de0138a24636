// The application's allocator and log, in C++ and in C.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <string>
#include <utility>

#include "anneal/engine/run/c_api.h"
#include "anneal/tests/engine/build_and_run.h"
#include "anneal/tests/error_of.h"

namespace anneal::testing {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Pair;

constexpr std::string_view kNet = R"(
size N in 1..64 opt 8
graph net(x: f32[N,16])
  const w: f32[16,32] = random(1)
  t = MatMul(x, w)
  y = Softmax(t) axis=1
  return y
)";

class CountingAllocator final : public Allocator {
 public:
  void* allocate(size_t bytes, size_t alignment) override {
    if (left-- <= 0) return nullptr;
    ++blocks;
    held += static_cast<int64_t>(bytes);
    return std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  }
  void release(void* memory, size_t bytes) override {
    if (!memory) return;
    --blocks;
    held -= static_cast<int64_t>(bytes);
    std::free(memory);
  }
  std::atomic<int64_t> left{1 << 30}, blocks{0}, held{0};
};

std::vector<std::byte> net_bytes() { return save(build_text(kNet)); }

TEST(Allocator, HoldsWeightsAndContexts) {
  const auto allocator = std::make_shared<CountingAllocator>();
  {
    const auto engine =
        Engine::load(net_bytes(), nullptr, {.device = "cpu", .allocator = allocator});
    const int64_t of_engine = allocator->held;
    EXPECT_GE(of_engine, 16 * 32 * 4);  // the file's bytes are copied
    ExecutionContext context(engine);
    const Tensor x = random_f32({8, 16}, 1);
    context.set_input("x", x.view());
    context.run();
    const int64_t with_context = allocator->held;
    EXPECT_GE(with_context - of_engine, static_cast<int64_t>(context.arena_bytes()));
    context.run();
    EXPECT_EQ(allocator->held, with_context);
    const auto system = Engine::load(net_bytes(), nullptr, {.device = "cpu"});
    ExecutionContext other(system);
    EXPECT_EQ(run(other, *system, {x}), run(context, *engine, {x}));
    EXPECT_GT(allocator->blocks, 0);
  }
  EXPECT_EQ(allocator->held, 0);
  EXPECT_EQ(allocator->blocks, 0);
}

TEST(Allocator, HoldsAFileThatIsRead) {
  const auto path = std::filesystem::temp_directory_path() / "anneal_allocator_test.engine";
  write_engine_file(path, build_text(kNet));
  const auto allocator = std::make_shared<CountingAllocator>();
  const auto engine = Engine::load(path, {.device = "cpu", .map = false, .allocator = allocator});
  EXPECT_GE(allocator->held, static_cast<int64_t>(std::filesystem::file_size(path)));
  std::filesystem::remove(path);
}

TEST(Allocator, NoMemoryIsAnError) {
  const std::vector<std::byte> bytes = net_bytes();
  const Tensor x = random_f32({8, 16}, 1);
  int failed = 0;
  for (int64_t allowed = 0; allowed < 100; ++allowed) {
    const auto allocator = std::make_shared<CountingAllocator>();
    allocator->left = allowed;
    const std::string error = error_of([&] {
      const auto engine = Engine::load(bytes, nullptr, {.device = "cpu", .allocator = allocator});
      ExecutionContext context(engine);
      context.set_input("x", x.view());
      context.run();
    });
    EXPECT_EQ(allocator->blocks, 0) << "a failure keeps memory";
    if (error.empty()) break;
    EXPECT_THAT(error, HasSubstr("out_of_memory"));
    ++failed;
  }
  EXPECT_GT(failed, 1);
  EXPECT_LT(failed, 100);
}

TEST(Log, TellsLoadingAndItsWarnings) {
  std::vector<std::pair<Severity, std::string>> told;
  const LogSink log = [&](Severity severity, std::string_view text) {
    told.emplace_back(severity, text);
  };
  EngineFile file = build_text(kNet);
  Engine::load(save(file), nullptr, {.device = "cpu", .log = log});
  ASSERT_EQ(told.size(), 1U);
  EXPECT_EQ(told[0].first, Severity::kInfo);
  EXPECT_THAT(told[0].second, HasSubstr("loaded \"net\""));
  file.plans[0].steps[0].kernel = "cpu.no.such";
  const auto engine = Engine::load(save(file), nullptr, {.device = "cpu", .log = log});
  EXPECT_THAT(told, Contains(Pair(Severity::kWarning, std::string(engine->load_warnings()[0]))));
}

struct CMemory {
  int64_t blocks = 0, allowed = 1 << 30;
};
void* allocate_c(void* argument, uint64_t bytes, uint64_t alignment) {
  auto& memory = *static_cast<CMemory*>(argument);
  if (memory.allowed-- <= 0) return nullptr;
  ++memory.blocks;
  return std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}
void release_c(void* argument, void* memory, uint64_t) {
  if (!memory) return;
  --static_cast<CMemory*>(argument)->blocks;
  std::free(memory);
}
void log_c(void* argument, anneal_severity severity, const char* text) {
  auto& told = *static_cast<std::string*>(argument);
  told += severity == ANNEAL_WARNING ? "warning: " : "info: ";
  told += std::string(text) + "\n";
}

TEST(Allocator, InC) {
  const std::vector<std::byte> bytes = net_bytes();
  CMemory memory;
  std::string told;
  anneal_engine_options options = {};
  options.size = sizeof(options);
  options.device = "cpu";
  options.allocate = allocate_c;
  options.release = release_c;
  options.allocator_argument = &memory;
  options.log = log_c;
  options.log_argument = &told;
  anneal_error error = {};
  error.size = sizeof(error);
  anneal_engine* engine = nullptr;
  const auto load = [&] {
    return anneal_engine_load_memory(bytes.data(), bytes.size(), nullptr, nullptr, &options,
                                     &engine, &error);
  };
  ASSERT_EQ(load(), ANNEAL_OK) << error.message;
  EXPECT_THAT(told, HasSubstr("info: loaded \"net\""));
  EXPECT_GT(memory.blocks, 0);
  anneal_context* context = nullptr;
  ASSERT_EQ(anneal_context_make(engine, nullptr, &context, &error), ANNEAL_OK) << error.message;
  anneal_context_free(context);
  anneal_engine_free(engine);
  EXPECT_EQ(memory.blocks, 0);
  memory.allowed = 0;
  EXPECT_EQ(load(), ANNEAL_OUT_OF_MEMORY);
  options.release = nullptr;
  EXPECT_EQ(load(), ANNEAL_INVALID_ARGUMENT);
  EXPECT_STREQ(error.message, "allocate and release must both be set, or neither");
  options.release = release_c;
  memory.allowed = 1 << 30;
  options.library_count = 1;
  EXPECT_EQ(load(), ANNEAL_INVALID_ARGUMENT);
  EXPECT_STREQ(error.message, "libraries is null");
  const char* const paths[] = {"/nowhere/k.so"};
  options.libraries = paths;
  EXPECT_EQ(load(), ANNEAL_IO);
  EXPECT_THAT(std::string(error.message), HasSubstr("/nowhere/k.so"));
}

}  // namespace
}  // namespace anneal::testing
