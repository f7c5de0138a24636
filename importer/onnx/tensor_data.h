// The contents of small constants as plain numbers.
#pragma once
#include <cstdint>
#include <vector>

#include "anneal/core/tensor.h"

namespace anneal {

std::vector<int64_t> integers_of(const Tensor& tensor);  // of integers and bool; u64 wraps
std::vector<double> numbers_of(const Tensor& tensor);    // of any type but strings
// Numbers rounded to dtype. REQUIRES: a float type, or i8 or u8 and whole numbers that it holds; as
// many values as dims count.
Tensor tensor_of(DataType dtype, const Dims& dims, const std::vector<double>& values);

}  // namespace anneal
