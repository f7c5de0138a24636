// Checks of the text of a plan before cuDNN reads it. The text may come from any file: cuDNN does
// not compare it with a layer, and some texts end the process.
#pragma once
#include <string>
#include <string_view>

#include "anneal/kernels/cuda/cudnn/operations.h"

namespace anneal::cuda {

// Why the text, of a plan or of a card's properties, may not be given to cuDNN, whose reader would
// end the process: it is too long or too deeply nested, or the device's name is too long. An
// escaped character, which could hide a name, is refused, too. Empty: it may be given.
std::string why_unsafe(std::string_view json);
// Why the text is unsafe, or has other tensors than these operations: it would access other memory.
// What it computes with them is trusted. Empty: it may be given to cuDNN.
std::string why_no_plan_of(std::string_view json, const Operations& operations);

}  // namespace anneal::cuda
