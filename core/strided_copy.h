// Copies between views of the same dtype and dims, whatever their strides.
#pragma once
#include "anneal/core/tensor.h"

namespace anneal {

class ThreadTeam;

// REQUIRES: the views do not overlap
void strided_copy(const TensorView& to, const TensorView& from);
// The same on the threads of a team, where the copy is large enough to gain by it.
void strided_copy(const TensorView& to, const TensorView& from, ThreadTeam& team);

}  // namespace anneal
