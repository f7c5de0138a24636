#include "anneal/engine/onnx/batch_formula.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace anneal {
namespace {

template <class Bytes>
std::vector<BytesOfBatch> points(std::initializer_list<int64_t> batches, Bytes bytes) {
  std::vector<BytesOfBatch> made;
  for (const int64_t batch : batches) made.push_back({batch, bytes(batch)});
  return made;
}

void expect_formula(const std::vector<BytesOfBatch>& points, const char* text, bool is_exact) {
  const auto formula = batch_formula(points, "N");
  ASSERT_TRUE(formula);
  EXPECT_EQ(formula->text, text);
  EXPECT_EQ(formula->is_exact, is_exact);
  EXPECT_EQ(formula->first, points.front().batch);
  EXPECT_EQ(formula->last, points.back().batch);
}

TEST(BatchFormula, IsAnExactPolynomial) {
  expect_formula(points({1, 2, 3, 5, 8}, [](int64_t n) { return 64 * n; }), "64*N", true);
  expect_formula(points({1, 2, 3, 5}, [](int64_t) { return 7; }), "7", true);
  expect_formula(points({1, 2, 3, 5}, [](int64_t) { return 0; }), "0", true);
  expect_formula(points({0, 1, 2, 9}, [](int64_t n) { return 3 * n * n + n + 5; }),
                 "5 + 1*N + 3*N^2", true);
  expect_formula(points({4, 5, 6, 60}, [](int64_t n) { return 100 * n - 300; }), "-300 + 100*N",
                 true);
}

TEST(BatchFormula, IsOtherwiseTheLowestLineAboveAllPoints) {
  // Rounded up to pairs of rows: exact at odd batches alone.
  expect_formula(points({1, 2, 3, 4, 5}, [](int64_t n) { return 64 * ((n + 1) / 2 * 2); }),
                 "64 + 64*N", false);
  // Slices stop the growth.
  expect_formula(points({1, 2, 3, 8, 64}, [](int64_t n) { return 10 * std::min<int64_t>(n, 3); }),
                 "30", false);
  const auto any = points({1, 2, 3, 4, 5, 7, 8, 13, 16, 31, 64}, [](int64_t n) {
    return static_cast<int64_t>(1e5 * std::sqrt(static_cast<double>(n))) + n * 777 % 4096;
  });
  const auto formula = batch_formula(any, "N");
  long long start = 0, slope = 0;
  ASSERT_EQ(std::sscanf(formula->text.c_str(), "%lld + %lld*N", &start, &slope), 2);
  int touched = 0;
  for (const auto& [batch, bytes] : any) {
    EXPECT_GE(start + slope * batch, bytes) << batch;
    touched += start + slope * batch == bytes ? 1 : 0;
  }
  EXPECT_GE(touched, 1);
}

TEST(BatchFormula, NeedsFourPoints) {
  EXPECT_FALSE(batch_formula(points({1, 2, 3}, [](int64_t n) { return n; }), "N"));
}

}  // namespace
}  // namespace anneal
