#include "anneal/cli/flags/data_flags.h"

#include <fmt/format.h>

#include <algorithm>

#include "anneal/cli/flags/at_least.h"
#include "anneal/cli/output/errors.h"

namespace anneal {

void add_data_flags(CLI::App& command, DataFlags& flags, const std::string& flag) {
  const std::string group = "Data (docs/data.md)";
  command
      .add_option(flag, flags.data,
                  "Folder of images, arrays (.npy) or tensors (.pb), or a file of samples (.npy, "
                  ".npz, idx, raw); dataset.json beside them says what the flags below say")
      ->type_name("PATH")
      ->required(flag == "--data")
      ->group(group);
  command
      .add_option("--samples", flags.samples,
                  "Which of them: first:N, hash:N or holdout:N (N by the hash of their names, or "
                  "all others), part:K/N or part:K-L/N")
      ->type_name("WHICH")
      ->group(group);
  command
      .add_option("--data-threads", flags.threads, "Threads that read and decode; 0: one per core")
      ->capture_default_str()
      ->check(at_least(0))
      ->group(group);
  const auto keys = data_keys();
  flags.settings.resize(keys.size());
  for (size_t i = 0; i < keys.size(); ++i) {
    std::string name = "--" + std::string(keys[i].name);
    std::replace(name.begin(), name.end(), '_', '-');
    command.add_option(name, flags.settings[i], std::string(keys[i].meaning))
        ->type_name(std::string(keys[i].value))
        ->group(group);
  }
}

DataFormat data_format(const DataFlags& flags) {
  DataFormat format = find_data_format(flags.data);
  const auto keys = data_keys();
  for (size_t i = 0; i < keys.size(); ++i) {
    if (flags.settings[i].empty()) continue;
    std::string name(keys[i].name);
    std::replace(name.begin(), name.end(), '_', '-');
    with_context([&] { return fmt::format("--{}", name); },
                 [&] { keys[i].set(format, flags.settings[i]); });
  }
  return format;
}

std::shared_ptr<const Dataset> open_data(const DataFlags& flags,
                                         const std::vector<DataInput>& inputs) {
  auto samples = open_dataset(flags.data, data_format(flags), inputs);
  return flags.samples.empty() ? samples : subset(samples, flags.samples);
}

std::vector<DataInput> data_inputs(const Engine& engine) {
  std::vector<DataInput> inputs;
  for (const TensorInfo& port : engine.inputs())
    inputs.push_back({port.name, port.dtype, port.dims, port.default_value.has_value()});
  return inputs;
}

}  // namespace anneal
