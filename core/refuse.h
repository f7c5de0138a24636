// The one-line refusal of a caller's argument: Error with Code::kInvalidArgument.
#pragma once
#include <string>
#include <utility>

#include "anneal/core/error.h"

namespace anneal {

[[noreturn]] inline void refuse_argument(std::string why) {
  fail(Code::kInvalidArgument, std::move(why));
}

}  // namespace anneal
