#include "anneal/cli/model/open_engine.h"

#include <fmt/format.h>

#include <cstdio>
#include <string_view>

#include "anneal/cli/flags/memory_flag.h"
#include "anneal/cli/output/printable.h"
#include "anneal/core/fail.h"
#include "anneal/core/file.h"
#include "anneal/core/parallel.h"
#include "anneal/engine/plan.h"
#include "anneal/engine/run/make_engine.h"

namespace anneal {

// An ONNX file never begins with 0x89, which would be a field of a kind that Protobuf does not
// have.
bool is_engine(const std::string& path) {
  if (std::string_view(path).ends_with(".onnx")) return false;
  if (std::string_view(path).ends_with(".engine")) return true;
  const FileBytes file = read_file(path);
  return !file.bytes.empty() && file.bytes[0] == std::byte{0x89};
}

void add_device_flags(CLI::App& command, EngineOptions& options) {
  command
      .add_option("--device,--target", options.device,
                  "Where to run: cpu, cpu:ISA, cuda, cuda:N, emulated (a GPU's plan on the host, "
                  "slowly), or auto: a GPU if the engine has a plan for it and one is here")
      ->capture_default_str();
  command.add_flag(
      "!--no-mmap", options.map,
      "Read the engine file instead of mapping it, so that it may change while in use");
}

void add_context_flags(CLI::App& command, ContextOptions& options, DebugOptions& debug) {
  add_memory_flag(command, options.max_memory,
                  "The most memory for activations, workspaces and outputs");
  command.add_flag("--wait-each-step", debug.synchronous_steps,
                   "On a GPU, finish each step before the next, so that errors name the one that "
                   "failed; slower");
  add_spin_flag(command, options.spin);
  add_rows_flag(command, options.micro_batch);
}

void add_spin_flag(CLI::App& command, bool& spin) {
  command.add_flag(
      "--spin", spin,
      "Keep a core busy while waiting for a GPU, which ends the wait some microseconds "
      "sooner, instead of sleeping");
}

void add_slot_flags(CLI::App& command, DebugOptions& debug) {
  CLI::Option* const separate = command.add_flag(
      "--separate-slots", debug.separate_slots,
      "On a GPU, give each tensor an allocation of its own between red zones, and fail if a kernel "
      "writes there; with `run --wait-each-step` the error names the step; slower");
  command
      .add_option(
          "--red-zone", debug.red_zone,
          "Bytes before and behind each tensor, rounded up to 256; 0 for compute-sanitizer, "
          "which then finds every access beyond a tensor")
      ->capture_default_str()
      ->needs(separate)
      ->type_name("BYTES");
}

void add_rows_flag(CLI::App& command, int64_t& rows) {
  command
      .add_option(
          "--micro-batch", rows,
          "Run so many rows of a batch at a time on each thread, where rows do not depend on "
          "each other; "
          "0: as many as stay in the caches, or all")
      ->capture_default_str()
      ->check(at_least(0));
}

std::string device_for(const std::string& target) {
  return target.starts_with("sm_") ? "cuda" : target;
}

std::shared_ptr<const Engine> open_engine(const std::string& path, const EngineOptions& options) {
  if (std::string_view(path).ends_with(".onnx"))
    fail(ErrorCode::kInvalidArgument,
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

namespace {

uint64_t bytes_of_weights(const Plan& plan) {
  uint64_t bytes = 0;
  for (const Slot& slot : plan.slots)
    if (slot.storage == Storage::kWeight)
      bytes += static_cast<uint64_t>(count(dims_of(slot.type.shape))) * size_of(slot.type.dtype);
  for (const Plan& body : plan.bodies) bytes += bytes_of_weights(body);
  return bytes;
}

}  // namespace

PlanFacts plan_facts(const Engine& engine) {
  const Plan& plan = plan_of(engine);
  return {plan.target, plan.steps.size(), bytes_of_weights(plan)};
}

int thread_count(int threads) { return threads > 0 ? threads : hardware_threads(); }

}  // namespace anneal
