// Compiles the functions that the op cases make, for every architecture, and prints what they take
// of a card: for each family of functions the most registers of a thread, bytes of its stack
// (spilled registers, local arrays) and bytes of a block's fixed shared memory.
//
//   function_table [--cases N] [--functions] [sm_80 ...]
//
// --cases N: of each kernel only the first N op cases that it accepts, with all their epilogues,
// known and symbolic sizes; --functions prints a line for each function, too. Ends with 1 if one
// does not compile, with 77 if there is no NVRTC.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "anneal/core/fail.h"
#include "anneal/kernels/cpu/backend.h"
#include "anneal/kernels/cuda/api/libraries.h"
#include "anneal/kernels/cuda/backend.h"
#include "anneal/kernels/cuda/code/cubin.h"
#include "anneal/kernels/cuda/code/jit.h"
#include "anneal/kernels/cuda/code/nvrtc.h"
#include "anneal/kernels/cuda/runtime/device.h"
#include "anneal/tests/kernels/op_variants.h"

namespace anneal::cuda {
namespace {

using testing::MadeLayer;
using testing::OpCase;
using testing::Placement;

constexpr size_t kFunctionsOfProgram = 64;

struct Options {
  size_t cases = ~size_t{0};  // of each kernel
  bool functions = false;
  std::vector<std::string> targets;
};

Options parse(int count, char** arguments) {
  Options options;
  for (int i = 1; i < count; ++i) {
    const std::string argument = arguments[i];
    if (argument == "--functions")
      options.functions = true;
    else if (argument == "--cases" && i + 1 < count)
      options.cases = std::max<size_t>(1, std::strtoul(arguments[++i], nullptr, 10));
    else
      options.targets.push_back(argument);
  }
  if (options.targets.empty())
    for (const DeviceSpec& spec : device_specs())
      options.targets.push_back(fmt::format("sm_{}", spec.architecture));
  return options;
}

// What our kernels make of the op cases; they hold the functions. Those of libraries have none.
std::vector<MadeLayer> kernels_of(Device& device, size_t most_cases) {
  const auto cpu = cpu_backend().open("cpu");
  std::vector<MadeLayer> made;
  std::map<std::string_view, std::set<std::string>> cases;  // by kernel
  for (const OpCase& each : testing::op_cases()) {
    std::vector<const KernelEntry*> entries;
    for (const KernelFamily family : cuda_backend().families)
      for (const KernelEntry& entry : family())
        if (entry.op == each.op.index() && entry.name.starts_with("cuda.") &&
            cases[entry.name].size() < most_cases)
          entries.push_back(&entry);
    if (entries.empty()) continue;
    for (const testing::Variants& variants : testing::variants_of(each, *cpu, true))
      for (const testing::Variant& way : variants.ways)
        for (const KernelEntry* entry : entries)
          for (const Placement placement : {Placement::kRowMajor, Placement::kChannelsLast}) {
            testing::RunOptions options = way.options;
            options.placement = placement;
            MadeLayer layer(*entry, *way.layer, device, options);
            if (!layer.why_not().empty()) continue;
            cases[entry->name].insert(each.name);
            made.push_back(std::move(layer));
            break;
          }
  }
  return made;
}

struct Most {
  int functions = 0, registers = 0, stack_bytes = 0, shared_bytes = 0;
};

// Adds to the families' maxima; false if a program does not compile.
bool measure(const std::string& target, const Options& options,
             std::map<std::string, Most>& table) {
  const auto device = open_device(target);
  const auto kernels = kernels_of(*device, options.cases);
  const auto functions = code_of(*device).functions();
  std::map<std::string, std::string> families;
  for (const auto& function : functions) families[function->name] = function->text.family;
  const int architecture = std::atoi(target.c_str() + 3);
  bool all_compile = true;
  for (size_t at = 0; at < functions.size(); at += kFunctionsOfProgram) {
    const size_t end = std::min(functions.size(), at + kFunctionsOfProgram);
    const std::string program = program_of({functions.begin() + static_cast<std::ptrdiff_t>(at),
                                            functions.begin() + static_cast<std::ptrdiff_t>(end)});
    try {
      for (const FunctionResources& each :
           resources_of(compile_once(nvrtc_compiler(), program, architecture))) {
        Most& most = table[families[each.name]];
        ++most.functions;
        most.registers = std::max(most.registers, each.registers);
        most.stack_bytes = std::max(most.stack_bytes, each.stack_bytes);
        most.shared_bytes = std::max(most.shared_bytes, each.shared_bytes);
        if (options.functions)
          fmt::print("{:8}{:44}{:6}{:8}{:8}\n", target, each.name, each.registers, each.stack_bytes,
                     each.shared_bytes);
      }
    } catch (const Error& error) {
      fmt::print("{}\n", error.what());
      all_compile = false;
    }
  }
  return all_compile;
}

int run(const Options& options) {
  if (!nvrtc_library().table) {
    fmt::print("{}\n", nvrtc_library().why_not);
    return 77;
  }
  bool all_compile = true;
  fmt::print("{:8}{:28}{:>10}{:>11}{:>8}{:>8}\n", "target", "family", "functions", "registers",
             "stack", "shared");
  for (const std::string& target : options.targets) {
    std::map<std::string, Most> table;
    all_compile &= measure(target, options, table);
    for (const auto& [family, most] : table)
      fmt::print("{:8}{:28}{:10}{:11}{:8}{:8}\n", target, family, most.functions, most.registers,
                 most.stack_bytes, most.shared_bytes);
    std::fflush(stdout);
  }
  return all_compile ? 0 : 1;
}

}  // namespace
}  // namespace anneal::cuda

int main(int count, char** arguments) {
  try {
    return anneal::cuda::run(anneal::cuda::parse(count, arguments));
  } catch (const anneal::Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
