// Operators from outside: the function of a library, "cuda.custom.library".
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <utility>

#include "anneal/core/fail.h"
#include "anneal/kernels/cuda/kernels/entries.h"
#include "anneal/kernels/cuda/kernels/function_kernel.h"
#include "anneal/kernels/cuda/text/operand_views.h"
#include "anneal/kernels/custom_kernels.h"

namespace anneal::cuda {
namespace {

// What every GPU that is built for allows.
constexpr uint64_t kMostThreads = 1024, kMostGridRows = 65535, kMostGrid = 0x7fffffff;
constexpr uint32_t kMostSharedBytes = 48 * 1024;

struct PreparedLaunches final : PreparedKernel {
  std::vector<CustomFunction::Launch> launches;
};

class CustomGpuKernel final : public Kernel {
 public:
  CustomGpuKernel(std::shared_ptr<const Function> function, std::unique_ptr<CustomFunction> library,
                  std::string name)
      : function_(std::move(function)), library_(std::move(library)), name_(std::move(name)) {}

  std::unique_ptr<PreparedKernel> prepare(std::span<const TensorView> inputs,
                                          std::span<const TensorView> outputs, int) const override {
    CustomFunction::Launches all = library_->launches(inputs, outputs);
    const size_t operands = inputs.size() + outputs.size() + (library_->has_workspace() ? 1 : 0);
    for (const CustomFunction::Launch& launch : all.launches) check_launch(launch, operands);
    auto prepared = std::make_unique<PreparedLaunches>();
    prepared->launches = std::move(all.launches);
    prepared->workspace_bytes = all.workspace_bytes;
    return prepared;
  }

  void launch(const LaunchArgs& args) const override {
    const auto& prepared = static_cast<const PreparedLaunches&>(*args.prepared);
    for (const CustomFunction::Launch& launch : prepared.launches) {
      if (std::ranges::find(launch.grid, 0U) != launch.grid.end()) continue;
      Arguments arguments;
      for (const TensorView& input : args.inputs) arguments.add(input);
      for (const TensorView& output : args.outputs) arguments.add(output);
      if (library_->has_workspace()) arguments.add(args.workspace);
      for (const int64_t value : launch.values) arguments.add(value);
      cuda::launch(args.stream, *function_, {launch.grid, launch.block, launch.shared_bytes},
                   arguments);
    }
  }

 private:
  void check_launch(const CustomFunction::Launch& launch, size_t operands) const {
    const auto& [grid, block] = std::pair(launch.grid, launch.block);
    const uint64_t threads = uint64_t{block[0]} * block[1] * block[2];
    if (block[0] > kMostThreads || block[1] > kMostThreads || block[2] > 64 || threads < 1 ||
        threads > kMostThreads || grid[0] > kMostGrid || grid[1] > kMostGridRows ||
        grid[2] > kMostGridRows || launch.shared_bytes > kMostSharedBytes)
      fail(ErrorCode::kInvalidArgument,
           fmt::format("{} launches {}x{}x{} blocks of {}x{}x{} threads with {} shared bytes: a "
                       "block has 1 to {} threads and at most {} bytes",
                       name_, grid[0], grid[1], grid[2], block[0], block[1], block[2],
                       launch.shared_bytes, kMostThreads, kMostSharedBytes));
    if (operands + launch.values.size() > Arguments::kMost)
      fail(ErrorCode::kInvalidArgument,
           fmt::format("{} has more than {} parameters", name_, Arguments::kMost));
  }

  std::shared_ptr<const Function> function_;
  std::unique_ptr<CustomFunction> library_;
  std::string name_;  // for errors
};

// Begins the function's name.
std::string family_of(const Custom& op) {
  std::string family = "custom_";
  for (const char c : op.type)
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) family += c;
  return family;
}

KernelResult make_custom(const Custom& op, const Request& request) {
  if (!op.definition) return refuse("its library is not loaded");
  for (const Program& epilogue : request.epilogues)
    if (!epilogue.empty()) return refuse("an epilogue");
  OperandViews seen(request);
  for (const std::span<const Operand> operands : {request.inputs, request.outputs})
    for (const Operand& operand : operands)
      if (operand.present && !seen.is_dense(operand))
        return refuse("operands that are not dense and row-major");
  CustomFunctionResult made = op.definition->kernels().make_for_gpu(op, request);
  if (!made) return refuse(made.reason());
  auto function = code_of(request.device).add({family_of(op), {}, (*made)->text()});
  return std::make_unique<CustomGpuKernel>(std::move(function), *std::move(made),
                                           operator_name(op.domain, op.type));
}

constexpr KernelEntry kCustomEntries[] = {
    entry<Custom, make_custom>("cuda.custom.library", Layout::kRowMajor),
};

}  // namespace

std::span<const KernelEntry> custom_entries() { return kCustomEntries; }

}  // namespace anneal::cuda
