// Classes of a classifier, for people: their names, and the best ones of an output.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "anneal/core/tensor.h"
#include "anneal/engine/tune/metric/classify.h"  // IWYU pragma: export

namespace anneal {

// One name per line. Fails with kIo; with kInvalidArgument if there are none.
std::vector<std::string> read_class_names(const std::string& path);

// A table of the k best classes of each of the first samples; empty if the output does not look
// like scores. Fails with kInvalidArgument unless there are no names or one for each class.
// output: dense
std::string best_classes_text(const Tensor& output, const std::vector<std::string>& names,
                              int64_t k);

}  // namespace anneal
