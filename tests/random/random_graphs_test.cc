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

class RandomGraphs : public ::testing::TestWithParam<Kind> {
  testing::WorkerBudget budget_{1};
};

TEST_P(RandomGraphs, GiveWhatTheReferenceGives) {
  for (uint64_t seed = 0; seed < kGraphs; ++seed) {
    const Recipe recipe{.seed = seed, .kind = GetParam()};
    const auto failure = judge(random_model(recipe), {});
    if (failure)
      ADD_FAILURE() << report(recipe, *failure, random_model(reduced(recipe, *failure, judge)));
  }
}

std::string name_of(const ::testing::TestParamInfo<Kind>& info) {
  return std::string(to_string(info.param));
}

INSTANTIATE_TEST_SUITE_P(Kinds, RandomGraphs, ::testing::ValuesIn(kAllKinds), name_of);

}  // namespace
}  // namespace anneal::random_graphs
