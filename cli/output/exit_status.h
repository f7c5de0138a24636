// The exit status of the process, documented in `anneal --help` and docs/cli.md.
#pragma once
#include "anneal/core/error.h"

namespace anneal {

enum ExitStatus : int {
  kSuccess = 0,
  kDifferent = 1,     // a case failed, or passed against expectation
  kBadInput = 2,      // arguments or files that are missing, damaged or do not fit
  kNotSupported = 3,  // a well-formed model that Anneal cannot build
  kNoDevice = 4,      // a device or one of its libraries failed, memory included
  kOurBug = 70,
};

constexpr ExitStatus exit_status(ErrorCode code) {
  switch (code) {
    case ErrorCode::kUnsupported:
      return kNotSupported;
    case ErrorCode::kDevice:
    case ErrorCode::kOutOfMemory:
      return kNoDevice;
    case ErrorCode::kInternal:
      return kOurBug;
    default:
      return kBadInput;
  }
}

}  // namespace anneal
