// "cpu.scatter_nd.copy" and "cpu.scatter_elements.copy". Updates of one element happen in row-major
// order of the indices, with any number of threads: each thread has elements of y of its own.
#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <type_traits>

#include "anneal/kernels/cpu/base/copy_plan.h"
#include "anneal/kernels/cpu/base/entries.h"
#include "anneal/kernels/cpu/movement/tuples.h"

namespace anneal::cpu {
namespace {

constexpr int64_t kMostPlaces = 256;   // found at a time
constexpr int64_t kLeastColumns = 64;  // of a thread

// How updates change elements. Steps and places count elements.
struct Updater {
  void (*run)(std::byte* to, int64_t to_step, const std::byte* from, int64_t from_step, int64_t n);
  void (*each)(std::byte* to, const int64_t* places, const std::byte* from, int64_t from_step,
               int64_t n);
};

template <class T>
struct Replaced {
  static T of(T, T update) { return update; }
};

template <class T>
using Wrapping = typename std::conditional_t<std::is_integral_v<T>, std::make_unsigned<T>,
                                             std::type_identity<T>>::type;
template <class T>
struct Added {
  static T of(T old, T update) {
    return static_cast<T>(static_cast<Wrapping<T>>(old) + static_cast<Wrapping<T>>(update));
  }
};
template <class T>
struct Multiplied {
  static T of(T old, T update) {
    return static_cast<T>(static_cast<Wrapping<T>>(old) * static_cast<Wrapping<T>>(update));
  }
};
// NaN if the update is.
template <class T>
struct Largest {
  static T of(T old, T update) { return update > old || update != update ? update : old; }
};
template <class T>
struct Smallest {
  static T of(T old, T update) { return update < old || update != update ? update : old; }
};

template <class T, class Result>
constexpr Updater kUpdater = {
    [](std::byte* to, int64_t to_step, const std::byte* from, int64_t from_step, int64_t n) {
      auto* const y = reinterpret_cast<T*>(to);
      const auto* const updates = reinterpret_cast<const T*>(from);
      if (to_step == 1 && from_step == 1) {
        for (int64_t i = 0; i < n; ++i) y[i] = Result::of(y[i], updates[i]);
      } else {
        for (int64_t i = 0; i < n; ++i)
          y[i * to_step] = Result::of(y[i * to_step], updates[i * from_step]);
      }
    },
    [](std::byte* to, const int64_t* places, const std::byte* from, int64_t from_step, int64_t n) {
      auto* const y = reinterpret_cast<T*>(to);
      const auto* const updates = reinterpret_cast<const T*>(from);
      for (int64_t i = 0; i < n; ++i)
        y[places[i]] = Result::of(y[places[i]], updates[i * from_step]);
    }};

template <class T>
Updater reducing(ScatterReduction reduction) {
  switch (reduction) {
    case ScatterReduction::kMul:
      return kUpdater<T, Multiplied<T>>;
    case ScatterReduction::kMax:
      return kUpdater<T, Largest<T>>;
    case ScatterReduction::kMin:
      return kUpdater<T, Smallest<T>>;
    default:
      return kUpdater<T, Added<T>>;
  }
}

std::optional<Updater> updater_of(ScatterReduction reduction, DataType dtype) {
  if (reduction == ScatterReduction::kNone) {
    Updater result{};
    visit_size(size_of(dtype), [&]<class T>(T) { result = kUpdater<T, Replaced<T>>; });
    return result;
  }
  switch (dtype) {
    case DataType::kF32:
      return reducing<float>(reduction);
    case DataType::kI32:
      return reducing<int32_t>(reduction);
    case DataType::kI64:
      return reducing<int64_t>(reduction);
    default:
      return std::nullopt;
  }
}

void copy_data(const CopyPlan& whole, const LaunchArgs& args) {
  const TensorView &x = args.inputs[0], &y = args.outputs[0];
  if (whole.elements() > 0 && x.data != y.data) whole.run(x.data, y.data, args.team);
}

struct PreparedScatterTuples final : PreparedKernel {
  CopyPlan whole;  // x to y
  Tuples tuples;
  Walk<2> slice{{}, {}};  // offsets in the updates and in y
};

class ScatterTuples final : public Kernel {
 public:
  explicit ScatterTuples(Updater updater) : updater_(updater) {}
  std::unique_ptr<PreparedKernel> prepare(std::span<const TensorView> inputs,
                                          std::span<const TensorView> outputs, int) const override {
    auto made = std::make_unique<PreparedScatterTuples>();
    const TensorView &x = inputs[0], &indices = inputs[1], &updates = inputs[2], &y = outputs[0];
    made->whole = CopyPlan(size_of(x.dtype), y.dims, x.strides, y.strides);
    if (count(updates.dims) == 0) return made;
    const int grid = indices.dims.rank() - 1, taken = static_cast<int>(indices.dims[grid]);
    made->tuples = Tuples(indices, y, updates, 0);
    made->slice = Walk<2>(
        part(y.dims, taken, y.dims.rank()),
        {part(updates.strides, grid, updates.dims.rank()), part(y.strides, taken, y.dims.rank())});
    return made;
  }
  void launch(const LaunchArgs& args) const override {
    const auto& p = static_cast<const PreparedScatterTuples&>(*args.prepared);
    copy_data(p.whole, args);
    if (count(args.inputs[2].dims) == 0) return;
    if (p.slice.count() == 1) return update_singles(p, args);
    const int64_t grain = std::max(kLeastColumns, kGrain / p.tuples.walk.count());
    args.team.for_ranges(p.slice.count(), grain,
                         [&](int64_t begin, int64_t end) { update_slices(p, args, begin, end); });
  }

