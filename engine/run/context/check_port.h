// Checks of the memory that an application gives for inputs and outputs.
#pragma once
#include <optional>
#include <string_view>

#include "anneal/core/tensor_view.h"
#include "anneal/engine/run/engine.h"

namespace anneal {

// what: "input" or "output". gpu: whose memory the engine takes; nullopt: it takes host memory
// alone. Fails with kInvalidArgument, and with kUnsupported on memory that is elsewhere.
void check_memory(const Engine& engine, std::optional<int> gpu, const TensorInfo& port,
                  const ConstTensorView& memory, std::string_view what);
// Fails with kInvalidArgument unless the memory has the port's element type.
void check_dtype(const TensorInfo& port, const ConstTensorView& memory, std::string_view what);
// Fails with kInvalidArgument unless the input takes them.
void check_dims(const TensorInfo& port, const Dims& dims);
// Whether each element surely has memory of its own: every axis steps over all of the axes inside
// it.
bool is_apart(const ConstTensorView& view);

}  // namespace anneal
