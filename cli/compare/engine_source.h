// The input of a command that may ask for the reference kernels.
#pragma once
#include <memory>
#include <string_view>

#include "anneal/cli/model/open_or_build.h"

namespace anneal {

// All passes, and only the reference kernels.
inline constexpr std::string_view kReferenceKernelsTarget = "reference-kernels";

// As open_or_build(); the target may be this one, or "reference". Fails as building and loading do.
std::shared_ptr<const Engine> engine_from(const EngineSource& source);

}  // namespace anneal