 private:
  // The elements [begin, end) of each slice.
  void update_slices(const PreparedScatterTuples& p, const LaunchArgs& args, int64_t begin,
                     int64_t end) const {
    const TensorView &indices = args.inputs[1], &updates = args.inputs[2], &y = args.outputs[0];
    const auto size = static_cast<int64_t>(size_of(y.dtype));
    p.tuples.walk.for_elements([&](const auto& tuple) {
      const int64_t named = p.tuples.offset(indices, tuple[0]);
      p.slice.for_runs(begin, end, [&](const auto& at, int64_t n) {
        updater_.run(y.data + (named + at[1]) * size, p.slice.step(1),
                     updates.data + (tuple[1] + at[0]) * size, p.slice.step(0), n);
      });
    });
  }

  void update_singles(const PreparedScatterTuples& p, const LaunchArgs& args) const {
    const TensorView &indices = args.inputs[1], &updates = args.inputs[2], &y = args.outputs[0];
    const auto size = static_cast<int64_t>(size_of(y.dtype));
    const Walk<3>& walk = p.tuples.walk;
    std::array<int64_t, kMostPlaces> places;
    walk.for_runs(0, walk.count(), [&](const auto& at, int64_t length) {
      for (int64_t begin = 0; begin < length; begin += kMostPlaces) {
        const int64_t n = std::min(length - begin, kMostPlaces);
        for (int64_t i = 0; i < n; ++i)
          places[static_cast<size_t>(i)] =
              p.tuples.offset(indices, at[0] + (begin + i) * walk.step(0));
        updater_.each(y.data, places.data(), updates.data + (at[1] + begin * walk.step(1)) * size,
                      walk.step(1), n);
      }
    });
  }

  Updater updater_;
};

struct PreparedScatterElements final : PreparedKernel {
  CopyPlan whole;           // x to y
  Walk<3> walk{{}, {}};     // over updates: offsets in the indices, the updates and y
  int64_t before = 1;       // places of the axes before the one that indices are of
  int64_t columns = 1;      // places of those behind it
  bool by_columns = false;  // how threads share the work, else by `before`
};

class ScatterElementwise final : public Kernel {
 public:
  ScatterElementwise(const ScatterElements& op, Updater updater)
      : axis_(static_cast<int>(op.axis)), updater_(updater) {}
  std::unique_ptr<PreparedKernel> prepare(std::span<const TensorView> inputs,
                                          std::span<const TensorView> outputs,
                                          int threads) const override {
    auto made = std::make_unique<PreparedScatterElements>();
    const TensorView &x = inputs[0], &indices = inputs[1], &updates = inputs[2], &y = outputs[0];
    made->whole = CopyPlan(size_of(x.dtype), y.dims, x.strides, y.strides);
    Dims others = y.strides;
    others[axis_] = 0;
    made->walk = Walk<3>(indices.dims, {indices.strides, updates.strides, others});
    made->before = count(part(indices.dims, 0, axis_));
    made->columns = count(part(indices.dims, axis_ + 1, indices.dims.rank()));
    made->by_columns = made->before < threads && made->columns >= 2 * kLeastColumns;
    return made;
  }
  void launch(const LaunchArgs& args) const override {
    const auto& p = static_cast<const PreparedScatterElements&>(*args.prepared);
    copy_data(p.whole, args);
    if (p.walk.count() == 0) return;
    if (p.by_columns) {
      const int64_t rows = p.walk.count() / p.columns;
      const int64_t grain = std::max(kLeastColumns, kGrain / rows);
      return args.team.for_ranges(p.columns, grain, [&](int64_t begin, int64_t end) {
        for (int64_t row = 0; row < p.walk.count(); row += p.columns)
          update(p, args, row + begin, row + end);
      });
    }
    const int64_t each = p.walk.count() / p.before;
    args.team.for_ranges(p.before, 1 + kGrain / each, [&](int64_t begin, int64_t end) {
      update(p, args, begin * each, end * each);
    });
  }

