// Error, the only exception type of Anneal, and the two functions that throw it.
#pragma once
#include <cstdint>
#include <exception>
#include <string>
#include <string_view>

namespace anneal {

enum class Code : uint8_t {
  kInvalidModel,      // the ONNX file is malformed or contradicts itself
  kUnsupported,       // well-formed, but nothing here implements it
  kInvalidArgument,   // the caller's names, types, shapes or options do not fit
  kIncompatiblePlan,  // the engine file is damaged, or of another version or target
  kIo,                // a file cannot be read or written
  kDevice,            // a device or one of its libraries failed
  kInternal,          // our bug
  kCancelled,         // a progress callback asked to stop
};
std::string_view to_string(Code code);

// Thrown for everything that ends the current call. An expected "no" (a kernel that does not fit, a
// pattern that does not match) is a return value instead. what() reads as a path from the user's
// call to the fault: "while importing node \"conv1\" (Conv): 3 values for 2 pads".
class Error : public std::exception {
 public:
  Error(Code code, std::string message);
  Code code() const { return code_; }
  const char* what() const noexcept override { return text_.c_str(); }
  // Called while unwinding, innermost first: prefixes "DOING: ".
  void add_context(std::string_view doing);

 private:
  Code code_;
  std::string text_;
};

[[noreturn]] void fail(Code code, std::string message);

// Our own invariants only: must not be reachable from a model, a plan or an API argument.
// Throws Error{kInternal} that names the caller's file and line.
void check(bool invariant, std::string_view what, const char* file = __builtin_FILE(),
           int line = __builtin_LINE());

// Runs body; an Error that leaves it gets `doing` as context. `doing` is a callable that returns a
// string, so that the text costs nothing when all goes well.
template <class Doing, class Body>
decltype(auto) with_context(Doing&& doing, Body&& body) {
  try {
    return body();
  } catch (Error& error) {
    error.add_context(doing());
    throw;
  }
}

}  // namespace anneal
