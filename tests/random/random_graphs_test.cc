// Random graphs give what the reference kernels give, however they are built.
#include <gtest/gtest.h>

#include "anneal/tests/random/reduce.h"
#include "anneal/tests/random/report.h"
#include "anneal/tests/worker_budget.h"

namespace anneal::random_graphs {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr uint64_t kGraphs = 10;
#else
constexpr uint64_t kGraphs = 50;
#endif

class RandomGraphsOfKind : public ::testing::TestWithParam<Kind> {
  testing::WorkerBudget budget_{1};
};

TEST_P(RandomGraphsOfKind, GiveWhatTheReferenceGives) {
  for (uint64_t seed = 0; seed < kGraphs; ++seed) {
    const Recipe recipe{.seed = seed, .kind = GetParam()};
    const auto failure = judge(random_model(recipe), {});
    if (failure)
      ADD_FAILURE() << report(recipe, *failure, random_model(reduced(recipe, *failure, judge)));
  }
}

// Graphs in which an operator makes an open size a number, found among 100,000.
TEST(RandomGraphs, OpenSizesThatOneOperatorFixes) {
  const testing::WorkerBudget budget(1);
  for (const uint64_t seed : {3006561, 6002955, 6053082, 6103121, 6202609}) {
    const Recipe recipe{.seed = seed, .kind = Kind::kOpen};
    const RandomModel model = random_model(recipe);
    if (const auto failure = judge(model, {})) ADD_FAILURE() << report(recipe, *failure, model);
  }
}

std::string name_of(const ::testing::TestParamInfo<Kind>& info) {
  return std::string(to_string(info.param));
}

INSTANTIATE_TEST_SUITE_P(Kinds, RandomGraphsOfKind, ::testing::ValuesIn(kAllKinds), name_of);

}  // namespace
}  // namespace anneal::random_graphs
