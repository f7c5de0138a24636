// Loading an engine for a command.
#pragma once
#include <CLI/CLI.hpp>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "anneal/engine/builder/build_report.h"
#include "anneal/engine/run/debug.h"
#include "anneal/engine/run/engine.h"

namespace anneal {

// Whether a file holds an engine, by its name or else its first bytes; anything else is taken for
// a model.
bool is_engine(const std::string& path);

void add_device_flags(CLI::App& command, EngineOptions& options);  // --device and --no-mmap
void add_map_flag(CLI::App& command, bool& map);                   // --no-mmap
void add_input_flag(CLI::App& command, std::vector<std::string>& inputs);
// --max-memory, --wait-each-step, --spin, --micro-batch and --use-profile
void add_context_flags(CLI::App& command, ContextOptions& options, DebugOptions& debug);
void add_spin_flag(CLI::App& command, bool& spin);
// --separate-slots and --red-zone
void add_slot_flags(CLI::App& command, DebugOptions& debug);
void add_rows_flag(CLI::App& command, int64_t& rows);
void add_profile_flag(CLI::App& command, int& profile);  // --use-profile
// The device that runs a target's plans: "cuda" for "sm_90", else the target itself.
std::string device_for(const std::string& target);

// Remarks of the engine go to stderr. An ONNX file is refused with the command that builds it.
std::shared_ptr<const Engine> open_engine(const std::string& path, const EngineOptions& options);

void print_remarks(std::span<const std::string> remarks);  // to stderr
void print_self_check(const SelfCheckReport& report);      // its warning, to stderr

std::vector<std::string> input_names(const Engine& engine);

// The threads that the value of --threads means; 0: one per core.
int thread_count(int threads);

}  // namespace anneal
