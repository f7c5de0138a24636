#include "anneal/cli/check/case_tables.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "anneal/core/fail.h"

namespace anneal {
namespace {

using ::testing::HasSubstr;

template <class F>
std::string refusal(F&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Tolerances, DefaultAndNamedColumns) {
  const auto plain = parse_tolerances("# comment\na\t1e-2\t-\t0.5\r\n\nb\t\t2\n", "t");
  ASSERT_EQ(plain.size(), 2u);
  EXPECT_EQ(plain[0].atol, 1e-2);
  EXPECT_EQ(plain[0].rtol, std::nullopt);
  EXPECT_EQ(plain[0].max_differ, 0.5);
  EXPECT_EQ(plain[1].name, "b");
  EXPECT_EQ(plain[1].atol, std::nullopt);
  EXPECT_EQ(plain[1].rtol, 2);
  const auto named = parse_tolerances("rtol\tcase\tnote\n3\ta\tbecause\n", "t");
  ASSERT_EQ(named.size(), 1u);
  EXPECT_EQ(named[0].name, "a");
  EXPECT_EQ(named[0].rtol, 3);
}

TEST(Tolerances, RefusalsNameTheLine) {
  EXPECT_THAT(refusal([] { parse_tolerances("a\tx\n", "t.tsv"); }),
              HasSubstr("t.tsv, line 1: atol \"x\""));
  EXPECT_THAT(refusal([] { parse_tolerances("\n\na\t-1\n", "t.tsv"); }), HasSubstr("line 3"));
  EXPECT_THAT(refusal([] { parse_tolerances("a\tnan\n", "t"); }), HasSubstr("number"));
  EXPECT_THAT(refusal([] { parse_tolerances("a\t1\t1\t2\n", "t"); }), HasSubstr("share"));
  EXPECT_THAT(refusal([] { parse_tolerances("a\t1\t1\t1\t1\n", "t"); }), HasSubstr("fields"));
  EXPECT_THAT(refusal([] { parse_tolerances("\t1\n", "t"); }), HasSubstr("no case"));
  EXPECT_THAT(refusal([] { parse_tolerances("a 1e-2 1e-2\n", "t"); }),
              HasSubstr("line 1: \"a 1e-2 1e-2\" has no tolerance"));
}

TEST(ReferenceNoise, IsFoundByColumnName) {
  const auto rows =
      parse_reference_noise("model\tsize\tref_noise_maxabs\nm\t3\t1.5e-3\nn\t4\n", "m");
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].name, "m");
  EXPECT_EQ(rows[0].noise, 1.5e-3);
  EXPECT_EQ(rows[1].noise, 0);
  EXPECT_THAT(refusal([] { parse_reference_noise("a\tb\n", "m"); }), HasSubstr("\"model\""));
}

TEST(KnownFailures, TabOrSpacesBeforeTheReason) {
  const auto rows =
      parse_known_failures("# x\na/b\tno kernel yet\nc   strings are not supported\n", "k");
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].name, "a/b");
  EXPECT_EQ(rows[0].reason, "no kernel yet");
  EXPECT_EQ(rows[1].name, "c");
  EXPECT_EQ(rows[1].reason, "strings are not supported");
  EXPECT_THAT(refusal([] { parse_known_failures("a\n", "k"); }), HasSubstr("no reason"));
  EXPECT_THAT(refusal([] { parse_known_failures("a\t\n", "k"); }), HasSubstr("no reason"));
}

TEST(RowForCase, PrefersEqualNames) {
  EXPECT_TRUE(names_case("node/a", "a"));
  EXPECT_TRUE(names_case("a", "node/a"));
  EXPECT_FALSE(names_case("node/ba", "a"));
  EXPECT_FALSE(names_case("node/a", "simple/a"));
  EXPECT_FALSE(names_case("a", "b"));
  EXPECT_FALSE(names_case("", "b"));
  const std::vector<KnownFailure> rows = {{"x/a", "1"}, {"a", "2"}};
  EXPECT_EQ(row_for<KnownFailure>(rows, "a")->reason, "2");
  EXPECT_EQ(row_for<KnownFailure>(rows, "x/a")->reason, "1");
  EXPECT_EQ(row_for<KnownFailure>(rows, "b"), nullptr);
}

}  // namespace
}  // namespace anneal
