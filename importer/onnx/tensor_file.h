// Tensors as ONNX stores them in files of their own (input_0.pb of a test case).
#pragma once
#include <cstddef>
#include <span>
#include <string>

#include "anneal/core/tensor.h"

namespace anneal {

// name: receives the tensor's name if not null. Fails with kInvalidModel if the bytes are no
// tensor or contradict themselves, with kUnsupported naming an element type that we do not have.
// External data is refused.
Tensor load_tensor_proto(std::span<const std::byte> bytes, std::string* name);

}  // namespace anneal
