// Every op case on every CUDA kernel that accepts it, against the CPU's reference, in all
// placements, with and without an epilogue, with known and symbolic sizes. The code of many kernels
// is compiled at once.
//
// ANNEAL_OP_CASES: "tenth" (a fixed one of the cases), "2/8" (the second of eight shares), the name
// of a case, "@FILE" (those that a file names, one in each line), or not set: all.
// ANNEAL_OP_MEMORY: "exact": each tensor's allocation ends with its last element, so that the
// emulated device, and compute-sanitizer on a card, find every access beyond a tensor; not set:
// some bytes behind it show if they were written.
// ANNEAL_OP_KERNELS: what their names begin with; not set: all.
// ANNEAL_TEST_DEVICE: "cuda", "emulated" (the default), or "sm_90": compiled for it, not run.
// ANNEAL_OP_REPORT: a file that gets a line of JSON for each case as soon as it was run, with its
// problems, how its memory lay, and of each run a digest of its outputs, so that op_results_test.py
// and bench/gpu/compare_results.py compare two devices bit by bit.
//
// With the argument --list it prints the names of the cases instead.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "anneal/core/bytes.h"
#include "anneal/core/dtype_kinds.h"
#include "anneal/core/fail.h"
#include "anneal/kernels/cpu/backend.h"
#include "anneal/kernels/cuda/backend.h"
#include "anneal/kernels/cuda/cost/device_spec.h"
#include "anneal/kernels/cuda/runtime/device.h"
#include "anneal/kernels/cuda/runtime/gpu_device.h"
#include "anneal/tests/cuda/fake_driver.h"
#include "anneal/tests/kernels/op_variants.h"
#include "anneal/tests/kernels/tensor_text.h"
#include "anneal/tests/kernels/tolerance.h"

namespace anneal::testing {
namespace {

constexpr size_t kFunctionsAtOnce = 400;

// Takes only input and output of different strides, which elementwise_test.cc gives it.
constexpr std::string_view kWithoutCase[] = {"cuda.pointwise.tiled", "cuda.custom.library"};

std::string setting(const char* name, const char* otherwise) {
  const char* const value = std::getenv(name);
  return value == nullptr ? otherwise : value;
}

// The lines of the file that "@FILE" names.
std::set<std::string> named_cases(const std::string& wanted) {
  std::set<std::string> names;
  if (!wanted.starts_with("@")) return names;
  std::ifstream file(wanted.substr(1));
  for (std::string line; std::getline(file, line);)
    if (!line.empty()) names.insert(line);
  return names;
}

bool wants_exact_memory() {
  const std::string memory = setting("ANNEAL_OP_MEMORY", "");
  EXPECT_TRUE(memory.empty() || memory == "exact")
      << "ANNEAL_OP_MEMORY is \"" << memory << "\": it may be exact";
  return memory == "exact";
}

bool is_chosen(const std::string& name, const std::string& wanted) {
  const uint64_t digest = hash_bytes(std::as_bytes(std::span(name)));
  if (wanted == "tenth") return digest % 10 == 0;
  unsigned share = 0, shares = 0;
  if (std::sscanf(wanted.c_str(), "%u/%u", &share, &shares) == 2 && shares > 0)
    return digest / 10 % shares == share % shares;
  return wanted.empty() || wanted == name;
}

std::set<size_t> ops_with_kernel(const std::string& kernels) {
  std::set<size_t> ops;
  for (const KernelFamily family : cuda_backend().families)
    for (const KernelEntry& entry : family())
      if (entry.name.starts_with(kernels)) ops.insert(entry.op);
  return ops;
}

// A digest of the elements: all NaNs are one, since devices give them other bits.
uint64_t digest_of(const std::vector<Tensor>& outputs) {
  uint64_t digest = hash_bytes({});
  for (const Tensor& output : outputs) {
    const DataType dtype = output.dtype();
    if (!is_float(dtype)) {
      digest = hash_bytes(output.bytes(), digest);
      continue;
    }
    std::vector<double> elements(output.count());
    for (int64_t i = 0; i < output.count(); ++i) {
      const double value = element(output, i);
      elements[i] = std::isnan(value) ? std::numeric_limits<double>::quiet_NaN() : value;
    }
    digest = hash_bytes(std::as_bytes(std::span(elements)), digest);
  }
  return digest;
}

// "Softmax axis=1; relu(in0)": the op with its attributes, and its epilogues.
std::string text_of(const TestLayer& layer, const SizeTable* sizes) {
  std::string text = to_string(layer.op, sizes == nullptr ? SizeTable() : *sizes);
  for (const Program& program : layer.epilogues) text += "; " + to_string(program);
  return text;
}

// The result of each case, as a line of a file that is written as soon as it is known: another
// program reads it even if this one is killed.
class Report {
 public:
  Report(const std::string& path, bool is_exact) : is_exact_(is_exact) {
    if (!path.empty()) file_.open(path);
  }
  bool is_wanted() const { return file_.is_open(); }
  void ran(const std::string& kernel, const std::string& name) {
    case_ = name;
    ++kernels_[kernel];
  }
  // `run` names the kernel, the way and the placement.
  void result(const std::string& run, const TestLayer& layer, const SizeTable* sizes,
              const std::vector<Tensor>& outputs) {
    std::string operands;
    for (int i = 0; i < layer.op_input_count; ++i)
      if (layer.inputs[i])
        operands +=
            fmt::format("{}{}", operands.empty() ? "" : ",", to_string(layer.inputs[i]->dtype()));
    results_[run] = {{"layer", text_of(layer, sizes)},
                     {"operands", operands},
                     {"digest", fmt::format("{:016x}", digest_of(outputs))}};
  }
  void problem(const std::string& text) { problems_.push_back(text); }
  // All of a case was run.
  void end_case() {
    if (file_.is_open() && !case_.empty())
      file_ << nlohmann::ordered_json{{"case", case_},
                                      {"memory", is_exact_ ? "exact" : "guarded"},
                                      {"kernels", kernels_},
                                      {"problems", problems_},
                                      {"results", results_}}
                   .dump()
            << std::endl;
    case_.clear();
    kernels_.clear();
    problems_.clear();
    results_.clear();
  }
  const std::string& current() const { return case_; }

