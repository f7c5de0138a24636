// Gathers by tuples of indices: "cpu.gather_nd.copy". Each tuple names a slice of x, which is
// copied by a plan made once, or is a single element. "cpu.gather_elements.copy" has an index for
// each element.
#include <fmt/format.h>

#include <cstring>

#include "anneal/core/fail.h"
#include "anneal/kernels/cpu/base/copy_plan.h"
#include "anneal/kernels/cpu/base/entries.h"
#include "anneal/kernels/cpu/movement/single_elements.h"
#include "anneal/kernels/cpu/movement/tuples.h"

namespace anneal::cpu {

void fail_of_index(int64_t index, int64_t size) {
  fail(ErrorCode::kInvalidArgument,
       fmt::format("index {} is out of range for {} elements", index, size));
}

namespace {

struct PreparedTuples final : PreparedKernel {
  Tuples tuples;
  CopyPlan slice;
};

// The slices [begin, end) of y.
void copy_slices(const PreparedTuples& p, const LaunchArgs& args, int64_t begin, int64_t end) {
  const TensorView &x = args.inputs[0], &y = args.outputs[0];
  const auto size = static_cast<int64_t>(size_of(x.dtype));
  const auto each = [&](const auto& copy) {
    p.tuples.walk.for_elements(begin, end, [&](const auto& at) {
      const int64_t named = at[2] + p.tuples.offset(args.inputs[1], at[0]);
      copy(x.data + named * size, y.data + at[1] * size);
    });
  };
  const auto single = [&]<class T>(T) {
    each([](const std::byte* a, std::byte* b) { std::memcpy(b, a, sizeof(T)); });
  };
  if (p.slice.elements() > 1)
    return each([&](const std::byte* a, std::byte* b) { p.slice.run(a, b); });
  visit_size(size_of(x.dtype), single);
}

class GatherTuples final : public Kernel {
 public:
  explicit GatherTuples(const GatherND& op) : batch_(static_cast<int>(op.batch_dims)) {}
  std::unique_ptr<PreparedKernel> prepare(std::span<const TensorView> inputs,
                                          std::span<const TensorView> outputs, int) const override {
    auto made = std::make_unique<PreparedTuples>();
    const TensorView &x = inputs[0], &indices = inputs[1], &y = outputs[0];
    if (count(y.dims) == 0) return made;
    const int grid = indices.dims.rank() - 1;
    const int taken = batch_ + static_cast<int>(indices.dims[grid]);
    made->tuples = Tuples(indices, x, y, batch_);
    made->slice =
        CopyPlan(size_of(x.dtype), part(x.dims, taken, x.dims.rank()),
                 part(x.strides, taken, x.dims.rank()), part(y.strides, grid, y.dims.rank()));
    return made;
  }
  void launch(const LaunchArgs& args) const override {
    const auto& p = static_cast<const PreparedTuples&>(*args.prepared);
    if (count(args.outputs[0].dims) == 0) return;
    args.team.for_ranges(p.tuples.walk.count(), 1 + kGrain / p.slice.elements(),
                         [&](int64_t begin, int64_t end) { copy_slices(p, args, begin, end); });
  }

 private:
  int batch_;
};

struct PreparedSingles final : PreparedKernel {
  Walk<3> walk{{}, {}};  // over y: offsets in the indices, y and x
};

class GatherElementwise final : public Kernel {
 public:
  explicit GatherElementwise(const GatherElements& op) : axis_(static_cast<int>(op.axis)) {}
  std::unique_ptr<PreparedKernel> prepare(std::span<const TensorView> inputs,
                                          std::span<const TensorView> outputs, int) const override {
    auto made = std::make_unique<PreparedSingles>();
    Dims others = inputs[0].strides;
    others[axis_] = 0;
    made->walk = Walk<3>(outputs[0].dims, {inputs[1].strides, outputs[0].strides, others});
    return made;
  }
  void launch(const LaunchArgs& args) const override {
    const auto& p = static_cast<const PreparedSingles&>(*args.prepared);
    const SingleElements one = {args.inputs[0], args.inputs[1], args.outputs[0], axis_,
                                p.walk.step(0), p.walk.step(1), p.walk.step(2)};
    args.team.for_ranges(p.walk.count(), kGrain, [&](int64_t begin, int64_t end) {
      p.walk.for_runs(begin, end, [&](const auto& at, int64_t length) {
        one.take(at[0], at[1], at[2], length);
      });
    });
  }

 private:
  int axis_;
};

std::string why_not(const Request& request) {
  if (!request.epilogues.empty() && !request.epilogues[0].empty()) return "an epilogue";
  if (request.inputs[0].type.dtype == DataType::kString) return "strings";
  return {};
}

KernelResult make_gather_nd(const GatherND& op, const Request& request) {
  if (std::string why = why_not(request); !why.empty()) return refuse(std::move(why));
  return std::make_unique<GatherTuples>(op);
}

KernelResult make_gather_elements(const GatherElements& op, const Request& request) {
  if (std::string why = why_not(request); !why.empty()) return refuse(std::move(why));
  const DataType index = request.inputs[1].type.dtype;
  if (index != DataType::kI32 && index != DataType::kI64) return refuse("indices of other types");
  return std::make_unique<GatherElementwise>(op);
}

constexpr KernelEntry kIndexTuplesEntries[] = {
    entry<GatherElements, make_gather_elements>("cpu.gather_elements.copy"),
    entry<GatherND, make_gather_nd>("cpu.gather_nd.copy"),
};

}  // namespace

std::span<const KernelEntry> index_tuple_entries() { return kIndexTuplesEntries; }

}  // namespace anneal::cpu
