// The list of samples and their classes, from a file beside the data.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "anneal/engine/data/data_format.h"

namespace anneal {

struct Labels {
  std::string path;                // empty: there are none
  std::vector<std::string> files;  // empty, or one per sample
  std::vector<int64_t> values;     // one per sample, label_offset added
};

// The labels in format.labels, which may be relative to the folder; if that is empty, those in
// labels.csv if the folder has one. Fails naming the file.
Labels find_labels(const std::string& folder, const DataFormat& format);
// The labels in an array: one axis, integers. what: for the error.
std::vector<int64_t> labels_of(const Tensor& array, const DataFormat& format,
                               std::string_view what);
// Fails if there are labels, but not for `samples` samples.
void check_label_count(const Labels& labels, int64_t samples);

}  // namespace anneal
