// Operators from outside: the library's kernel, with copies of operands that are not dense.
#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "anneal/core/fail.h"
#include "anneal/kernels/cpu/base/copy_plan.h"
#include "anneal/kernels/cpu/base/entries.h"
#include "anneal/kernels/cpu/base/strided.h"
#include "anneal/kernels/cpu/reference/reference.h"
#include "anneal/kernels/custom_kernels.h"

namespace anneal::cpu {
namespace {

constexpr size_t kCopyAlignment = 64;

// Memory of a dense copy. Strides of 0 let an operand have more elements than any memory holds.
size_t copy_bytes(const TensorView& view) {
  size_t bytes = size_of(view.dtype);
  bool is_too_large = false;
  for (const int64_t dim : view.dims)
    is_too_large |= __builtin_mul_overflow(bytes, static_cast<size_t>(dim), &bytes);
  if (is_too_large || bytes > size_t{1} << 46)
    fail(ErrorCode::kOutOfMemory,
         fmt::format("an operand of shape {} is copied for the library, which no memory can hold",
                     to_string(view.dims)));
  return bytes;
}

// An operand that the library sees in the workspace.
struct DenseCopy {
  size_t operand = 0, offset = 0;
  CopyPlan plan;
};

struct PreparedCustom final : PreparedKernel {
  std::unique_ptr<PreparedKernel> library;
  std::vector<DenseCopy> inputs, outputs;
  std::vector<TensorView> dense_inputs, dense_outputs;
};

class CustomKernel final : public Kernel {
 public:
  explicit CustomKernel(std::unique_ptr<Kernel> library) : library_(std::move(library)) {}

  std::unique_ptr<PreparedKernel> prepare(std::span<const TensorView> inputs,
                                          std::span<const TensorView> outputs,
                                          int threads) const override {
    auto prepared = std::make_unique<PreparedCustom>();
    prepared->dense_inputs.assign(inputs.begin(), inputs.end());
    prepared->dense_outputs.assign(outputs.begin(), outputs.end());
    size_t bytes = 0;
    const auto copy_strided = [&](std::vector<TensorView>& views, std::vector<DenseCopy>& copies,
                                  bool to_dense) {
      for (size_t i = 0; i < views.size(); ++i) {
        TensorView& view = views[i];
        if (is_row_major(view)) continue;
        const size_t needed = copy_bytes(view);
        const Dims dense = row_major_strides(view.dims);
        const size_t size = size_of(view.dtype);
        copies.push_back({i, bytes,
                          to_dense ? CopyPlan(size, view.dims, view.strides, dense)
                                   : CopyPlan(size, view.dims, dense, view.strides)});
        view.strides = dense;
        bytes += aligned_up(needed);
      }
    };
    copy_strided(prepared->dense_inputs, prepared->inputs, true);
    copy_strided(prepared->dense_outputs, prepared->outputs, false);
    prepared->library = library_->prepare(prepared->dense_inputs, prepared->dense_outputs, threads);
    const size_t own = aligned_up(prepared->library->workspace_bytes);
    for (auto* copies : {&prepared->inputs, &prepared->outputs})
      for (DenseCopy& copy : *copies) copy.offset += own;
    prepared->workspace_bytes = bytes + own;
    return prepared;
  }

  void launch(const LaunchArgs& args) const override {
    auto& prepared = static_cast<PreparedCustom&>(*args.prepared);
    for (size_t i = 0; i < args.inputs.size(); ++i)
      prepared.dense_inputs[i].data = args.inputs[i].data;
    for (size_t i = 0; i < args.outputs.size(); ++i)
      prepared.dense_outputs[i].data = args.outputs[i].data;
    for (const DenseCopy& copy : prepared.inputs) {
      std::byte* const dense = args.workspace + copy.offset;
      copy.plan.run(args.inputs[copy.operand].data, dense, args.team);
      prepared.dense_inputs[copy.operand].data = dense;
    }
    for (const DenseCopy& copy : prepared.outputs)
      prepared.dense_outputs[copy.operand].data = args.workspace + copy.offset;
    library_->launch({prepared.dense_inputs, prepared.dense_outputs, prepared.library.get(),
                      args.workspace, args.stream, args.team});
    for (const DenseCopy& copy : prepared.outputs)
      copy.plan.run(args.workspace + copy.offset, args.outputs[copy.operand].data, args.team);
  }

 private:
  static size_t aligned_up(size_t bytes) {
    return (bytes + kCopyAlignment - 1) / kCopyAlignment * kCopyAlignment;
  }

  std::unique_ptr<Kernel> library_;
};

KernelResult make_custom(const Custom& op, const Request& request) {
  if (!op.definition) return refuse("its library is not loaded");
  for (const Program& epilogue : request.epilogues)
    if (!epilogue.empty()) return refuse("an epilogue");
  KernelResult made = op.definition->kernels().make_for_cpu(op, request);
  if (!made) return refuse(made.reason());
  return std::make_unique<CustomKernel>(*std::move(made));
}

constexpr KernelEntry kReferenceCustomEntries[] = {
    entry<Custom, make_custom>("cpu.custom.reference", Layout::kRowMajor),
};

}  // namespace

std::span<const KernelEntry> reference_custom_entries() { return kReferenceCustomEntries; }

}  // namespace anneal::cpu
