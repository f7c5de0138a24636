#include "anneal/engine/onnx/memory_by_batch.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <iterator>
#include <utility>

#include "anneal/core/fail.h"
#include "anneal/core/parallel.h"
#include "anneal/engine/run/declared_shapes.h"
#include "anneal/engine/run/make_engine.h"
#include "anneal/engine/run/memory/bound_plan.h"

namespace anneal {
namespace {

constexpr std::initializer_list<int64_t> kProbes = {2, 5};
// Workspaces of bodies may begin to grow at any batch, mostly at a small one.
constexpr std::initializer_list<int64_t> kProbesOfBodies = {1, 2, 3, 5, 8, 20};
constexpr int64_t kBatchesOfFormulas = 64;
constexpr size_t HeldMemory::*kPlanned[] = {&HeldMemory::arenas, &HeldMemory::workspaces,
                                            &HeldMemory::gpu_arenas, &HeldMemory::gpu_workspaces};

// A batch that no run could have: too large to be counted, or outside of the engine's sizes.
bool is_out_of_reach(const Error& error) {
  return error.code() == ErrorCode::kInvalidArgument || error.code() == ErrorCode::kLimit ||
         error.code() == ErrorCode::kOutOfMemory || error.code() == ErrorCode::kUnsupported ||
         error.code() == ErrorCode::kInvalidModel;
}

}  // namespace

MemoryByBatch::MemoryByBatch(std::shared_ptr<const Engine> engine, const std::vector<Dims>& dims,
                             const ContextOptions& options, MakeInputs make_inputs)
    : engine_(std::move(engine)), options_(options), make_inputs_(std::move(make_inputs)) {
  const std::vector<std::optional<Dims>> wanted(dims.begin(), dims.end());
  if (options_.profile < 0) options_.profile = static_cast<int>(profile_for(*engine_, wanted));
  if (options_.threads == 0) options_.threads = hardware_threads();
  loaded_ = &EngineInternals::loaded(*engine_, static_cast<size_t>(options_.profile));
  plan_ = loaded_->plan;
  declared_ = declared_shapes(*plan_);
  find_size(dims);
  for (const int64_t probe : plan_->bodies.empty() ? kProbes : kProbesOfBodies) {
    const int64_t allowed = std::clamp(probe, bounds_.min, bounds_.max);
    if (std::ranges::find(probed_, allowed) == probed_.end()) probed_.push_back(allowed);
  }
  if (probed_.size() == 1) probed_ = {bounds_.min, bounds_.max};
  probe();
}

void MemoryByBatch::find_size(const Binding& dims) {
  at_first_ = solve_symbols(*plan_, dims);
  per_row_.assign(at_first_.size(), 0);
  const auto is_open = [&](uint32_t symbol) {
    const Bounds& bounds = plan_->sizes->symbols()[symbol].bounds;
    return bounds.min < bounds.max;
  };
  std::optional<uint32_t> found;
  if (plan_->batch_split && !plan_->batch_split->is_fixed && is_open(plan_->batch_split->symbol))
    found = plan_->batch_split->symbol;
  is_batch_ = true;
  for (const bool first_axis : {true, false})
    for (const uint32_t input : plan_->inputs) {
      const Shape shape = port_shape(*plan_, input);
      for (int axis = 0; axis < (first_axis ? std::min(shape.rank(), 1) : shape.rank()); ++axis) {
        const auto symbol = plan_->sizes->symbol_index(shape[axis]);
        if (found || !symbol || !is_open(*symbol)) continue;
        found = symbol;
        is_batch_ = first_axis;
      }
    }
  if (!found) {
    std::vector<std::string> texts;
    for (size_t i = 0; i < dims.size(); ++i)
      texts.push_back(engine_->inputs()[i].name + " " + to_string(dims[i]));
    fail(ErrorCode::kInvalidArgument,
         fmt::format("the inputs have fixed sizes ({}), so there is no batch to "
                     "change: build the model with an open batch (--open-batch)",
                     fmt::join(texts, ", ")));
  }
  symbol_ = *found;
  size_ = plan_->sizes->symbols()[symbol_].name;
  bounds_ = plan_->sizes->symbols()[symbol_].bounds;
}

MemoryFormula MemoryByBatch::formula() const {
  MemoryFormula formula = memory_formula(*plan_);
  if (!has_staging_) formula.staging.clear();
  return formula;
}

std::optional<FormulasByBatch> MemoryByBatch::formulas_by_batch() const {
  const int64_t first = std::max<int64_t>(bounds_.min, 1);
  const int64_t last = std::min(bounds_.max, first + kBatchesOfFormulas - 1);
  std::vector<int64_t> arenas, workspaces;
  for (int64_t batch = first; batch <= last; ++batch) {
    try {
      const HeldMemory held = predict(batch);
      arenas.push_back(static_cast<int64_t>(held.arenas));
      workspaces.push_back(static_cast<int64_t>(held.workspaces));
    } catch (const Error& error) {
      if (!is_out_of_reach(error)) throw;
      break;
    }
  }
  if (arenas.empty()) return std::nullopt;
  return FormulasByBatch{batch_formula(first, arenas, size_),
                         batch_formula(first, workspaces, size_)};
}

std::vector<uint32_t> MemoryByBatch::sizes_beside() const {
  std::vector<uint32_t> beside;
  for (uint32_t symbol = 0; symbol < at_first_.size(); ++symbol) {
    const Bounds& bounds = plan_->sizes->symbols()[symbol].bounds;
    const auto has_it = [&](uint32_t input) {
      return std::ranges::any_of(port_shape(*plan_, input), [&](Size size) {
        return contains_symbol(*plan_->sizes, size, symbol);
      });
    };
    if (symbol != symbol_ && at_first_[symbol] && bounds.min < bounds.max &&
        std::ranges::any_of(plan_->inputs, has_it))
      beside.push_back(symbol);
  }
  return beside;
}

std::vector<std::pair<std::string, int64_t>> MemoryByBatch::other_sizes() const {
  std::vector<std::pair<std::string, int64_t>> others;
  for (const uint32_t symbol : sizes_beside())
    if (per_row_[symbol] == 0)
      others.emplace_back(plan_->sizes->symbols()[symbol].name, *at_first_[symbol]);
  return others;
}

std::vector<std::string> MemoryByBatch::growing_sizes() const {
  std::vector<std::string> names;
  for (const uint32_t symbol : sizes_beside())
    if (per_row_[symbol] != 0) names.push_back(plan_->sizes->symbols()[symbol].name);
  return names;
}

MemoryByBatch::Binding MemoryByBatch::dims_at(int64_t batch) const {
  SymbolValues values = at_first_;
  for (size_t i = 0; i < values.size(); ++i)
    if (values[i]) *values[i] += *per_row_[i] * (batch - probed_[0]);
  values[symbol_] = batch;
  Binding dims;
  for (const uint32_t input : plan_->inputs)
    dims.push_back(plan_->sizes->evaluate(port_shape(*plan_, input), values));
  return dims;
}

uint64_t MemoryByBatch::input_bytes(int64_t batch) const {
  uint64_t bytes = 0;
  const Binding dims = dims_at(batch);
  for (size_t i = 0; i < dims.size(); ++i)
    bytes += static_cast<uint64_t>(count(dims[i])) * size_of(engine_->inputs()[i].dtype);
  return bytes;
}

const HeldMemory& MemoryByBatch::planned(const Binding& dims, int threads) const {
  std::vector<int64_t> key = {threads};
  for (const Dims& each : dims) std::ranges::copy(each, std::back_inserter(key));
  if (const auto known = planned_.find(key); known != planned_.end()) return known->second;
  return planned_.emplace(std::move(key), plan_binding(dims, threads)).first->second;
}

HeldMemory MemoryByBatch::plan_binding(const Binding& dims, int threads) const {
  const BoundPlan bound = bind_shapes(*plan_, weights_of(*engine_), dims);
  const auto views = [&](const std::vector<uint32_t>& slots) {
    std::vector<TensorView> views;
    for (const uint32_t slot : slots)
      views.push_back(slot == kNoSlot ? TensorView{} : bound.slots[slot]);
    return views;
  };
  std::vector<size_t> workspaces(plan_->devices.size());
  for (size_t i = 0; i < plan_->steps.size(); ++i) {
    const Step& step = plan_->steps[i];
    if (loaded_->deferred[i] || !loaded_->kernels[i]) continue;
    const auto prepared =
        loaded_->kernels[i]->prepare(views(step.inputs), views(step.outputs), threads);
    workspaces[step.device] = std::max(workspaces[step.device], prepared->workspace_bytes);
  }
  HeldMemory held = {.shapes = held_bytes(bound)};
  for (size_t device = 0; device < workspaces.size(); ++device) {
    const auto arena = static_cast<size_t>(bound.arena_bytes[device]);
    const bool is_gpu = device + 1 < workspaces.size();
    held += {.arenas = arena,
             .workspaces = workspaces[device],
             .gpu_arenas = is_gpu ? arena : 0,
             .gpu_workspaces = is_gpu ? workspaces[device] : 0};
  }
  return held;
}

RowCut MemoryByBatch::cut_of(const Binding& dims) const {
  if (plan_->batch_split) return cut_rows(*plan_, dims, options_.threads, options_.micro_batch);
  return {.rows = 1, .together = 1};
}

MemoryByBatch::Bindings MemoryByBatch::bindings_for(int64_t batch) const {
  Bindings bindings;
  bindings.threads = static_cast<size_t>(options_.threads);
  const auto add = [](std::vector<Binding>& to, const Binding& dims) {
    if (std::ranges::find(to, dims) == to.end()) to.push_back(dims);
  };
  const auto slice_of = [&](Binding dims, int64_t rows) {
    for (size_t i = 0; i < dims.size(); ++i)
      if (input_has_rows(*plan_, i)) dims[i][0] = rows;
    return dims;
  };
  std::vector<Binding> all = declared_;
  all.push_back(dims_at(batch));
  for (const Binding& dims : all) {
    const RowCut cut = cut_of(dims);
    if (cut.is_whole()) {
      add(bindings.together, dims);
      continue;
    }
    if (cut.rows_alone > 0) add(bindings.alone, slice_of(dims, cut.alone));
    if (cut.together == 0) continue;
    const int64_t rest = (cut.rows - cut.rows_alone) % cut.together;
    add(bindings.together, slice_of(dims, cut.together));
    if (rest != 0) add(bindings.together, slice_of(dims, rest));
  }
  return bindings;
}

// Each run has room for the largest of its bindings, and keeps the sizes of all.
HeldMemory MemoryByBatch::planned(const Bindings& bindings) const {
  HeldMemory held;
  const auto add = [&](const std::vector<Binding>& of_run, int threads, size_t runs) {
    HeldMemory most;
    for (const Binding& dims : of_run) {
      const HeldMemory& one = planned(dims, threads);
      held.shapes += runs * one.shapes;
      for (const auto field : kPlanned) most.*field = std::max(most.*field, one.*field);
    }
    for (const auto field : kPlanned) held.*field += runs * most.*field;
  };
  add(bindings.together, options_.threads, 1);
  add(bindings.alone, 1, bindings.threads);
  return held;
}

HeldMemory MemoryByBatch::run_once(const std::vector<Tensor>& inputs) const {
  ExecutionContext context(engine_, options_);
  for (size_t i = 0; i < inputs.size(); ++i)
    context.set_input(engine_->inputs()[i].name, inputs[i].view());
  context.run();
  return memory_of(context);
}

// Of the inputs that have the size; what the others must be is for the run to accept.
std::vector<std::optional<Dims>> MemoryByBatch::given_dims(int64_t batch) const {
  std::vector<std::optional<Dims>> given;
  const Binding dims = dims_at(batch);
  for (size_t i = 0; i < dims.size(); ++i) {
    const Shape shape = port_shape(*plan_, plan_->inputs[i]);
    const bool has_size = std::ranges::any_of(
        shape, [&](Size size) { return contains_symbol(*plan_->sizes, size, symbol_); });
    given.push_back(has_size ? std::optional(dims[i]) : std::nullopt);
  }
  return given;
}

void MemoryByBatch::probe() {
  std::vector<SymbolValues> values;
  for (const int64_t batch : probed_) {
    const std::vector<Tensor> inputs = make_inputs_(given_dims(batch));
    Binding dims;
    for (const Tensor& tensor : inputs) dims.push_back(tensor.dims());
    values.push_back(solve_symbols(*plan_, dims));
    beyond_.push_back(run_once(inputs));
  }
  at_first_ = values[0];
  for (size_t i = 0; i < at_first_.size(); ++i)
    if (values[0][i] && values[1][i])
      per_row_[i] = (*values[1][i] - *values[0][i]) / (probed_[1] - probed_[0]);
  for (size_t i = 0; i < probed_.size(); ++i) {
    HeldMemory& beyond = beyond_[i];
    const Bindings bindings = bindings_for(probed_[i]);
    const HeldMemory plans = planned(bindings);
    for (const auto field : kPlanned) beyond.*field -= std::min(beyond.*field, plans.*field);
    beyond.shapes -= std::min(beyond.shapes, plans.shapes);
    bytes_of_binding_ = static_cast<double>(beyond.shapes) / static_cast<double>(bindings.count());
  }
  const std::vector<bool> solvable = solvable_symbols(*plan_);
  has_staging_ = std::ranges::none_of(staged_ports(*plan_), [&](uint32_t slot) {
    return depends_on_values(port_shape(*plan_, slot), *plan_->sizes, solvable);
  });
  for (size_t i = 0; i < probed_.size(); ++i)
    has_staging_ = has_staging_ && staged_bytes(probed_[i]) == beyond_[i].ports;
}

size_t MemoryByBatch::staged_bytes(int64_t batch) const {
  const SymbolValues values = solve_symbols(*plan_, dims_at(batch));
  size_t bytes = 0;
  for (const uint32_t slot : staged_ports(*plan_))
    bytes += std::max<size_t>(
        1, static_cast<size_t>(count(plan_->sizes->evaluate(port_shape(*plan_, slot), values))) *
               size_of(plan_->slots[slot].type.dtype));
  return bytes;
}

size_t MemoryByBatch::beyond(size_t HeldMemory::*field, int64_t batch) const {
  size_t last = 1;
  while (last + 1 < probed_.size() && batch > probed_[last]) ++last;
  const auto a = static_cast<double>(beyond_[last - 1].*field),
             b = static_cast<double>(beyond_[last].*field);
  const double value = a + (b - a) * static_cast<double>(batch - probed_[last - 1]) /
                               static_cast<double>(probed_[last] - probed_[last - 1]);
  return value > 0 ? static_cast<size_t>(std::llround(value)) : 0;
}

HeldMemory MemoryByBatch::predict(int64_t batch) const {
  const Bindings bindings = bindings_for(batch);
  HeldMemory held = planned(bindings);
  for (const auto field : kPlanned) held.*field += beyond(field, batch);
  held.ports = has_staging_ ? staged_bytes(batch) : beyond(&HeldMemory::ports, batch);
  held.late = beyond(&HeldMemory::late, batch);
  held.shapes +=
      static_cast<size_t>(std::llround(bytes_of_binding_ * static_cast<double>(bindings.count())));
  return held;
}

BatchMemory MemoryByBatch::measure(int64_t batch) const {
  const Binding dims = dims_at(batch);
  const std::vector<std::optional<Dims>> all(dims.begin(), dims.end());
  return {batch, cut_of(dims), input_bytes(batch), predict(batch), run_once(make_inputs_(all))};
}

std::optional<int64_t> MemoryByBatch::largest(uint64_t bytes, uint64_t weights,
                                              int contexts) const {
  const auto fits = [&](int64_t batch) {
    try {
      const HeldMemory of_batch = predict(batch);
      const auto held = is_for_gpu() ? static_cast<double>(of_batch.on_gpu())
                                     : static_cast<double>(input_bytes(batch)) +
                                           static_cast<double>(of_batch.sum());
      return static_cast<double>(weights) + held * contexts <= static_cast<double>(bytes);
    } catch (const Error& error) {
      if (!is_out_of_reach(error)) throw;
      return false;
    }
  };
  int64_t fitting = std::max<int64_t>(bounds_.min, 1), beyond = fitting;
  if (!fits(fitting)) return std::nullopt;
  while (beyond < bounds_.max && fits(beyond)) {
    fitting = beyond;
    beyond = beyond > bounds_.max / 2 ? bounds_.max : beyond * 2;
  }
  if (fits(beyond)) return beyond;
  while (fitting + 1 < beyond) {
    const int64_t middle = fitting + (beyond - fitting) / 2;
    (fits(middle) ? fitting : beyond) = middle;
  }
  // A batch whose slices are all whole may take less than a smaller one with a rest.
  const RowCut cut = cut_of(dims_at(std::min(fitting + 1, bounds_.max)));
  constexpr int64_t kFewestBeyond = 64;
  const int64_t beyond_it = std::max({kFewestBeyond, cut.together, cut.alone * options_.threads});
  const int64_t last = cut.is_whole() ? fitting : std::min(bounds_.max, fitting + beyond_it);
  for (int64_t batch = fitting + 1; batch <= last; ++batch)
    if (fits(batch)) fitting = batch;
  return fitting;
}

}  // namespace anneal
