#include "anneal/cli/output/print.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "anneal/cli/output/picture.h"
#include "anneal/cli/output/printable.h"
#include "anneal/cli/output/tensor_summary.h"
#include "anneal/engine/tune/metric/scores.h"

namespace anneal {
namespace {

TEST(Print, Numbers) {
  EXPECT_EQ(bytes_text(0), "0 B");
  EXPECT_EQ(bytes_text(999), "999 B");
  EXPECT_EQ(bytes_text(1000), "1 kB");
  EXPECT_EQ(bytes_text(26454), "26.5 kB");
  EXPECT_EQ(bytes_text(999999), "1 MB");
  EXPECT_EQ(bytes_text(UINT64_MAX), "1.84e+07 TB");
  EXPECT_EQ(milliseconds_text(0.1234), "0.123 ms");
  EXPECT_EQ(milliseconds_text(1234), "1.23 s");
}

TEST(Print, CountsAndNumbers) {
  EXPECT_EQ(count_text(0, "step"), "0 steps");
  EXPECT_EQ(count_text(1, "step"), "1 step");
  EXPECT_EQ(count_text(2, "step"), "2 steps");
  EXPECT_EQ(count_text(1, "axis"), "1 axis");
  EXPECT_EQ(count_text(4, "axis"), "4 axes");
  EXPECT_EQ(count_text(3, "launch"), "3 launches");
  EXPECT_EQ(number_text(0.1234567), "0.123457");
  EXPECT_EQ(number_text(0.1234567, 2), "0.12");
  EXPECT_EQ(number_text(-std::numeric_limits<double>::quiet_NaN()), "nan");
  EXPECT_EQ(number_text(-std::numeric_limits<double>::infinity()), "-inf");
}

TEST(Print, ControlCharactersAreEscaped) {
  EXPECT_EQ(printable("plain, \xc3\xa4"), "plain, \xc3\xa4");
  EXPECT_EQ(printable("a\nb\x1b[2J\x7f\xc2\x9b"), "a\\x0ab\\x1b[2J\\x7f\\x9b");
  const std::string_view error = "list:\n  one\nanneal: error: forged\n";
  EXPECT_EQ(printable(error, LineEnds::kIndented), "list:\n  one\\x0aanneal: error: forged\\x0a");
  EXPECT_EQ(printable(error, LineEnds::kKept), error);
  EXPECT_EQ(printable(std::string_view("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(table_text({{"a\nb", "c"}}, {false, false}), "a\\x0ab  c\n");
}

TEST(Print, OneLine) {
  EXPECT_EQ(one_line("a\n  b\nc\n"), "a; b; c");
  EXPECT_EQ(one_line("two things:\n  b"), "two things: b");
  EXPECT_EQ(one_line(""), "");
}

TEST(Print, Table) {
  EXPECT_EQ(table_text({{"a", "1"}, {"long", "10"}, {"b", ""}}, {false, true}),
            "a      1\nlong  10\nb\n");
  EXPECT_EQ(table_text({}, {false}), "");
}

TEST(Print, Statistics) {
  EXPECT_EQ(median({3, 1, 2}), 2);
  EXPECT_EQ(median({4, 1, 2, 3}), 2.5);
  EXPECT_EQ(percentile({5, 1, 2, 3, 4}, 0.99), 5);
  EXPECT_EQ(percentile({1}, 0), 1);
  EXPECT_EQ(percentile({1, 2, 3, 4}, 0.5), 2);
}

TEST(Scores, Layout) {
  const struct {
    DataType dtype;
    Dims dims;
    int64_t samples, classes;  // 0: no scores
  } cases[] = {
      {DataType::kF32, {10}, 1, 10},          {DataType::kF32, {1, 1000}, 1, 1000},
      {DataType::kF16, {7, 12}, 7, 12},       {DataType::kF32, {2, 10, 1, 1}, 2, 10},
      {DataType::kF32, {1, 1, 1, 11}, 1, 11}, {DataType::kF32, {9}, 0, 0},
      {DataType::kF32, {1, 9}, 0, 0},         {DataType::kF32, {1, 10, 2}, 0, 0},
      {DataType::kI64, {1, 10}, 0, 0},        {DataType::kF32, {}, 0, 0},
      {DataType::kF32, {0, 10}, 0, 0},        {DataType::kF32, {20, 1}, 0, 0},
  };
  for (const auto& test : cases) {
    const auto layout = score_layout(test.dtype, test.dims);
    ASSERT_EQ(layout.has_value(), test.classes > 0) << to_string(test.dims);
    if (!layout) continue;
    EXPECT_EQ(layout->samples, test.samples);
    EXPECT_EQ(layout->classes, test.classes);
  }
}

TEST(Scores, BestClasses) {
  const Tensor scores =
      Tensor::of<float>(DataType::kF32, {2, 4}, std::vector<float>{0, 0, 0, 0, 1, NAN, 3, 1});
  const auto best = best_classes(scores, {2, 4}, 1, 9);
  ASSERT_EQ(best.size(), 4u);
  EXPECT_EQ(best[0].index, 2);
  EXPECT_EQ(best[1].index, 0);
  EXPECT_EQ(best[2].index, 3);
  EXPECT_EQ(best[3].index, 1);
}

TEST(TensorSummary, Text) {
  EXPECT_EQ(summary_text(Tensor::of<float>(DataType::kF32, {3}, std::vector<float>{1, 2, 6})),
            "min 1  max 6  mean 3  [1, 2, 6]");
  EXPECT_EQ(summary_text(Tensor::of<float>(DataType::kF32, {3}, std::vector<float>{1, NAN, 6}), 2),
            "min 1  max 6  mean 3.5  1 NaN  [1, nan, ...]");
  EXPECT_EQ(summary_text(Tensor::of<float>(DataType::kF32, {1}, std::vector<float>{NAN})),
            "1 NaN  [nan]");
  EXPECT_EQ(summary_text(Tensor::of<float>(DataType::kF32, {0}, std::vector<float>{})),
            "no elements");
}

TEST(Picture, IsHalfAsHighAsWide) {
  const std::vector<uint8_t> pixels = {0, 255, 0, 255, 128, 128, 128, 128};
  EXPECT_EQ(picture_text(pixels, 2, 4), (std::vector<std::string>{":*:*"}));
  EXPECT_EQ(picture_text(pixels, 2, 4, 2), (std::vector<std::string>{"=="}));
  EXPECT_EQ(picture_text(std::vector<uint8_t>(9, 255), 3, 3),
            (std::vector<std::string>{"@@@", "@@@"}));
  EXPECT_EQ(picture_row({{"ab", "c"}, {"d"}}, {"x", "yy"}), "ab  d\nc\nx   yy\n");
}

}  // namespace
}  // namespace anneal
