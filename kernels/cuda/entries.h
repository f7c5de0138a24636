// The families of CUDA kernels: backend.cc's table lists them in order of preference.
#pragma once
#include "anneal/kernels/kernel.h"

namespace anneal::cuda {}  // namespace anneal::cuda
