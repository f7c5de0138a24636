// Flags of commands that read samples: the path, the format, and the selection of samples.
#pragma once
#include <CLI/CLI.hpp>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "anneal/engine/data/data_keys.h"
#include "anneal/engine/data/dataset.h"
#include "anneal/engine/run/engine.h"

namespace anneal {

struct DataFlags {
  std::string data, samples;
  std::vector<std::string> settings;  // in the order of data_keys(); empty: not given
  int threads = 0;                    // that read
};

// --data, or a flag of another name and then not required; --samples; --mean and the like: every
// key of dataset.json, with - for _. label_keys: keys of labels that --help shows.
void add_data_flags(CLI::App& command, DataFlags& flags, const std::string& flag = "--data",
                    std::span<const std::string_view> label_keys = {});

// The format of dataset.json, changed by the flags. Fails with kInvalidArgument or kIo.
DataFormat data_format(const DataFlags& flags);
// The samples of --samples in that format. Fails with kInvalidArgument or kIo.
std::shared_ptr<const Dataset> open_data(const DataFlags& flags,
                                         const std::vector<DataInput>& inputs);

std::vector<DataInput> data_inputs(const Engine& engine);

}  // namespace anneal