 private:
  std::ofstream file_;
  bool is_exact_;
  std::string case_;
  std::map<std::string, int> kernels_;
  std::vector<std::string> problems_;
  std::map<std::string, nlohmann::ordered_json> results_;
};

// A card has tactics chosen as a plan for its architecture has them: so the text of a kernel, and
// its image in a cache, is the same on every card of the architecture.
std::unique_ptr<Device> planner_for(const Device& device) {
  const std::string target = device.target();
  return target.starts_with("sm_") ? cuda_backend().open(target) : nullptr;
}

class Batch {
 public:
  Batch(const std::string& target, std::string kernels, const std::string& report = "")
      : Batch(cuda_backend().open(target), !target.starts_with("sm_"), std::move(kernels), report) {
  }
  Batch(std::unique_ptr<Device> device, bool runs, std::string kernels, const std::string& report)
      : device_(std::move(device)),
        planner_(runs ? planner_for(*device_) : nullptr),
        runs_(runs),
        is_exact_(wants_exact_memory()),
        chosen_(std::move(kernels)),
        report_(report, is_exact_) {}

  // Makes the case's kernels; runs all that were made if it is time.
  void add(const OpCase& each, std::vector<Variants> all) {
    make(each, std::move(all));
    if (cuda::code_of(*device_).functions().size() >= kFunctionsAtOnce) finish();
  }
  void make(const OpCase& each, std::vector<Variants> all) {
    variants_.push_back(std::move(all));
    for (const Variants& variants : variants_.back())
      for (const Variant& way : variants.ways)
        for (const KernelFamily family : cuda_backend().families)
          for (const KernelEntry& entry : family())
            // TF32 rounds the operands, for which the tolerance has no room.
            if (entry.op == each.op.index() && entry.name.starts_with(chosen_) &&
                !entry.name.ends_with(".tf32"))
              add(each, entry, way, variants.wanted);
  }
  void finish() {
    functions_ += cuda::code_of(*device_).functions().size();
    device_->prepare_code({});
    for (const Run& run : waiting_) {
      if (!runs_) break;
      if (report_.current() != run.name) report_.end_case();
      report_.ran(std::string(run.entry->name), run.name);
      compare(run);
    }
    report_.end_case();
    drop();
  }

