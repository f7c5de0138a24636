// The type of a value in a graph or plan.
#pragma once
#include <cstdint>

#include "anneal/core/dtype.h"
#include "anneal/core/shape.h"

namespace anneal {

enum class Container : uint8_t { kTensor, kSequence, kOptional, kOptionalSequence };

// The type of a value. In a container, dtype and shape are those of its element tensors.
struct Type {
  DataType dtype = DataType::kF32;
  Shape shape;
  Container container = Container::kTensor;
  bool operator==(const Type&) const = default;
};

class Tensor;
Type type_of(const Tensor& tensor);  // its element type and its known shape

}  // namespace anneal
