// Memory that runs out is an Error at every public function: each allocation fails once.
#include <gtest/gtest.h>

#include "anneal/engine/run/debug.h"
#include "anneal/tests/engine/build_and_run.h"
#include "anneal/tests/engine/expect_out_of_memory.h"
#include "anneal/tests/engine/graphs.h"

namespace anneal::testing {
namespace {

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
