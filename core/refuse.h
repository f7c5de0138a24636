// The one-line refusal of a caller's argument: Error with ErrorCode::kInvalidArgument.
#pragma once
#include <string>
#include <utility>

#include "anneal/core/fail.h"

namespace anneal {

[[noreturn]] inline void refuse_argument(std::string why) {
  fail(ErrorCode::kInvalidArgument, std::move(why));
}

}  // namespace anneal
