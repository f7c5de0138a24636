// Datasets whose samples are the rows of arrays: .npy, .npz, idx, raw files.
#pragma once
#include <memory>
#include <string>

#include "anneal/engine/data/dataset.h"

namespace anneal {

// Labels are looked for in `folder`. A raw file is mapped; the others are in memory as a whole.
std::shared_ptr<const Dataset> dataset_of_rows(const std::string& folder, const std::string& path,
                                               const DataFormat& format,
                                               std::span<const DataInput> inputs);

}  // namespace anneal
