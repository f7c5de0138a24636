#include "anneal/engine/builder/make_batch_dynamic.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <span>

#include "anneal/core/error.h"
#include "anneal/engine/builder/batch_axis.h"
#include "anneal/engine/plan_check.h"
#include "anneal/engine/run/planned_kernel.h"
#include "anneal/engine/symbols.h"
#include "anneal/kernels/cpu/backend.h"

namespace anneal {
namespace {

constexpr int64_t kFewestRows = 3;  // the bounds of a part's rows must not be one number

// Axis 0 of all outputs; 0 if that is not one number.
int64_t fixed_rows(const Plan& plan) {
  int64_t rows = 0;
  for (const uint32_t output : plan.outputs) {
    const Shape& shape = plan.slots[output].type.shape;
    if (shape.rank() == 0 || !shape[0].known()) return 0;
    if (rows != 0 && rows != shape[0].value()) return 0;
    rows = shape[0].value();
  }
  return rows;
}

// A guess, that each axis 0 of this size is that of the rows, and its proof, by inference and
// separable_batch(). The proof uses fewer rows than the plan was built for: sizes that are equal to
// the rows by chance then differ from them.
class DynamicBatch {
 public:
  DynamicBatch(const Plan& plan, int64_t rows, std::vector<Tensor>& weights)
      : plan_(plan),
        rows_(rows),
        weights_(weights),
        sizes_(std::make_shared<SizeTable>(*plan.sizes)),
        symbol_(sizes_->fresh("batch")) {
    plan_.sizes = sizes_;
    plan_.arena_bytes.clear();
    for (Slot& slot : plan_.slots)
      if (slot.storage == Storage::kArena) slot.offset = 0;  // placed when sizes are bound
  }

  Result<Plan> run() {
    sizes_->set_bounds(symbol_, {.min = 1, .opt = 1, .max = rows_ - 1});
    if (!open_slots()) return refuse("some value does not store its rows consecutively");
    for (Step& step : plan_.steps) open_constant(step);
    const Result<uint32_t> symbol = separable_batch(plan_);
    if (!symbol) return refuse(symbol.reason());
    check_plan(plan_, weights_);
    sizes_->set_bounds(symbol_, {.min = 1, .opt = rows_, .max = rows_});
    plan_.batch_split = BatchSplit{.symbol = *symbol, .is_fixed = true};
    return std::move(plan_);
  }

 private:
  // In memory of its own, the rows of a value must be consecutive: only then does a view of a part
  // of each row stay within the row.
  bool open_slots() {
    const std::vector<bool> used = used_slots(plan_);
    for (size_t i = 0; i < plan_.slots.size(); ++i) {
      Slot& slot = plan_.slots[i];
      Shape& shape = slot.type.shape;
      if (!used[i] || slot.storage == Storage::kWeight || shape.rank() == 0 ||
          !(shape[0] == Size(rows_)))
        continue;
      shape[0] = 1;
      if (slot.storage != Storage::kView && !(slot.strides[0] == product(shape, *sizes_)))
        return false;
      shape[0] = symbol_;
    }
    for (size_t i = 0; i < plan_.slots.size(); ++i)
      if (!used[i] && !open_view(plan_.slots[i])) return false;
    return true;
  }

  // A value that only an observer reads may have its rows on any axis: the one whose stride is its
  // base's.
  bool open_view(Slot& view) {
    if (view.storage != Storage::kView) return true;
    const Slot& base = plan_.slots[view.base];
    if (base.type.shape.rank() == 0 || !(base.type.shape[0] == symbol_)) return true;
    Shape& shape = view.type.shape;
    for (int axis = 0; axis < shape.rank(); ++axis) {
      if (!(shape[axis] == Size(rows_) && view.strides[axis] == base.strides[0])) continue;
      shape[axis] = symbol_;
      return true;
    }
    return false;
  }

