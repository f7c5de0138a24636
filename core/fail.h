// Functions that throw Error. An expected "no" (a kernel that does not fit, a pattern that does not
// match) is a return value instead.
#pragma once
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>

#include "anneal/core/dims.h"
#include "anneal/core/error.h"

namespace anneal {

[[noreturn]] void fail(ErrorCode code, std::string message);
// About an input or output of the engine, and a shape that was given for it.
[[noreturn]] void fail_port(ErrorCode code, const std::string& port, std::string message,
                            const Dims& dims = {});
[[noreturn]] void fail_out_of_memory();

// Whether the caller's arguments or limits are the fault: other ones may succeed.
constexpr bool is_of_caller(ErrorCode code) {
  return code == ErrorCode::kInvalidArgument || code == ErrorCode::kLimit;
}

// Our own invariants only: must not be reachable from a model, a plan or an API argument.
// Throws Error{kInternal} that names the caller's file and line.
void check(bool invariant, std::string_view what, const char* file = __builtin_FILE(),
           int line = __builtin_LINE());

// Prefixes "DOING: ". Called while unwinding, innermost first.
void add_context(Error& error, std::string_view doing);

// Runs body; an Error that leaves it gets `doing` as context. `doing` is a callable that returns a
// string, so that the text costs nothing when all goes well.
template <class Doing, class Body>
decltype(auto) with_context(Doing&& doing, Body&& body) {
  try {
    return body();
  } catch (Error& error) {
    add_context(error, doing());
    throw;
  }
}

// The body of a public function: memory that runs out leaves it as an Error. (A size that no vector
// can have is memory that no machine has.)
template <class Body>
decltype(auto) at_entry(Body&& body) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    fail_out_of_memory();
  } catch (const std::length_error&) {
    fail_out_of_memory();
  }
}

}  // namespace anneal
