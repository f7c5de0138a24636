// Gathers and scatters by tuples of indices: "cpu.gather_nd.copy", "cpu.scatter_nd.copy". Each
// tuple names a slice of x or y, which is copied by a plan made once, or is a single element.
// "cpu.gather_elements.copy" and "cpu.scatter_elements.copy" have an index for each element; the
// latter copies runs with one index whole.
#include <fmt/format.h>

#include <cstring>
#include <optional>

#include "anneal/kernels/cpu/base/copy_plan.h"
#include "anneal/kernels/cpu/base/element.h"
#include "anneal/kernels/cpu/base/entries.h"
#include "anneal/kernels/cpu/base/strided.h"
#include "anneal/kernels/cpu/reference/reference.h"

namespace anneal::cpu {
namespace {

// From the front of an axis of `size` elements.
int64_t place_of_index(int64_t index, int64_t size) {
  if (index < -size || index >= size)
    fail(ErrorCode::kInvalidArgument,
         fmt::format("index {} is out of range for {} elements", index, size));
  return index < 0 ? index + size : index;
}

// f(T()) for an unsigned integer T of the size.
template <class F>
void visit_size(size_t size, const F& f) {
  switch (size) {
    case 1:
      return f(uint8_t{});
    case 2:
      return f(uint16_t{});
    case 4:
      return f(uint32_t{});
    default:
      return f(uint64_t{});
  }
}

// How the tuples of one tensor of indices name slices of another tensor.
struct Tuples {
  Tuples() = default;
  // of: the tensor that the indices are of, of which the first `batch` axes go with theirs. beside:
  // the tensor that has a slice for each tuple.
  Tuples(const TensorView& indices, const TensorView& of, const TensorView& beside, int batch)
      : walk(walk_of(indices, of, beside, batch)) {
    const int last = indices.dims.rank() - 1;
    step = indices.strides[last];
    for (int64_t i = 0; i < indices.dims[last]; ++i) {
      const int axis = batch + static_cast<int>(i);
      sizes.push_back(of.dims[axis]);
      strides.push_back(of.strides[axis]);
    }
  }

  int64_t offset(const TensorView& indices, int64_t at) const {
    int64_t offset = 0;
    for (int i = 0; i < sizes.rank(); ++i, at += step)
      offset += place_of_index(load_integer(indices, at), sizes[i]) * strides[i];
    return offset;
  }

  Walk<3> walk{{}, {}};  // over tuples: offsets in the indices, beside, and of batches
  Dims sizes, strides;   // of the axes that a tuple names
  int64_t step = 1;      // from index to index of a tuple

 private:
  static Walk<3> walk_of(const TensorView& indices, const TensorView& of, const TensorView& beside,
                         int batch) {
    const int grid = indices.dims.rank() - 1;
    Dims batches = Dims::filled(grid, 0);
    for (int axis = 0; axis < batch; ++axis) batches[axis] = of.strides[axis];
    return Walk<3>(part(indices.dims, 0, grid),
                   {part(indices.strides, 0, grid), part(beside.strides, 0, grid), batches});
  }
};

struct PreparedTuples final : PreparedKernel {
  Tuples tuples;
  CopyPlan slice;
  CopyPlan whole;  // of a scatter: x to y
};

// Slices [begin, end) of the tuples, from(tuple offset, beside offset) to to(...), in elements.
template <class From, class To>
void copy_slices(const PreparedTuples& p, const TensorView& indices, int64_t size, int64_t begin,
                 int64_t end, const From& from, const To& to) {
  const auto each = [&](const auto& copy) {
    p.tuples.walk.for_elements(begin, end, [&](const auto& at) {
      const int64_t named = at[2] + p.tuples.offset(indices, at[0]);
      copy(from(named, at[1]), to(named, at[1]));
    });
  };
  const auto single = [&]<class T>(T) {
    each([](const std::byte* a, std::byte* b) { std::memcpy(b, a, sizeof(T)); });
  };
  if (p.slice.elements() > 1)
    return each([&](const std::byte* a, std::byte* b) { p.slice.run(a, b); });
  visit_size(static_cast<size_t>(size), single);
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
    const TensorView &x = args.inputs[0], &indices = args.inputs[1], &y = args.outputs[0];
    if (count(y.dims) == 0) return;
    const auto size = static_cast<int64_t>(size_of(x.dtype));
    args.team.for_ranges(p.tuples.walk.count(), 1 + kGrain / p.slice.elements(),
                         [&](int64_t begin, int64_t end) {
                           copy_slices(
                               p, indices, size, begin, end,
                               [&](int64_t named, int64_t) { return x.data + named * size; },
                               [&](int64_t, int64_t beside) { return y.data + beside * size; });
                         });
  }

