// Functions that throw Error. An expected "no" (a kernel that does not fit, a pattern that does not
// match) is a return value instead.
#pragma once
#include <string>
#include <string_view>

#include "anneal/core/error.h"

namespace anneal {

[[noreturn]] void fail(ErrorCode code, std::string message);

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

}  // namespace anneal
