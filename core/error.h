// Error, the only exception type of Anneal.
#pragma once
#include <cstdint>
#include <exception>
#include <string>
#include <string_view>

namespace anneal {

enum class ErrorCode : uint8_t {
  kInvalidModel,      // the ONNX file is malformed or contradicts itself
  kUnsupported,       // well-formed, but nothing here implements it
  kInvalidArgument,   // the caller's names, types, shapes or options do not fit
  kIncompatiblePlan,  // the engine file is damaged, or of another version or target
  kIo,                // a file cannot be read
  kDevice,            // a device or one of its libraries failed
  kInternal,          // our bug
  kCancelled,         // a progress callback asked to stop
  kOutOfMemory,       // an allocation failed, on the host or on a device
  kLimit,             // a limit that the caller set, such as max_memory, is too small
  kCannotWrite,       // a file cannot be written
};
std::string_view to_string(ErrorCode code);

// Thrown for everything that ends the current call. what() reads as a path from the user's call
// to the fault: "while importing node \"conv1\" (Conv): 3 values for 2 pads".
class Error : public std::exception {
 public:
  Error(ErrorCode code, std::string message);
  ErrorCode code() const { return code_; }
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  friend void add_context(Error& error, std::string_view doing);
  ErrorCode code_;
  std::string text_;
};

}  // namespace anneal
