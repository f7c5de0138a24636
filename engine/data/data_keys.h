// The keys of dataset.json, each of which is a flag of the command as well.
#pragma once
#include <span>
#include <string>
#include <string_view>

#include "anneal/engine/data/data_format.h"

namespace anneal {

struct DataKey {
  std::string_view name, value, meaning;  // "label_column", "NAME", for people
  void (*set)(DataFormat& format, const std::string& text);
};
std::span<const DataKey> data_keys();
// Sets what a key of that name says. Fails with kInvalidArgument, quoting both.
void set_data_key(DataFormat& format, std::string_view key, const std::string& text);

}  // namespace anneal
