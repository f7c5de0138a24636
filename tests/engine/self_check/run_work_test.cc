// The work of a run, which bounds the self-check.
#include <gtest/gtest.h>

#include "anneal/engine/builder/inputs/drawn_inputs.h"
#include "anneal/engine/builder/self_check/run_work.h"
#include "anneal/tests/engine/build_and_run.h"

namespace anneal::testing {
namespace {

double work_of(std::string_view text) {
  const auto engine = engine_of(build_text(text));
  const Plan& plan = plan_of(*engine);
  return run_work(plan, weights_of(*engine), choose_input_dims(plan, weights_of(*engine)));
}

TEST(RunWork, BodiesCountAsOftenAsTheyRun) {
  EXPECT_GE(work_of(R"txt(
graph repeats(x: f32[64,64])
  const go: bool[] = {true}
  body again(i: i64[], c: bool[], h: f32[64,64])
    const w: f32[64,64] = random(1)
    n = MatMul(h, w)
    return c, n
  end
  y = Loop(i64[]{100}, go, x) body=0 carried=1 counted=true
  return y
)txt"),
            100.0 * 64 * 64 * 64);
}

TEST(RunWork, RecurrentLayersCountBothProducts) {
  const double work = work_of(R"txt(
graph recurs(x: f32[10,2,16])
  const w: f32[1,32,16] = random(1)
  const r: f32[1,32,32] = random(2)
  y, h = Recurrent(x, w, r) kind=rnn
  return y, h
)txt");
  EXPECT_GE(work, 10.0 * 2 * 32 * (16 + 32));
  EXPECT_LE(work, 2 * 10.0 * 2 * 32 * (16 + 32));
}

}  // namespace
}  // namespace anneal::testing
