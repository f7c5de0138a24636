#include "anneal/core/error.h"

#include <utility>

namespace anneal {

std::string_view to_string(Code code) {
  switch (code) {
    case Code::kInvalidModel:
      return "invalid_model";
    case Code::kUnsupported:
      return "unsupported";
    case Code::kInvalidArgument:
      return "invalid_argument";
    case Code::kIncompatiblePlan:
      return "incompatible_plan";
    case Code::kIo:
      return "io";
    case Code::kDevice:
      return "device";
    case Code::kInternal:
      return "internal";
    case Code::kCancelled:
      return "cancelled";
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

Error::Error(Code code, std::string message)
    : code_(code), text_(without_nul(std::move(message))) {}

void Error::add_context(std::string_view doing) {
  std::string text;
  text.reserve(doing.size() + 2 + text_.size());
  text.append(doing).append(": ").append(text_);
  text_ = without_nul(std::move(text));
}

void fail(Code code, std::string message) { throw Error(code, std::move(message)); }

void check(bool invariant, std::string_view what, const char* file, int line) {
  if (invariant) [[likely]]
    return;
  std::string text = "internal error at ";
  text.append(file).append(":").append(std::to_string(line)).append(": ").append(what);
  fail(Code::kInternal, text + " (please report this)");
}

}  // namespace anneal
