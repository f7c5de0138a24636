#include "anneal/cli/output/tensor_files.h"

#include <fmt/format.h>

#include <cctype>
#include <filesystem>

#include "anneal/cli/output/output_path.h"
#include "anneal/engine/data/sample_file.h"

namespace anneal {
namespace {

constexpr size_t kLongestFileName = 200;

std::string safe_name(std::string name) {
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '_' && c != '-' && c != '.') c = '_';
  if (name.empty() || name[0] == '.') name.insert(0, "_");
  if (name.size() > kLongestFileName) name.resize(kLongestFileName);
  return name;
}

}  // namespace

Tensor read_tensor(const std::string& path, DataType raw_type,
                   const std::optional<Dims>& raw_dims) {
  return read_sample(path, {raw_type, raw_dims});
}

TensorFiles::TensorFiles(std::string folder) : folder_(std::move(folder)) {
  make_output_folder(folder_);
}

std::string TensorFiles::write(const std::string& name, const ConstTensorView& view) {
  const std::string safe = safe_name(name);
  std::string unique = safe;
  for (int i = 2; !taken_.insert(unique).second; ++i) unique = fmt::format("{}_{}", safe, i);
  std::string path = (std::filesystem::path(folder_) / (unique + ".npy")).string();
  write_sample(path, view);
  return path;
}

}  // namespace anneal
