// What a call fails with.
#pragma once
#include <functional>
#include <string>

#include "anneal/core/fail.h"

namespace anneal {

// what() of the Error that call throws, behind its code: "invalid_model: ...". "" if it throws
// none.
inline std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return std::string(to_string(error.code())) + ": " + error.what();
  }
  return "";
}

}  // namespace anneal