 private:
  int batch_;
};

// Slices are written one after the other: of several for one place the last one stays.
class ScatterTuples final : public Kernel {
 public:
  std::unique_ptr<PreparedKernel> prepare(std::span<const TensorView> inputs,
                                          std::span<const TensorView> outputs, int) const override {
    auto made = std::make_unique<PreparedTuples>();
    const TensorView &x = inputs[0], &indices = inputs[1], &updates = inputs[2], &y = outputs[0];
    made->whole = CopyPlan(size_of(x.dtype), y.dims, x.strides, y.strides);
    if (count(updates.dims) == 0) return made;
    const int grid = indices.dims.rank() - 1, taken = static_cast<int>(indices.dims[grid]);
    made->tuples = Tuples(indices, y, updates, 0);
    made->slice = CopyPlan(size_of(x.dtype), part(y.dims, taken, y.dims.rank()),
                           part(updates.strides, grid, updates.dims.rank()),
                           part(y.strides, taken, y.dims.rank()));
    return made;
  }
  void launch(const LaunchArgs& args) const override {
    const auto& p = static_cast<const PreparedTuples&>(*args.prepared);
    const TensorView &indices = args.inputs[1], &updates = args.inputs[2], &y = args.outputs[0];
    if (p.whole.elements() > 0 && args.inputs[0].data != y.data)
      p.whole.run(args.inputs[0].data, y.data, args.team);
    if (count(updates.dims) == 0) return;
    const auto size = static_cast<int64_t>(size_of(y.dtype));
    copy_slices(
        p, indices, size, 0, p.tuples.walk.count(),
        [&](int64_t, int64_t beside) { return updates.data + beside * size; },
        [&](int64_t named, int64_t) { return y.data + named * size; });
  }
};

struct PreparedElements final : PreparedKernel {
  CopyPlan whole;        // x to y
  Walk<3> walk{{}, {}};  // over updates: offsets in the indices, the updates and y
  int64_t parts = 1;     // that write different elements: those at different places before the axis
};

// The updates [begin, end), in their order.
template <class T>
void scatter_updates(const PreparedElements& p, const LaunchArgs& args, int axis, int64_t begin,
                     int64_t end) {
  const TensorView &indices = args.inputs[1], &updates = args.inputs[2], &y = args.outputs[0];
  const int64_t index_step = p.walk.step(0), update_step = p.walk.step(1), y_step = p.walk.step(2);
  p.walk.for_runs(begin, end, [&](const auto& at, int64_t length) {
    const T* const from = updates.as<const T>() + at[1];
    T* const to = y.as<T>() + at[2];
    const auto index = [&](int64_t i) { return load_integer(indices, at[0] + i * index_step); };
    const auto place = [&](int64_t i) {
      return place_of_index(index(i), y.dims[axis]) * y.strides[axis];
    };
    bool is_one = update_step == 1 && y_step == 1;
    for (int64_t i = 1; is_one && i < length; ++i) is_one = index(i) == index(0);
    if (is_one) {
      std::memcpy(to + place(0), from, static_cast<size_t>(length) * sizeof(T));
      return;
    }
    for (int64_t i = 0; i < length; ++i) to[i * y_step + place(i)] = from[i * update_step];
  });
}

// Of several updates of one element the last one stays.
class ScatterElementwise final : public Kernel {
 public:
  explicit ScatterElementwise(const ScatterElements& op) : axis_(static_cast<int>(op.axis)) {}
  std::unique_ptr<PreparedKernel> prepare(std::span<const TensorView> inputs,
                                          std::span<const TensorView> outputs, int) const override {
    auto made = std::make_unique<PreparedElements>();
    const TensorView &x = inputs[0], &indices = inputs[1], &updates = inputs[2], &y = outputs[0];
    made->whole = CopyPlan(size_of(x.dtype), y.dims, x.strides, y.strides);
    Dims others = y.strides;
    others[axis_] = 0;
    made->walk = Walk<3>(indices.dims, {indices.strides, updates.strides, others});
    made->parts = count(part(indices.dims, 0, axis_));
    return made;
  }
  void launch(const LaunchArgs& args) const override {
    const auto& p = static_cast<const PreparedElements&>(*args.prepared);
    const TensorView& y = args.outputs[0];
    if (p.whole.elements() > 0 && args.inputs[0].data != y.data)
      p.whole.run(args.inputs[0].data, y.data, args.team);
    if (p.walk.count() == 0) return;
    const int64_t of_part = p.walk.count() / p.parts;
    const auto scatter = [&]<class T>(T) {
      args.team.for_ranges(p.parts, 1 + kGrain / of_part, [&](int64_t begin, int64_t end) {
        scatter_updates<T>(p, args, axis_, begin * of_part, end * of_part);
      });
    };
    visit_size(size_of(y.dtype), scatter);
  }

