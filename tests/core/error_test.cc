#include "anneal/core/fail.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <new>
#include <set>
#include <stdexcept>
#include <vector>

namespace anneal {
namespace {

TEST(Error, ReadsAsAPathFromTheCallToTheFault) {
  try {
    with_context([] { return "while importing node \"conv1\" (Conv)"; },
                 [] {
                   with_context([] { return std::string("attribute \"pads\""); },
                                [] { fail(ErrorCode::kInvalidModel, "3 values for 2 axes"); });
                 });
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidModel);
    EXPECT_STREQ(error.what(),
                 "while importing node \"conv1\" (Conv): attribute \"pads\": 3 values for 2 axes");
  }
}

TEST(Error, ContextCostsNothingAndReturnsTheResultWhenAllGoesWell) {
  int calls = 0;
  const int result = with_context([&] { return ++calls, std::string(); }, [] { return 7; });
  EXPECT_EQ(result, 7);
  EXPECT_EQ(calls, 0);
}

TEST(Error, CheckNamesTheCaller) {
  EXPECT_NO_THROW(check(true, "fine"));
  const int line = __LINE__ + 2;
  try {
    check(false, "two is two");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInternal);
    const std::string text = error.what();
    EXPECT_TRUE(text.starts_with("internal error at ")) << text;
    EXPECT_NE(text.find("error_test.cc:" + std::to_string(line) + ": two is two"), text.npos)
        << text;
    EXPECT_TRUE(text.ends_with("(please report this)")) << text;
  }
}

TEST(Error, CarriesThePortAndItsShape) {
  try {
    with_context([] { return "while running"; },
                 [] {
                   fail_port(ErrorCode::kInvalidArgument, "image", "too large", {1, 3, 1000, 1000});
                 });
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "while running: too large");
    EXPECT_EQ(error.port(), "image");
    ASSERT_EQ(error.dims().size(), 4u);
    EXPECT_EQ(error.dims()[3], 1000);
  }
  const Error plain(ErrorCode::kIo, "no such file");
  EXPECT_TRUE(plain.port().empty() && plain.dims().empty());
}

TEST(Error, MemoryThatRunsOutIsAnError) {
  const std::function<void()> failures[] = {
      [] { throw std::bad_alloc(); },
      [] { std::vector<char>().reserve(SIZE_MAX); },
  };
  for (const auto& failure : failures) {
    try {
      at_entry(failure);
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kOutOfMemory);
      EXPECT_STREQ(error.what(), "memory ran out");
    }
  }
  // Other exceptions are the application's own.
  EXPECT_THROW(at_entry([] { throw std::runtime_error("mine"); }), std::runtime_error);
  EXPECT_EQ(at_entry([] { return 7; }), 7);
}

TEST(Error, EveryCodeHasItsOwnName) {
  std::set<std::string_view> names;
  for (int code = 0; code <= static_cast<int>(ErrorCode::kCannotWrite); ++code)
    names.insert(to_string(static_cast<ErrorCode>(code)));
  EXPECT_EQ(names.size(), 11u);
  EXPECT_FALSE(names.contains("?"));
}

}  // namespace
}  // namespace anneal
