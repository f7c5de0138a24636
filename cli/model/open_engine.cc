#include "anneal/cli/model/open_engine.h"

#include <fmt/format.h>

#include <cstdio>
#include <fstream>
#include <string_view>

#include "anneal/cli/flags/at_least.h"
#include "anneal/cli/flags/help.h"
#include "anneal/cli/flags/memory_flag.h"
#include "anneal/cli/output/errors.h"
#include "anneal/cli/output/printable.h"
#include "anneal/cli/output/text_file.h"
#include "anneal/core/parallel.h"

namespace anneal {

// An ONNX file never begins with 0x89, which would be a field of a kind that Protobuf does not
// have.
bool is_engine(const std::string& path) {
  if (std::string_view(path).ends_with(".onnx")) return false;
  if (std::string_view(path).ends_with(".engine")) return true;
  std::ifstream file(path, std::ios::binary);
  if (!file) read_text(path);  // fails, naming the reason
  return file.get() == 0x89;
}

void add_device_flags(CLI::App& command, EngineOptions& options) {
  command
      .add_option("--device,--target", options.device,
                  "cpu, cpu:ISA, cuda, cuda:N, emulated (GPU plan on the host); auto: a\n"
                  "GPU if present and in the engine, else cpu")
      ->capture_default_str()
      ->type_name("DEVICE")
      ->group(often(help::kRun));
  add_map_flag(command, options.map);
}

void add_map_flag(CLI::App& command, bool& map) {
  command
      .add_flag("!--no-mmap", map, "Read the engine file instead of mapping it; it may then change")
      ->group(rarely(help::kRun));
}

void add_input_flag(CLI::App& command, std::vector<std::string>& inputs) {
  command
      .add_option("-i,--input", inputs,
                  "NAME=FILE or NAME=random[:SEED]; NAME= is optional for a single input,\n"
                  "and for random, which then sets all other inputs")
      ->allow_extra_args(false)
      ->type_name("DATA")
      ->group(often(help::kFiles));
}

void add_context_flags(CLI::App& command, ContextOptions& options, DebugOptions& debug) {
  add_memory_flag(command, options.max_memory, "Limit for activations, workspaces and outputs")
      ->group(often(help::kRun));
  command
      .add_flag("--wait-each-step", debug.synchronous_steps,
                "Finish each GPU step before the next: errors name the step; slower")
      ->group(rarely(help::kDiagnosis));
  add_spin_flag(command, options.spin);
  add_rows_flag(command, options.micro_batch);
  add_profile_flag(command, options.profile);
}

void add_profile_flag(CLI::App& command, int& profile) {
  command
      .add_option("--use-profile", profile,
                  "Optimization profile, from 0 on (default: by the shapes of inputs)")
      ->check(at_least(0))
      ->type_name("N")
      ->group(rarely(help::kRun));
}

void add_spin_flag(CLI::App& command, bool& spin) {
  command.add_flag("--spin", spin, "Busy-wait for a GPU: some microseconds less latency")
      ->group(rarely(help::kRun));
}

void add_slot_flags(CLI::App& command, DebugOptions& debug) {
  CLI::Option* const separate =
      command
          .add_flag("--separate-slots", debug.separate_slots,
                    "On a GPU, place tensors between red zones and fail if a kernel writes\n"
                    "there; with `run --wait-each-step` the error names the step; slower")
          ->group(rarely(help::kDiagnosis));
  command
      .add_option("--red-zone", debug.red_zone,
                  "Bytes before and after each tensor, rounded up to 256; 0: none, then\n"
                  "compute-sanitizer finds accesses outside of tensors")
      ->capture_default_str()
      ->needs(separate)
      ->type_name("BYTES")
      ->group(rarely(help::kDiagnosis));
}

void add_rows_flag(CLI::App& command, int64_t& rows) {
  command.add_option("--micro-batch", rows, "Rows per micro-batch of a batch (default: automatic)")
      ->check(at_least(0))
      ->type_name("ROWS")
      ->group(rarely(help::kRun));
}

std::string device_for(const std::string& target) {
  return target.starts_with("sm_") ? "cuda" : target;
}

std::shared_ptr<const Engine> open_engine(const std::string& path, const EngineOptions& options) {
  if (std::string_view(path).ends_with(".onnx"))
    refuse_argument(
        fmt::format("{} is a model, not an engine; build one first: anneal build {}", path, path));
  auto engine = Engine::load(path, options);
  print_remarks(engine->load_warnings());
  return engine;
}

void print_remarks(std::span<const std::string> remarks) {
  for (const std::string& remark : remarks) fmt::print(stderr, "anneal: {}\n", printable(remark));
}

void print_self_check(const SelfCheckReport& report) {
  if (!report.warning.empty())
    fmt::print(stderr, "anneal: warning: {}\n", printable(report.warning));
  if (!report.is_compared && !report.outcome.empty())
    fmt::print(stderr, "anneal: warning: self-check: {}\n", printable(report.outcome));
}

std::vector<std::string> input_names(const Engine& engine) {
  std::vector<std::string> names;
  for (const TensorInfo& port : engine.inputs()) names.push_back(port.name);
  return names;
}

int thread_count(int threads) { return threads > 0 ? threads : hardware_threads(); }

}  // namespace anneal
