#include "anneal/cli/flags/data_flags.h"

#include <fmt/format.h>

#include <algorithm>

#include "anneal/cli/flags/at_least.h"
#include "anneal/cli/flags/help.h"
#include "anneal/cli/output/errors.h"

namespace anneal {
namespace {

constexpr std::string_view kImageKeys[] = {"resize", "crop", "scale", "mean", "std"};

bool contains(std::span<const std::string_view> words, std::string_view word) {
  return std::ranges::find(words, word) != words.end();
}

}  // namespace

void add_data_flags(CLI::App& command, DataFlags& flags, const std::string& flag,
                    std::span<const std::string_view> label_keys) {
  const bool is_required = flag == "--data";
  const std::string group = often(is_required ? help::kData : help::kCalibration);
  command
      .add_option(flag, flags.data,
                  is_required ? "Folder or file of samples: images, .npy, .npz, .pb, idx or raw"
                              : "Folder or file of samples that set the ranges for int8")
      ->type_name("PATH")
      ->required(is_required)
      ->group(group);
  command
      .add_option("--samples", flags.samples,
                  "Subset: first:N, hash:N, holdout:N (all but hash:N), part:K/N")
      ->type_name("WHICH")
      ->group(group);
  const auto keys = data_keys();
  flags.settings.resize(keys.size());
  for (size_t i = 0; i < keys.size(); ++i) {
    std::string name = "--" + std::string(keys[i].name);
    std::replace(name.begin(), name.end(), '_', '-');
    const bool is_often =
        is_required && (contains(kImageKeys, keys[i].name) || contains(label_keys, keys[i].name));
    command.add_option(name, flags.settings[i], std::string(keys[i].meaning))
        ->type_name(std::string(keys[i].value))
        ->group(is_often ? group : rarely(help::kData));
  }
  command
      .add_option("--data-threads", flags.threads,
                  "Threads that read samples (default: one per core)")
      ->check(at_least(0))
      ->type_name("N")
      ->group(rarely(help::kData));
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
