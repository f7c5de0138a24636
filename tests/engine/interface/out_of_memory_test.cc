// Memory that runs out is an Error at every public function: each allocation fails once.
#include <gtest/gtest.h>

#include <functional>
#include <new>

#include "anneal/engine/run/debug.h"
#include "anneal/tests/engine/build_and_run.h"
#include "anneal/tests/engine/counting_new.h"
#include "anneal/tests/engine/graphs.h"

namespace anneal::testing {
namespace {

enum class Ending { kDone, kOutOfMemory, kOther };

Ending ending_of(const std::function<void()>& call, int64_t after, bool for_good) {
  const FailingAllocations failing(after, for_good);
  try {
    call();
  } catch (const Error& error) {
    return error.code() == ErrorCode::kOutOfMemory ? Ending::kOutOfMemory : Ending::kOther;
  } catch (...) {
    return Ending::kOther;
  }
  return Ending::kDone;
}

// The call fails with kOutOfMemory, or does without the memory, whichever allocation fails.
void expect_errors(const std::string& what, const std::function<void()>& call) {
  for (const bool for_good : {false, true}) {
    int failed = 0;
    for (int64_t after = 0;; after += 1 + after / 50) {
      const int64_t before = allocations_so_far();
      const Ending ending = ending_of(call, after, for_good);
      ASSERT_NE(ending, Ending::kOther) << what << ", allocation " << after;
      if (ending == Ending::kOutOfMemory) ++failed;
      if (allocations_so_far() - before <= after) break;  // none was to fail
    }
    EXPECT_GT(failed, 0) << what;
  }
  call();  // and works again
}

TEST(OutOfMemory, IsAnErrorOfEveryFunction) {
  const std::vector<std::byte> file = save(build_text(kDynamicNet));
  expect_errors("load", [&] { Engine::load(file, nullptr, {.device = "cpu"}); });
  const auto engine = Engine::load(file, nullptr, {.device = "cpu"});
  expect_errors("device", [&] { engine->device(); });
  expect_errors("a context", [&] { ExecutionContext context(engine); });
  ExecutionContext context(engine, {.shape_cache_size = 1, .prewarm_profiles = false});
  const std::vector<Tensor> three = {random_f32({3, 6}, 1), random_f32({3, 6}, 2)};
  const std::vector<Tensor> four = {random_f32({4, 6}, 1), random_f32({4, 6}, 2)};
  const auto set = [&](const std::vector<Tensor>& inputs) {
    context.set_input("x", inputs[0].view());
    context.set_input("z", inputs[1].view());
  };
  // Shapes that the context has not kept.
  expect_errors("run", [&] { set(three), context.run(), set(four), context.run(); });
  expect_errors("profile", [&] { context.profile(); });
  const std::vector<InputShape> nine = {{"x", {9, 6}}, {"z", {9, 6}}};
  expect_errors("prepare", [&] { context.prepare(nine), set(four), context.run(); });
  std::vector<float> rows(18);
  expect_errors("set_output", [&] {
    set(four), context.output_dims("y");
    set(three), context.set_output("rows", view(rows, {6, 3}));
    context.run();
  });
  expect_errors("observe", [&] { observe(context, [](const Observation&) {}); });
  expect_errors("a stream", [&] {
    const Stream stream = Stream::make();
    context.enqueue(stream);
    context.wait();
  });
  const std::byte one[] = {std::byte{1}};
  expect_errors("copy_of", [&] { Tensor::copy_of(DataType::kU8, {}, one); });
}

}  // namespace
}  // namespace anneal::testing
