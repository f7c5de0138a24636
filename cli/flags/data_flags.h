// Flags of commands that read samples: the path, the format, and the selection of samples.
#pragma once
#include <CLI/CLI.hpp>
#include <memory>
#include <string>
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

// --data, or a flag of another name and then not required; --samples, and --mean and the like:
// every key of dataset.json, with - for _.
void add_data_flags(CLI::App& command, DataFlags& flags, const std::string& flag = "--data");

// What dataset.json says and then the flags. Fails with kInvalidArgument or kIo.
DataFormat data_format(const DataFlags& flags);
// Samples in that format; those that --samples names. Fails with
// kInvalidArgument or kIo.
std::shared_ptr<const Dataset> open_data(const DataFlags& flags,
                                         const std::vector<DataInput>& inputs);

std::vector<DataInput> data_inputs(const Engine& engine);

}  // namespace anneal
