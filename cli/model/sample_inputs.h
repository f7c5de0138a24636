// The input tensors of `anneal run`, made from --input and --shapes for each input of an engine.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "anneal/cli/output/errors.h"
#include "anneal/engine/run/engine.h"

namespace anneal {

// Inputs that are states of a context (TensorInfo::state_output), where no flag names them.
enum class StateInputs : uint8_t {
  kGiven,  // like other inputs
  kKept,   // the context begins them
};

struct SampleInputs {
  std::vector<Tensor> tensors;        // one per input, in order
  std::string guessed;                // "x" of [1,3,32,32]: inputs with guessed sizes; or ""
  bool is_drawn = false;              // whether any tensor is random
  int runs_tried = 0;                 // in search of accepted inputs
  std::vector<bool> is_default = {};  // one per input: it keeps its default value
  // One per input that is not named and is a state of the context: the dims to begin it with, -1
  // for open ones. `tensors` has its first value.
  std::vector<std::optional<Dims>> state_dims = {};

  // Text for errors about random tensors, with the remedy; "" if all come from files.
  std::string context() const;
};

// Sizes of random inputs that are open come from --shapes, then from files given for other inputs
// with the same symbol, then from what the engine was optimized for. Where values decide sizes or
// indices, inputs are drawn until a run ends well, or some 50 choices of sizes have failed. Fails
// with kInvalidArgument naming an input that nothing is given for, or what is wrong with the
// shapes, which are the value of `flag`. profile: as in ContextOptions.
SampleInputs sample_inputs(const Engine& engine, const std::vector<std::string>& input_flags,
                           const std::string& shapes_flag, int profile = -1,
                           std::string_view flag = "--shapes",
                           StateInputs states = StateInputs::kGiven);

// Runs body. An error about its inputs gets the file's path, and the inputs' context().
template <class Body>
decltype(auto) with_samples(const std::string& path, const SampleInputs& inputs, Body&& body) {
  try {
    return body();
  } catch (Error& error) {
    if (error.code() == ErrorCode::kInvalidArgument || error.code() == ErrorCode::kInvalidModel) {
      if (const std::string context = inputs.context(); !context.empty())
        add_context(error, context);
      add_context(error, path);
    }
    throw;
  }
}

}  // namespace anneal
