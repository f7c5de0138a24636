// Operations of the fake cuDNN from their descriptors, with checks of shapes and types.
#pragma once
#include "anneal/tests/virtual_card/cudnn/graph.h"

namespace anneal::fake_cudnn {

// All fail with Failure, which names the attribute. REQUIRES: check_attributes() has passed.

Operation convolution_of(const Descriptor& descriptor);
// Of a pointwise operation, a product or a reduction without its tensors.
void check_part(const Descriptor& descriptor);
// One operation with its tensors.
OperationGraph operation_of(const Descriptor& descriptor);

// Operands of a pointwise operation: 1 is x, 2 is x and b, 3 is x, b and t. 0: there is no such
// operation.
int operands_of(uint32_t pointwise_mode);

}  // namespace anneal::fake_cudnn
