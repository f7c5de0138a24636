#include "anneal/engine/run/open_rows.h"

#include <algorithm>
#include <memory>
#include <span>

#include "anneal/engine/plan_check.h"
#include "anneal/engine/run/row_slices.h"

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
// keeps_rows_apart(). The proof is one for fewer rows than the plan was built for: sizes that are
// equal to all of them by chance are none of theirs.
class Opening {
 public:
  Opening(const Plan& plan, int64_t rows, std::vector<Tensor>& weights)
      : plan_(plan),
        rows_(rows),
        weights_(weights),
        sizes_(std::make_shared<SizeTable>(*plan.sizes)),
        symbol_(sizes_->fresh("rows")) {
    plan_.sizes = sizes_;
    plan_.decisions.clear();
    plan_.arena_bytes.clear();
  }

  std::optional<Plan> run() {
    sizes_->set_bounds(symbol_, {.min = 1, .opt = 1, .max = rows_ - 1});
    if (!open_slots()) return std::nullopt;
    for (Step& step : plan_.steps) open_constant(step);
    if (!keeps_rows_apart(plan_)) return std::nullopt;
    check_plan(plan_, weights_);
    sizes_->set_bounds(symbol_, {.min = 1, .opt = rows_, .max = rows_});
    return std::move(plan_);
  }

 private:
  // Of memory of its own, one row must lie behind the other: what a view takes of a row lies in it
  // only then.
  bool open_slots() {
    const std::vector<bool> used = used_slots(plan_);
    for (size_t i = 0; i < plan_.slots.size(); ++i) {
      Slot& slot = plan_.slots[i];
      Shape& shape = slot.type.shape;
      if (!used[i] || slot.storage == Storage::kWeight || shape.rank() == 0 ||
          !(shape[0] == Size(rows_)))
        continue;
      shape[0] = 1;
      if (slot.storage != Storage::kView && !(slot.strides[0] == sizes_->product(shape)))
        return false;
      shape[0] = symbol_;
    }
    for (size_t i = 0; i < plan_.slots.size(); ++i)
      if (!used[i] && !open_view(plan_.slots[i])) return false;
    return true;
  }

  // What only an observer reads may have its rows on any axis: that whose stride is its base's.
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

  // A constant that tells Reshape or Expand how many rows there are tells it to take those of x.
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
    opened.offset = weights_.size();
    weights_.push_back(Tensor::of<int64_t>(DataType::kI64, weights_[told.offset].dims(), elements));
    step.inputs[1] = static_cast<uint32_t>(plan_.slots.size());
    plan_.slots.push_back(std::move(opened));
  }

  Plan plan_;
  int64_t rows_;
  std::vector<Tensor>& weights_;
  std::shared_ptr<SizeTable> sizes_;  // those of plan_
  Size symbol_;
};

}  // namespace

std::optional<Plan> open_rows(const Plan& plan, std::vector<Tensor>& weights) {
  const int64_t rows = fixed_rows(plan);
  if (rows < kFewestRows || plan.devices.size() != 1 || !plan.bodies.empty()) return std::nullopt;
  const auto own = static_cast<ptrdiff_t>(weights.size());
  std::optional<Plan> opened;
  try {
    opened = Opening(plan, rows, weights).run();
  } catch (const Error&) {
    // Not proved: inference needs the number.
  }
  if (!opened) weights.erase(weights.begin() + own, weights.end());
  return opened;
}

}  // namespace anneal
