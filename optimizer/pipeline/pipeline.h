// The passes of a build.
#pragma once
#include <span>

#include "anneal/optimizer/pass.h"

namespace anneal {

std::span<const Pass> default_pipeline();  // in the order in which they run

}  // namespace anneal
