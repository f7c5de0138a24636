// Functions for the device as text, gathered while kernels are made and compiled all at once.
#pragma once
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace anneal::cuda {

// One __global__ function and its own definitions, in the language of device/prelude.h:
//   struct Store { ... };
//   KERNEL($name, 256)(In<f32> x, Out<f32> y, i64 v0) { ... }
// "$name" stands for its name. Each text gets a namespace of its own around it.
struct FunctionText {
  std::string family;                       // begins the name: "matmul_mma"
  std::vector<std::string_view> headers{};  // files of device/ besides the prelude: "mma.h"
  std::string text;
  bool operator==(const FunctionText&) const = default;
};

// A function that launches refer to. `handle` is the device's, set by Device::prepare_code().
struct Function {
  std::string name;  // family and a digest of the text: "matmul_mma_8c1f90e2ab34cd56"
  FunctionText text;
  void* handle = nullptr;
};

// The functions of one device. Thread-safe.
class Code {
 public:
  // The same text gives the same function.
  std::shared_ptr<const Function> add(FunctionText text);
  // Those that a kernel still holds, by name.
  std::vector<std::shared_ptr<Function>> functions() const;

 private:
  mutable std::mutex mutex_;
  std::unordered_map<std::string, std::weak_ptr<Function>> functions_;  // by name
};

// The text of a program: prelude, headers, functions. The same functions in any order give the same
// text.
std::string program_of(const std::vector<std::shared_ptr<Function>>& functions);

}  // namespace anneal::cuda
