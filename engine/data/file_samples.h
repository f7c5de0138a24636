// Datasets with one file, or one folder, per sample.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "anneal/engine/data/dataset.h"

namespace anneal {

// name: unique, what the labels call it.
struct SampleFile {
  std::string name, path;
};

// All three: the samples that labels list, in their order, if they name files; else all of
// `found`. They fail if a listed one or a mask is missing, or if the labels are not for as many.

// For files that hold a tensor each: .npy, .pb, idx, raw.
std::shared_ptr<const Dataset> dataset_of_array_files(const std::string& folder,
                                                      std::vector<SampleFile> found,
                                                      const DataFormat& format,
                                                      std::span<const DataInput> inputs);
std::shared_ptr<const Dataset> dataset_of_images(const std::string& folder,
                                                 std::vector<SampleFile> found,
                                                 const DataFormat& format,
                                                 std::span<const DataInput> inputs);
// For folders that hold input_0.pb, input_1.pb, ... each.
std::shared_ptr<const Dataset> dataset_of_tensor_sets(const std::string& folder,
                                                      std::vector<SampleFile> found,
                                                      const DataFormat& format,
                                                      std::span<const DataInput> inputs);

// The dims of the tensor for each input.
std::vector<Dims> sizes_of(std::span<const SampleTensor> tensors);
// The input that data for one input feeds: format.input, or the only one.
const DataInput& fed_input(const DataFormat& format, std::span<const DataInput> inputs);

}  // namespace anneal
