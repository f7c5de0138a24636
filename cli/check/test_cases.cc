#include "anneal/cli/check/test_cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>
#include <optional>
#include <string_view>

#include "anneal/core/fail.h"

namespace anneal {
namespace {

namespace fs = std::filesystem;

// K of "PREFIXK.pb".
std::optional<size_t> index_of(std::string_view file, std::string_view prefix) {
  if (!file.starts_with(prefix) || !file.ends_with(".pb")) return std::nullopt;
  file.remove_prefix(prefix.size());
  file.remove_suffix(3);
  size_t index = 0;
  const auto [end, error] = std::from_chars(file.data(), file.data() + file.size(), index);
  if (file.empty() || error != std::errc{} || end != file.data() + file.size()) return std::nullopt;
  return index;
}

// Names are sorted, so that cases and errors come in the same order everywhere.
struct Listing {
  std::vector<std::string> files, folders;
};
Listing listing_of(const fs::path& folder) {
  Listing listing;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    std::error_code ignored;
    const std::string name = entry->path().filename().string();
    if (entry->is_directory(ignored)) {
      listing.folders.push_back(name);
    } else {
      listing.files.push_back(name);
    }
  }
  if (error)
    fail(ErrorCode::kIo, fmt::format("cannot list {}: {}", folder.string(), error.message()));
  std::sort(listing.files.begin(), listing.files.end());
  std::sort(listing.folders.begin(), listing.folders.end());
  return listing;
}

// The files PREFIX0.pb, PREFIX1.pb, ... by their numbers.
std::vector<std::string> numbered(const fs::path& folder, const Listing& listing,
                                  std::string_view prefix) {
  std::map<size_t, std::string> found;
  for (const std::string& file : listing.files)
    if (const auto index = index_of(file, prefix)) found[*index] = (folder / file).string();
  std::vector<std::string> paths;
  for (auto& [index, path] : found) {
    // A gap would shift what follows to another input.
    if (index != paths.size())
      fail(ErrorCode::kInvalidArgument,
           fmt::format("{} has a file for {}{} and none for {}{}", folder.string(), prefix, index,
                       prefix, paths.size()));
    paths.push_back(std::move(path));
  }
  return paths;
}

std::optional<TestCase> folder_case(const fs::path& folder, const Listing& listing) {
  std::vector<std::string> models;
  for (const std::string& file : listing.files)
    if (file.ends_with(".onnx")) models.push_back(file);
  const bool has_model = std::find(models.begin(), models.end(), "model.onnx") != models.end();
  if (!has_model && models.size() != 1) return std::nullopt;

  TestCase found;
  found.model = (folder / (has_model ? "model.onnx" : models[0])).string();
  for (const std::string& inner : listing.folders) {
    if (!inner.starts_with("test_data_set_")) continue;
    const fs::path at = folder / inner;
    const Listing files = listing_of(at);
    found.sets.push_back({inner, numbered(at, files, "input_"), numbered(at, files, "output_")});
  }
  // "test_data_set_10" comes after "test_data_set_9".
  std::sort(found.sets.begin(), found.sets.end(), [](const DataSet& a, const DataSet& b) {
    return a.name.size() != b.name.size() ? a.name.size() < b.name.size() : a.name < b.name;
  });
  if (found.sets.empty()) return std::nullopt;
  return found;
}

std::optional<TestCase> file_case(const fs::path& folder, const Listing& listing,
                                  const std::string& file) {
  const std::string stem = file.substr(0, file.size() - std::string_view(".onnx").size());
  DataSet set{"", numbered(folder, listing, stem + "_input_"),
              numbered(folder, listing, stem + "_output_")};
  if (set.outputs.empty()) return std::nullopt;
  return TestCase{"", (folder / file).string(), {std::move(set)}};
}

void add_cases(const fs::path& folder, const std::string& prefix, const std::string& own_name,
               std::vector<TestCase>& cases) {
  const Listing listing = listing_of(folder);
  if (auto found = folder_case(folder, listing)) {
    found->name = own_name;
    cases.push_back(std::move(*found));
    return;
  }
  for (const std::string& file : listing.files) {
    if (!file.ends_with(".onnx")) continue;
    if (auto found = file_case(folder, listing, file)) {
      found->name = prefix + file.substr(0, file.size() - std::string_view(".onnx").size());
      cases.push_back(std::move(*found));
    }
  }
  for (const std::string& inner : listing.folders) {
    if (fs::is_symlink(folder / inner)) continue;
    add_cases(folder / inner, prefix + inner + "/", prefix + inner, cases);
  }
}

}  // namespace

std::vector<TestCase> find_test_cases(const std::string& path) {
  const fs::path root = fs::path(path).lexically_normal();
  std::error_code error;
  const fs::file_status status = fs::status(root, error);
  if (!fs::exists(status))
    fail(ErrorCode::kIo, fmt::format("cannot read {}: there is no such file or folder", path));
  std::vector<TestCase> cases;
  if (fs::is_directory(status)) {
    const fs::path named = root.has_filename() ? root : root.parent_path();
    add_cases(root, "", named.filename().string(), cases);
  } else {
    const fs::path folder = root.has_parent_path() ? root.parent_path() : fs::path(".");
    const std::string file = root.filename().string();
    const Listing listing = listing_of(folder);
    auto found = file_case(folder, listing, file);
    if (!found) {
      found = folder_case(folder, listing);
      if (found && fs::path(found->model).filename() != file) found.reset();
    }
    if (found) {
      found->name = root.stem().string();
      cases.push_back(std::move(*found));
    }
  }
  std::sort(cases.begin(), cases.end(),
            [](const TestCase& a, const TestCase& b) { return a.name < b.name; });
  return cases;
}

}  // namespace anneal
