// The text form of a plan with what its tactics mean, which only the kernels know.
#pragma once
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "anneal/engine/plan.h"

namespace anneal {

using DescribeTactic = std::string (*)(std::string_view kernel, std::span<const std::byte> tactic);
// As to_string(plan), with tactic="..." behind each step that has one.
std::string to_string(const Plan& plan, DescribeTactic describe);

}  // namespace anneal
