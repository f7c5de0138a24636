// NVRTC as a Compiler: text to machine code of one architecture, on any machine that has the
// library.
#pragma once
#include "anneal/kernels/cuda/code/compiler.h"

namespace anneal::cuda {

// Images are cubins. Fails with kDevice, in one sentence, when asked anything where the library is
// missing.
const Compiler& nvrtc_compiler();

}  // namespace anneal::cuda
