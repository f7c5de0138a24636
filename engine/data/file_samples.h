// Datasets with one file, or one folder, per sample.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "anneal/engine/data/dataset.h"
#include "anneal/engine/data/labels.h"

namespace anneal {

// name: unique, what the labels call it.
struct SampleFile {
  std::string name, path;
};

// The samples that labels list, in their order, if they name files; else all of `found`. Fails if
// a listed one is missing, or if the labels are not for as many.
std::shared_ptr<const Dataset> dataset_of_files(
    const std::string& folder, std::vector<SampleFile> found, const Labels& labels,
    std::function<std::vector<SampleTensor>(const std::string& path)> read);

// Of files that hold a tensor each: .npy, .pb, idx, raw.
std::shared_ptr<const Dataset> dataset_of_array_files(const std::string& folder,
                                                      std::vector<SampleFile> found,
                                                      const DataFormat& format,
                                                      std::span<const DataInput> inputs);
std::shared_ptr<const Dataset> dataset_of_images(const std::string& folder,
                                                 std::vector<SampleFile> found,
                                                 const DataFormat& format,
                                                 std::span<const DataInput> inputs);
// Of folders that hold input_0.pb, input_1.pb, ... each.
std::shared_ptr<const Dataset> dataset_of_tensor_sets(const std::string& folder,
                                                      std::vector<SampleFile> found,
                                                      const DataFormat& format,
                                                      std::span<const DataInput> inputs);

// The input that data for one input feeds: format.input, or the only one.
const DataInput& fed_input(const DataFormat& format, std::span<const DataInput> inputs);

}  // namespace anneal
