#include "anneal/cli/check/check_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace anneal {
namespace {

using ::testing::HasSubstr;
using ::testing::internal::CaptureStdout;
using ::testing::internal::GetCapturedStdout;

struct ReportedCase {
  bool as_expected;
  std::string lines;
};

// One case "node/a", where "a" is a known failure.
ReportedCase report(const CaseResult& result) {
  const std::vector<KnownFailure> known = {{"a", "not written yet"}};
  CaptureStdout();
  CheckReport report(known, {"node/a"}, 0, true);
  report.add(0, result, 0.5);
  const bool as_expected = report.finish(true);
  return {as_expected, GetCapturedStdout()};
}

TEST(CheckReport, KnownFailureIsExpected) {
  for (const char* code : {"", "unsupported", "invalid_argument"}) {
    const ReportedCase it = report({.why = "Foo: not implemented", .code = code});
    EXPECT_TRUE(it.as_expected) << code;
    EXPECT_THAT(it.lines, HasSubstr("1 of the failures are known, 0 are not expected"));
  }
}

TEST(CheckReport, SuccessOfAKnownFailureIsNotExpected) {
  const ReportedCase it = report({});
  EXPECT_FALSE(it.as_expected);
  EXPECT_THAT(it.lines, HasSubstr("delete its line"));
}

TEST(CheckReport, CrashIsNeverAKnownFailure) {
  const ReportedCase it = report({.why = "the process was ended by signal 11", .code = "internal"});
  EXPECT_FALSE(it.as_expected);
  EXPECT_THAT(it.lines, HasSubstr("FAIL"));
  EXPECT_THAT(it.lines, HasSubstr("signal 11"));
}

}  // namespace
}  // namespace anneal
