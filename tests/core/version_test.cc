#include "anneal/core/version.h"

#include <gtest/gtest.h>

#include <regex>
#include <string>

namespace anneal {
namespace {

TEST(Version, IsThreeNumbers) {
  EXPECT_TRUE(std::regex_match(std::string(version()), std::regex(R"(\d+\.\d+\.\d+)")));
}

}  // namespace
}  // namespace anneal