  // A constant shape of Reshape or Expand that contains the number of rows takes it from x instead.
  void open_constant(Step& step) {
    auto* const reshape = std::get_if<Reshape>(&step.op);
    if (!reshape && !std::holds_alternative<Expand>(step.op)) return;
    const Slot &x = plan_.slots[step.inputs[0]], &told = plan_.slots[step.inputs[1]];
    if (x.type.shape.rank() == 0 || !(x.type.shape[0] == symbol_) ||
        told.storage != Storage::kWeight || !is_row_major_weight(told, weights_[told.offset]))
      return;
    const auto old = weights_[told.offset].as<int64_t>();
    std::vector<int64_t> elements(old.begin(), old.end());
    if (elements.empty() || elements[0] != rows_) return;
    if (reshape) {
      if (std::ranges::find(elements, 0) != elements.end()) return;
      reshape->allow_zero = false;
    }
    elements[0] = reshape ? 0 : 1;
    Slot opened = told;
    opened.offset =
        index_of(Tensor::of<int64_t>(DataType::kI64, weights_[told.offset].dims(), elements));
    step.inputs[1] = static_cast<uint32_t>(plan_.slots.size());
    plan_.slots.push_back(std::move(opened));
  }

  // In the pool, where each weight is once.
  uint64_t index_of(Tensor weight) {
    const auto found = std::ranges::find(weights_, weight);
    if (found != weights_.end()) return static_cast<uint64_t>(found - weights_.begin());
    weights_.push_back(std::move(weight));
    return weights_.size() - 1;
  }

  Plan plan_;
  int64_t rows_;
  std::vector<Tensor>& weights_;
  std::shared_ptr<SizeTable> sizes_;  // those of plan_
  Size symbol_;
};

// Some kernels are made for one number of rows, such as oneDNN's. Why one refuses parts; empty if
// none does.
std::string why_kernels_refuse(const EngineFile& file, const Plan& plan) {
  const auto device = cpu_backend().open(plan.devices[0]);
  for (const Step& step : plan.steps) {
    const KernelEntry* entry = find_kernel(cpu_backend(), step.kernel);
    if (!entry) continue;  // SizeTensor
    const StepOperands operands = operands_of(file, plan, step);
    const Request request = request_of(plan, step, operands, *device);
    if (const KernelResult made = entry->make(request); !made)
      return fmt::format("{} of step \"{}\" runs no part of the batch: {}", step.kernel, step.name,
                         made.reason());
  }
  return {};
}

Result<Plan> make_dynamic(const Plan& plan, int64_t rows, EngineFile& file) {
  if (rows < kFewestRows)
    return refuse(fmt::format("batches of fewer than {} rows are not cut", kFewestRows));
  if (plan.devices.size() != 1 || !plan.bodies.empty())
    return refuse("the plan is not for the CPU alone, or has control flow");
  try {
    Result<Plan> made = DynamicBatch(plan, rows, file.weights).run();
    if (!made) return made;
    if (std::string why = why_kernels_refuse(file, *made); !why.empty())
      return refuse(std::move(why));
    return made;
  } catch (const Error& error) {
    return refuse(fmt::format("shape inference needs the number of rows: {}", error.what()));
  }
}

}  // namespace

Result<Plan> make_batch_dynamic(const Plan& plan, EngineFile& file) {
  const size_t own = file.weights.size();
  Result<Plan> made = make_dynamic(plan, fixed_rows(plan), file);
  if (!made)
    file.weights.erase(file.weights.begin() + static_cast<ptrdiff_t>(own), file.weights.end());
  return made;
}

void decide_batch_split(Plan& plan, EngineFile& file) {
  std::string why;
  if (!plan.appended_ports.empty()) {
    why = "runs append rows to the memory of its states";
  } else if (fixed_rows(plan) > 0) {
    Result<Plan> dynamic = make_batch_dynamic(plan, file);
    if (dynamic)
      plan = *std::move(dynamic);
    else
      why = dynamic.reason();
  } else {
    const Result<uint32_t> symbol = separable_batch(plan);
    if (symbol)
      plan.batch_split = BatchSplit{.symbol = *symbol};
    else
      why = symbol.reason();
  }
  plan.decisions.push_back(
      {std::string(kBatchSplit), plan.name,
       why.empty() ? fmt::format("a batch of {} rows may run in parts: no step mixes its rows",
                                 plan.sizes->text(port_shape(plan, plan.outputs[0])[0]))
                   : fmt::format("a batch stays whole: {}", why),
       !why.empty()});
}

}  // namespace anneal