 private:
  int axis_;
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
    const bool are_narrow = args.inputs[1].dtype == DataType::kI32;
    args.team.for_ranges(p.walk.count(), kGrain, [&](int64_t begin, int64_t end) {
      visit_size(size_of(args.inputs[0].dtype), [&]<class T>(T) {
        are_narrow ? gather<T, int32_t>(p, args, begin, end)
                   : gather<T, int64_t>(p, args, begin, end);
      });
    });
  }

 private:
  template <class T, class Index>
  void gather(const PreparedSingles& p, const LaunchArgs& args, int64_t begin, int64_t end) const {
    const TensorView& x = args.inputs[0];
    const int64_t size = x.dims[axis_], stride = x.strides[axis_];
    const int64_t index_step = p.walk.step(0), y_step = p.walk.step(1), x_step = p.walk.step(2);
    p.walk.for_runs(begin, end, [&](const auto& at, int64_t length) {
      const Index* const indices = args.inputs[1].as<const Index>() + at[0];
      T* const to = args.outputs[0].as<T>() + at[1];
      const T* const from = x.as<const T>() + at[2];
      for (int64_t i = 0; i < length; ++i)
        to[i * y_step] = from[i * x_step + place_of_index(indices[i * index_step], size) * stride];
    });
  }

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

KernelResult make_scatter_elements(const ScatterElements& op, const Request& request) {
  if (op.reduction != ScatterReduction::kNone) return refuse("a reduction");
  if (std::string why = why_not(request); !why.empty()) return refuse(std::move(why));
  return std::make_unique<ScatterElementwise>(op);
}

KernelResult make_scatter(const ScatterND& op, const Request& request) {
  if (op.reduction != ScatterReduction::kNone) return refuse("a reduction");
  if (std::string why = why_not(request); !why.empty()) return refuse(std::move(why));
  return std::make_unique<ScatterTuples>();
}

constexpr KernelEntry kIndexTuplesEntries[] = {
    entry<GatherElements, make_gather_elements>("cpu.gather_elements.copy"),
    entry<GatherND, make_gather_nd>("cpu.gather_nd.copy"),
    entry<ScatterND, make_scatter>("cpu.scatter_nd.copy"),
    entry<ScatterElements, make_scatter_elements>("cpu.scatter_elements.copy"),
};

}  // namespace

std::span<const KernelEntry> index_tuple_entries() { return kIndexTuplesEntries; }

}  // namespace anneal::cpu
