#include "anneal/engine/run/packing_kernel.h"

#include <utility>

#include "anneal/core/fail.h"
#include "anneal/core/parallel.h"
#include "anneal/engine/run/planned_kernel.h"

namespace anneal {
namespace {

// Nothing is ready: what the kernel packs goes to the places that it reads.
class ConstantsToPack final : public PackedConstants {
 public:
  ConstantsToPack(SharedPacking& packing, ThreadTeam& team) : packing_(packing), team_(team) {}
  std::optional<Tensor> find(std::string_view, size_t) override { return std::nullopt; }
  void keep(std::string_view, const Tensor&) override {}
  NewTensor allocate(size_t bytes, const std::shared_ptr<Allocator>& allocator) override {
    if (auto place = packing_.take(bytes, used_, team_)) return *std::move(place);
    return PackedConstants::allocate(bytes, allocator);
  }

 private:
  SharedPacking& packing_;
  ThreadTeam& team_;
  size_t used_ = 0;
};

class PackingKernel final : public Kernel {
 public:
  PackingKernel(const PlannedStep& step, std::unique_ptr<Kernel> kernel,
                std::shared_ptr<SharedPacking> packing)
      : at_(step), kernel_(std::move(kernel)), packing_(std::move(packing)) {}

  std::vector<std::byte> tactic() const override { return kernel_->tactic(); }
  std::unique_ptr<PreparedKernel> prepare(std::span<const TensorView> inputs,
                                          std::span<const TensorView> outputs,
                                          int threads) const override {
    return kernel_->prepare(inputs, outputs, threads);
  }
  std::unique_ptr<DataDependentDims> find(std::span<const TensorView> inputs, DeviceStream& stream,
                                          ThreadTeam& team) const override {
    return kernel_->find(inputs, stream, team);
  }
  void launch(const LaunchArgs& args) const override {
    const std::lock_guard lock(packing_->mutex());
    pack(args.team);
    kernel_->launch(args);
  }

 private:
  void pack(ThreadTeam& team) const {
    const StepOperands operands = operands_of(at_.file, at_.plan, at_.step);
    Request request = request_of(at_.plan, at_.step, operands, at_.device, &team);
    ConstantsToPack constants(*packing_, team);
    request.packed = &constants;
    check(bool(at_.entry.make(request)), "a kernel refuses the step for which it was made");
  }

  PlannedStep at_;
  std::unique_ptr<Kernel> kernel_;
  std::shared_ptr<SharedPacking> packing_;
};

}  // namespace

std::unique_ptr<Kernel> packing_kernel(const PlannedStep& step, std::unique_ptr<Kernel> kernel,
                                       std::shared_ptr<SharedPacking> packing) {
  return std::make_unique<PackingKernel>(step, std::move(kernel), std::move(packing));
}

}  // namespace anneal
