// A library of kernels for another version of the table.
#include "anneal/engine/run/library/c_kernels.h"

const anneal_kernels* anneal_kernel_library(int32_t) { return nullptr; }
