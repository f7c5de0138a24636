// Resize of spatial axes, each by its own factor, as most models have it.
#pragma once
#include "anneal/kernels/kernel.h"

namespace anneal {

// The op with its scales as a field, where they are a constant input. Refuses scales that
// are known only at run time, regions of the input, other axes than one to three spatial ones, and
// one scale for all axes.
Result<Resize> spatial_resize(const Resize& op, const Request& request);

}  // namespace anneal
