// Shared rules of writing and reading the text form of a graph.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "anneal/core/tensor.h"

namespace anneal::text {

// [A-Za-z_][A-Za-z0-9_.]* and no word of the grammar. Every other name is written in quotes, with
// \" \\ \n inside.
bool is_plain_name(std::string_view name);
std::string quoted(std::string_view name);
std::string name_text(std::string_view name);

// The name of a constant that is written where it is used, as input `index` of the layer whose
// first output is `output`.
std::string inline_name(std::string_view output, size_t index);

// "0.5, -1, nan". Floats are the shortest text that reads back as the same bits; a NaN other than
// the default one is written as its bits, 0x7fc00001.
std::string elements_text(const Tensor& tensor);
// Fails with kInvalidArgument unless there is one element for each place.
Tensor tensor_of(DataType dtype, const Dims& dims, const std::vector<std::string_view>& elements);
// The same bytes for the same seed, on every machine.
Tensor random_tensor(DataType dtype, const Dims& dims, uint64_t seed);

}  // namespace anneal::text