  // Forgets what was made.
  void drop() {
    waiting_.clear();
    variants_.clear();
  }

  // Whether a kernel accepted the case, and why others did not.
  const std::map<std::string, std::set<std::string>>& refused() const { return refused_; }
  const std::set<std::string>& accepted() const { return accepted_; }
  const std::map<std::string_view, int>& runs_of_kernels() const { return kernels_; }
  size_t functions() const { return functions_; }
  // The text of all that was made and not dropped.
  std::string program() const { return cuda::program_of(cuda::code_of(*device_).functions()); }

 private:
  struct Run {
    std::string name, what;
    const KernelEntry* entry;
    Placement placement;
    const SizeTable* sizes;
    const TestLayer* layer;
    const std::vector<Tensor>* wanted;
    MadeLayer made;
  };

  void add(const OpCase& each, const KernelEntry& entry, const Variant& way,
           const std::vector<Tensor>& wanted) {
    for (const Placement placement : placements_of(*way.layer)) {
      // Such memory begins at the sixth element, and plans of cuDNN read several at once: their
      // kernels fail when they run.
      if (entry.source == KernelSource::kCudnn && placement == Placement::kPadded) continue;
      RunOptions options = way.options;
      options.placement = placement;
      options.is_exact = is_exact_;
      std::vector<std::byte> tactic;
      if (planner_) tactic = MadeLayer(entry, *way.layer, *planner_, options).tactic();
      options.tactic = tactic;
      MadeLayer made(entry, *way.layer, *device_, options);
      if (!made.why_not().empty()) {
        refused_[each.name].insert(fmt::format("{}: {}", entry.name, made.why_not()));
        continue;
      }
      accepted_.insert(each.name);
      ++kernels_[entry.name];
      waiting_.push_back({each.name, way.what, &entry, placement, way.sizes.get(), way.layer.get(),
                          &wanted, std::move(made)});
    }
  }
  void compare(const Run& run) {
    const std::string name =
        fmt::format("{}, {}, {}", run.entry->name, run.what, to_string(run.placement));
    const auto complain = [&](const std::string& problem) {
      ADD_FAILURE() << name << ": " << problem << "\nagain: ANNEAL_OP_CASES=" << run.name
                    << " cuda_op_suite_test";
      report_.problem(fmt::format("{}: {}", name, problem));
    };
    try {
      const RunResult got = run.made.run(1);
      if (report_.is_wanted()) report_.result(name, *run.layer, run.sizes, got.outputs);
      for (size_t i = 0; i < got.outputs.size(); ++i) {
        if (const auto problem = disagreement(*run.layer, got.outputs[i], (*run.wanted)[i]))
          complain(fmt::format("output {}: {}", i, *problem));
      }
    } catch (const Error& error) {
      complain(error.what());
    }
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<Device> planner_;  // null: the device chooses
  bool runs_, is_exact_;
  std::string chosen_;
  Report report_;
  std::vector<std::vector<Variants>> variants_;
  std::vector<Run> waiting_;
  std::map<std::string, std::set<std::string>> refused_;
  std::set<std::string> accepted_;
  std::map<std::string_view, int> kernels_;
  size_t functions_ = 0;
};

TEST(CudaOpSuite, AgreesWithReference) {
  const std::string wanted = setting("ANNEAL_OP_CASES", "");
  const auto cpu = cpu_backend().open("cpu");
  const std::string kernels = setting("ANNEAL_OP_KERNELS", "");
  Batch batch(setting("ANNEAL_TEST_DEVICE", "emulated"), kernels, setting("ANNEAL_OP_REPORT", ""));
  const std::set<size_t> with_kernel = ops_with_kernel(kernels);
  const std::set<std::string> named = named_cases(wanted);
  size_t chosen = 0;
  for (const OpCase& each : op_cases()) {
    if (!is_chosen(each.name, wanted) && !named.contains(each.name)) continue;
    ++chosen;
    if (!with_kernel.contains(each.op.index())) continue;
    batch.add(each, variants_of(each, *cpu, true));
  }
  batch.finish();
  EXPECT_GT(chosen, 0u) << "there is no case \"" << wanted << "\"";
  // Kernels that were asked for by name: a library that is missing would leave none of them. A list
  // of cases may have none that they accept.
  if (!kernels.empty() && named.empty()) {
    EXPECT_FALSE(batch.runs_of_kernels().empty()) << "no case runs on " << kernels;
  }
  fmt::print("{} cases, {} functions\n", chosen, batch.functions());
  RecordProperty("cases", static_cast<int>(chosen));
  for (const auto& [kernel, runs] : batch.runs_of_kernels()) {
    fmt::print("{} {}\n", runs, kernel);
    RecordProperty(std::string(kernel), runs);
  }
  for (const auto& [name, reasons] : batch.refused()) {
    if (batch.accepted().contains(name)) continue;
    fmt::print("no kernel for {}\n", name);
    for (const std::string& reason : reasons) fmt::print("  {}\n", reason);
  }
}

// Libraries name no algorithm without a card.
constexpr const char* kOurs = "cuda.";

// Made only: nothing is compiled.
TEST(CudaOpSuite, EveryKernelAcceptsACase) {
  const auto cpu = cpu_backend().open("cpu");
  Batch batch("sm_90", kOurs);
  const std::set<size_t> with_kernel = ops_with_kernel(kOurs);
  for (const OpCase& each : op_cases()) {
    if (!with_kernel.contains(each.op.index())) continue;
    batch.make(each, variants_of(each, *cpu, true));
    batch.drop();
  }
  for (const KernelFamily family : cuda_backend().families)
    for (const KernelEntry& entry : family())
      if (entry.source == KernelSource::kOwn) {
        EXPECT_NE(batch.runs_of_kernels().contains(entry.name),
                  std::ranges::count(kWithoutCase, entry.name) != 0)
            << entry.name;
      }
}

// An H200's figures are not those of the card that stands for its architecture.
TEST(CudaOpSuite, AnotherCardOfAnArchitectureTakesTheSameText) {
  using namespace cuda;
  fake_card() = {};
  fake_card().major = 9, fake_card().minor = 0;
  fake_card().attributes = {{CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 1980000},
                            {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 132},
                            {CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, 3201000},
                            {CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, 6144},
                            {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 60 << 20},
                            {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 2048},
                            {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, 65536},
                            {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, 65536},
                            {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, 228 * 1024},
                            {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 227 * 1024},
                            {CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, 32}};
  const FakeCompiler compiler;
  auto h200 = open_driver_device(
      {.driver = fake_driver(), .compiler = compiler, .ordinal = 0, .name = "cuda:0"});
  ASSERT_NE(spec_of(*h200).bandwidth, find_spec(90)->bandwidth);
  Batch there(std::move(h200), true, kOurs, ""), here("sm_90", kOurs);
  const auto cpu = cpu_backend().open("cpu");
  for (const OpCase& each : op_cases()) {
    if (each.name != "conv_3x3_channels" && each.name != "matmul_large") continue;
    there.make(each, variants_of(each, *cpu, true));
    here.make(each, variants_of(each, *cpu, true));
  }
  EXPECT_FALSE(here.program().empty());
  EXPECT_TRUE(there.program() == here.program()) << "an image for one does not suit the other";
  there.drop();
}

void print_names() {
  const std::set<size_t> with_kernel = ops_with_kernel("");
  for (const OpCase& each : op_cases())
    if (with_kernel.contains(each.op.index())) fmt::print("{}\n", each.name);
}

}  // namespace
}  // namespace anneal::testing

int main(int count, char** arguments) {
  testing::InitGoogleTest(&count, arguments);
  if (count > 1 && std::string_view(arguments[1]) == "--list") {
    anneal::testing::print_names();
    return 0;
  }
  return RUN_ALL_TESTS();
}
