// The tensors that `anneal run` feeds: what --input and --shapes say, for each input of an engine.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "anneal/engine/run/engine.h"

namespace anneal {

// One tensor per input, in order. Sizes of random inputs that are open come from --shapes, then
// from files given for other inputs with the same symbol, then from what the engine was optimized
// for. Fails with kInvalidArgument naming an input that nothing is given for, or what is wrong with
// the shapes, which are the value of `flag`.
std::vector<Tensor> sample_inputs(const Engine& engine, const std::vector<std::string>& input_flags,
                                  const std::string& shapes_flag,
                                  std::string_view flag = "--shapes");

}  // namespace anneal
