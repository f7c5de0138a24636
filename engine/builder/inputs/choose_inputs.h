// Input tensors that an engine accepts: those that are given, and drawn ones.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "anneal/engine/run/engine.h"

namespace anneal {

struct WantedInput {
  std::optional<Tensor> tensor = {};  // none: numbers are drawn
  std::optional<Dims> dims = {};      // of drawn numbers; none, or those that are -1: chosen
  uint64_t seed = 0;
};

struct ChosenInputs {
  std::vector<Tensor> tensors;   // one per input, in order
  std::vector<bool> is_guessed;  // whether an open size of the input was chosen
  int runs_tried = 0;            // in search of accepted inputs
};

// profile: of the engine; empty: the one that takes the given sizes best.
// Sizes that are open and not given come from other inputs of the same symbol, then from what the
// engine was optimized for. Where values decide sizes or indices, inputs are drawn until a run ends
// well, or some 50 choices of sizes have failed. Fails with kInvalidArgument, naming --shapes.
// REQUIRES: one for each input of the engine
ChosenInputs choose_inputs(const Engine& engine, std::span<const WantedInput> wanted,
                           std::optional<size_t> profile = {});

}  // namespace anneal