 private:
  void update(const PreparedScatterElements& p, const LaunchArgs& args, int64_t begin,
              int64_t end) const {
    args.inputs[1].dtype == DataType::kI32 ? update_by<int32_t>(p, args, begin, end)
                                           : update_by<int64_t>(p, args, begin, end);
  }

  // With the updates [begin, end).
  template <class Index>
  void update_by(const PreparedScatterElements& p, const LaunchArgs& args, int64_t begin,
                 int64_t end) const {
    const TensorView &updates = args.inputs[2], &y = args.outputs[0];
    const auto size = static_cast<int64_t>(size_of(y.dtype));
    const int64_t axis_size = y.dims[axis_], axis_stride = y.strides[axis_];
    const int64_t index_step = p.walk.step(0), step = p.walk.step(1), y_step = p.walk.step(2);
    std::array<int64_t, kMostPlaces> places;
    p.walk.for_runs(begin, end, [&](const auto& at, int64_t length) {
      const Index* const indices = args.inputs[1].as<const Index>() + at[0];
      for (int64_t first = 0; first < length; first += kMostPlaces) {
        const int64_t n = std::min(length - first, kMostPlaces);
        bool is_one = true;  // the same index for all
        for (int64_t i = 0; i < n; ++i) {
          const Index index = indices[(first + i) * index_step];
          is_one = is_one && index == indices[first * index_step];
          places[static_cast<size_t>(i)] =
              i * y_step + place_of_index(index, axis_size) * axis_stride;
        }
        std::byte* const to = y.data + (at[2] + first * y_step) * size;
        const std::byte* const from = updates.data + (at[1] + first * step) * size;
        is_one ? updater_.run(to + places[0] * size, y_step, from, step, n)
               : updater_.each(to, places.data(), from, step, n);
      }
    });
  }

  int axis_;
  Updater updater_;
};

template <class Op, class Make>
KernelResult make_scatter(const Op& op, const Request& request, const Make& make) {
  if (!request.epilogues.empty() && !request.epilogues[0].empty()) return refuse("an epilogue");
  const DataType dtype = request.inputs[0].type.dtype, index = request.inputs[1].type.dtype;
  if (dtype == DataType::kString) return refuse("strings");
  if (index != DataType::kI32 && index != DataType::kI64) return refuse("indices of other types");
  const auto updater = updater_of(op.reduction, dtype);
  if (!updater) return refuse("a reduction of other types than f32, i32 and i64");
  return make(*updater);
}

KernelResult make_tuples(const ScatterND& op, const Request& request) {
  return make_scatter(op, request, [](const Updater& updater) -> KernelResult {
    return std::make_unique<ScatterTuples>(updater);
  });
}

KernelResult make_elements(const ScatterElements& op, const Request& request) {
  return make_scatter(op, request, [&](const Updater& updater) -> KernelResult {
    return std::make_unique<ScatterElementwise>(op, updater);
  });
}

constexpr KernelEntry kScatterEntries[] = {
    entry<ScatterND, make_tuples>("cpu.scatter_nd.copy"),
    entry<ScatterElements, make_elements>("cpu.scatter_elements.copy"),
};

}  // namespace

std::span<const KernelEntry> scatter_entries() { return kScatterEntries; }

}  // namespace anneal::cpu
