#include "anneal/cli/output/output_path.h"

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>

#include "anneal/cli/output/errors.h"
#include "anneal/cli/output/text_file.h"

namespace anneal {

namespace fs = std::filesystem;

void check_output_file(const std::string& given) {
  if (given.empty()) return;
  const std::string path = written_file(given);
  std::error_code error;
  const fs::path folder = fs::path(path).has_parent_path() ? fs::path(path).parent_path() : ".";
  if (!fs::is_directory(folder, error))
    fail(ErrorCode::kCannotWrite,
         fmt::format("cannot write {}: there is no folder {}", path, folder.string()));
  if (fs::is_directory(path, error))
    fail(ErrorCode::kCannotWrite,
         fmt::format("cannot write {}: it is a folder; give a file name", path));
  const fs::path written = fs::exists(path, error) && !fs::is_regular_file(path, error)
                               ? fs::path(path)
                               : folder;  // a file is replaced, a device is written to
  if (access(written.c_str(), W_OK) != 0)
    fail(ErrorCode::kCannotWrite,
         fmt::format("cannot write {}: no permission for {}", path, written.string()));
}

void check_different_files(
    std::initializer_list<std::pair<const char*, const std::string&>> outputs) {
  // Neither needs to exist, and either may be a link.
  const auto file = [](const std::string& path) {
    std::error_code error;
    const fs::path whole = fs::weakly_canonical(fs::absolute(path), error);
    return error ? fs::path(path) : whole;
  };
  for (auto first = outputs.begin(); first != outputs.end(); ++first)
    for (auto second = first + 1; second != outputs.end(); ++second) {
      if (first->second.empty() || second->second.empty()) continue;
      // A device takes both.
      std::error_code error;
      if (fs::exists(first->second, error) && !fs::is_regular_file(first->second, error)) continue;
      if (file(first->second) == file(second->second))
        refuse_argument(fmt::format("{} and {} are one file, {}: give two names", first->first,
                                    second->first, first->second));
    }
}

void make_output_folder(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error)
    fail(ErrorCode::kCannotWrite,
         fmt::format("cannot make the folder {}: {}", path, error.message()));
}

}  // namespace anneal
