// Flags for building a model. A command refuses them for an engine, which would ignore them.
#pragma once
#include <CLI/CLI.hpp>
#include <initializer_list>
#include <string>

namespace anneal {

// Fails with kInvalidArgument, naming the file and the flags that were given, if all of these files
// are engines. An empty path counts as none.
void refuse_model_flags(const CLI::App& command, std::initializer_list<std::string> files);

}  // namespace anneal
