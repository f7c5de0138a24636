// Check of an output path before the work instead of after it.
#pragma once
#include <initializer_list>
#include <string>
#include <utility>

namespace anneal {

// Fails with kCannotWrite if `path` names no file that could be written: its folder is missing, or
// it is a folder itself. An empty path means no output.
void check_output_file(const std::string& path);
// Fails with kInvalidArgument if two of these outputs are one file, which would be written twice.
// Each with its flag; an empty path means no output.
void check_different_files(
    std::initializer_list<std::pair<const char*, const std::string&>> outputs);
// Makes the folder, and those above it, where there is none. Fails with kCannotWrite.
void make_output_folder(const std::string& path);

}  // namespace anneal
