#include "anneal/engine/onnx/batch_formula.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

namespace anneal {
namespace {

// The bytes of `count` batches.
template <class Bytes>
std::vector<int64_t> bytes_from(int64_t first, int64_t count, Bytes bytes) {
  std::vector<int64_t> made;
  for (int64_t batch = first; batch < first + count; ++batch) made.push_back(bytes(batch));
  return made;
}

void expect_formula(int64_t first, const std::vector<int64_t>& bytes, const char* text,
                    bool is_exact) {
  const BatchFormula formula = batch_formula(first, bytes, "N");
  EXPECT_EQ(formula.text, text);
  EXPECT_EQ(formula.is_exact, is_exact);
  EXPECT_EQ(formula.first, first);
  EXPECT_EQ(formula.last, first + static_cast<int64_t>(bytes.size()) - 1);
}

TEST(BatchFormula, IsAnExactPolynomial) {
  expect_formula(1, bytes_from(1, 8, [](int64_t n) { return 64 * n; }), "64*N", true);
  expect_formula(1, bytes_from(1, 5, [](int64_t) { return 7; }), "7", true);
  expect_formula(1, bytes_from(1, 5, [](int64_t) { return 0; }), "0", true);
  expect_formula(0, bytes_from(0, 9, [](int64_t n) { return 3 * n * n + n + 5; }),
                 "5 + 1*N + 3*N^2", true);
  expect_formula(4, bytes_from(4, 60, [](int64_t n) { return 100 * n - 300; }), "-300 + 100*N",
                 true);
  expect_formula(3, {70}, "70", true);
  expect_formula(3, {70, 80}, "40 + 10*N", true);
}

TEST(BatchFormula, IsOtherwiseTheLowestLineAboveAllBatches) {
  // Rounded up to pairs of rows: exact at odd batches alone.
  expect_formula(1, bytes_from(1, 5, [](int64_t n) { return 64 * ((n + 1) / 2 * 2); }), "64 + 64*N",
                 false);
  // Slices stop the growth.
  expect_formula(1, bytes_from(1, 64, [](int64_t n) { return 10 * std::min<int64_t>(n, 3); }), "30",
                 false);
  // A line does not fall.
  expect_formula(1, {90, 50, 30, 20, 10}, "90", false);
}

TEST(BatchFormula, IsNeverExceeded) {
  const std::vector<int64_t> any = bytes_from(1, 64, [](int64_t n) {
    return static_cast<int64_t>(1e5 * std::sqrt(static_cast<double>(n))) + n * 777 % 4096;
  });
  const BatchFormula formula = batch_formula(1, any, "N");
  long long start = 0, slope = 0;
  ASSERT_EQ(std::sscanf(formula.text.c_str(), "%lld + %lld*N", &start, &slope), 2);
  int touched = 0;
  for (size_t i = 0; i < any.size(); ++i) {
    const int64_t bound = start + slope * static_cast<int64_t>(i + 1);
    EXPECT_GE(bound, any[i]) << i;
    touched += bound - any[i] < 100 ? 1 : 0;  // the slope is rounded up
  }
  EXPECT_GE(touched, 2);
}

}  // namespace
}  // namespace anneal
