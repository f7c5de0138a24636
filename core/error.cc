#include "anneal/core/error.h"

#include <algorithm>
#include <utility>

namespace anneal {

std::string_view to_string(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidModel:
      return "invalid_model";
    case ErrorCode::kUnsupported:
      return "unsupported";
    case ErrorCode::kInvalidArgument:
      return "invalid_argument";
    case ErrorCode::kIncompatiblePlan:
      return "incompatible_plan";
    case ErrorCode::kIo:
      return "io";
    case ErrorCode::kDevice:
      return "device";
    case ErrorCode::kInternal:
      return "internal";
    case ErrorCode::kCancelled:
      return "cancelled";
    case ErrorCode::kOutOfMemory:
      return "out_of_memory";
    case ErrorCode::kLimit:
      return "limit";
    case ErrorCode::kCannotWrite:
      return "cannot_write";
  }
  return "?";
}

namespace {

// what() ends at the first NUL, and names from files may hold one.
std::string without_nul(std::string text) {
  for (size_t at = 0; (at = text.find('\0', at)) != text.npos;) text.replace(at, 1, "\\x00");
  return text;
}

}  // namespace

Error::Error(ErrorCode code, std::string message, std::string port, std::span<const int64_t> dims)
    : code_(code),
      text_(without_nul(std::move(message))),
      port_(std::move(port)),
      rank_(std::min(dims.size(), dims_.size())) {
  std::copy_n(dims.begin(), rank_, dims_.begin());
}

const char* Error::what() const noexcept { return text_.c_str(); }

void add_context(Error& error, std::string_view doing) {
  std::string text;
  text.reserve(doing.size() + 2 + error.text_.size());
  text.append(doing).append(": ").append(error.text_);
  error.text_ = without_nul(std::move(text));
}

}  // namespace anneal
