// Error, the only exception type of Anneal. Memory that runs out is an Error as well.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <string_view>

namespace anneal {

enum class ErrorCode : uint8_t {
  kInvalidModel,      // the ONNX file is malformed or contradictory
  kUnsupported,       // a valid model that needs something Anneal lacks
  kInvalidArgument,   // the caller's names, types, shapes or options do not fit
  kIncompatiblePlan,  // the engine file is damaged, or of another version or target
  kIo,                // a file cannot be read
  kDevice,            // a device or one of its libraries failed
  kInternal,          // a bug in Anneal
  kCancelled,         // a progress callback asked to stop
  kOutOfMemory,       // an allocation failed, on the host or on a device
  kLimit,             // a limit that the caller set, such as max_memory, is too small
  kCannotWrite,       // a file cannot be written
};
std::string_view to_string(ErrorCode code);

// Ends the current call. Exceptions of the application's callbacks pass through unchanged, except
// std::bad_alloc and std::length_error, which become kOutOfMemory. what() reads as a path from the
// call to the fault: "while importing node \"conv1\" (Conv): 3 values for 2 pads".
class Error : public std::exception {
 public:
  explicit Error(ErrorCode code, std::string message, std::string port = {},
                 std::span<const int64_t> dims = {});
  ErrorCode code() const { return code_; }
  const char* what() const noexcept override;  // the message, without the code
  // The input or output of the engine that the error is about, by name; else empty.
  const std::string& port() const { return port_; }
  // The shape that the caller passed, if the error is about a shape; else empty.
  std::span<const int64_t> dims() const { return {dims_.data(), rank_}; }

 private:
  friend void add_context(Error& error, std::string_view doing);
  ErrorCode code_;
  std::string text_, port_;
  std::array<int64_t, 8> dims_ = {};
  size_t rank_ = 0;
};

}  // namespace anneal
