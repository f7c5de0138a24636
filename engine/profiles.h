// Profiles: ranges of the sizes of all inputs. For each target, an engine has one plan per profile.
#pragma once
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "anneal/engine/plan.h"

namespace anneal {

// Fails with kIncompatiblePlan unless each target has one plan for each profile, in their order,
// and these differ in sizes alone: not in devices and states, nor in names, types and ranks of
// inputs and outputs.
void check_profiles(const EngineFile& file);

// The sizes that a plan takes, by input.
struct ProfileRange {
  std::vector<Dims> min, max;
  double elements = 0;  // of all inputs at max
};
ProfileRange range_of(const Plan& plan);
// Whether each input may have its dims; nullopt: any. Sizes that inputs share are not compared.
bool takes(const ProfileRange& range, std::span<const std::optional<Dims>> input_dims);
// Of those that take the dims, the index of the one with the fewest elements at max, and of equals
// the first; nullopt: none takes them.
std::optional<size_t> choose_profile(std::span<const ProfileRange> ranges,
                                     std::span<const std::optional<Dims>> input_dims);
// Of an input, as text: "[1,1] to [8,128]", or "[8,128]".
std::string to_string(const ProfileRange& range, size_t input);

}  // namespace anneal
