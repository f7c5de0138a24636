#include "anneal/core/fail.h"

#include <utility>

namespace anneal {

void fail(ErrorCode code, std::string message) { throw Error(code, std::move(message)); }

void fail_port(ErrorCode code, const std::string& port, std::string message, const Dims& dims) {
  throw Error(code, std::move(message), port, dims.span());
}

// The text fits into a string without an allocation.
void fail_out_of_memory() { throw Error(ErrorCode::kOutOfMemory, "memory ran out"); }

void check(bool invariant, std::string_view what, const char* file, int line) {
  if (invariant) [[likely]]
    return;
  std::string text = "internal error at ";
  text.append(file).append(":").append(std::to_string(line)).append(": ").append(what);
  fail(ErrorCode::kInternal, text + " (please report this)");
}

}  // namespace anneal
