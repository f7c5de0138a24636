#include "anneal/engine/run/sliced_run.h"

#include <algorithm>

#include "anneal/engine/run/row_slices.h"

namespace anneal {
namespace {

TensorView rows_of(TensorView view, int64_t begin, int64_t rows) {
  view.dims[0] = rows;
  view.data += begin * view.strides[0] * static_cast<int64_t>(size_of(view.dtype));
  return view;
}

void add_times(std::vector<StepTime>& all, const std::vector<StepTime>& slice) {
  if (all.empty()) {
    all = slice;
    return;
  }
  for (size_t i = 0; i < all.size(); ++i) {
    all[i].microseconds += slice[i].microseconds;
    all[i].times += slice[i].times;
  }
}

}  // namespace

SlicedRun::SlicedRun(const LoadedPlan& loaded, const RunResources& resources, int64_t rows_at_once)
    : run_(loaded, resources),
      resources_(resources),
      wanted_(rows_at_once),
      can_slice_(loaded.keeps_rows_apart),
      inputs_(loaded.plan->inputs.size()),
      outputs_(loaded.plan->outputs.size()),
      input_dims_(loaded.plan->inputs.size()),
      own_outputs_(loaded.plan->outputs.size()),
      results_(loaded.plan->outputs.size()) {}

void SlicedRun::set_input(size_t index, const TensorView& memory) {
  inputs_[index] = memory;
  run_.set_input(index, memory);
  has_run_ = false;
}

void SlicedRun::set_output(size_t index, const TensorView& memory) {
  outputs_[index] = memory;
  if (!is_sliced_) run_.set_output(index, memory);
  has_run_ = false;
}

const SlicedRun::Cut& SlicedRun::cut_of(std::span<const Dims> input_dims) {
  const auto known = std::ranges::find_if(
      cuts_, [&](const Cut& cut) { return std::ranges::equal(cut.input_dims, input_dims); });
  if (known != cuts_.end()) {
    std::rotate(cuts_.begin(), known, known + 1);
    return cuts_.front();
  }
  Cut cut{{input_dims.begin(), input_dims.end()}, 0, 0};
  for (size_t i = 0; i < input_dims.size(); ++i)
    if (input_has_rows(plan(), i)) cut.rows = input_dims[i][0];
  cut.at_once = rows_at_once(plan(), input_dims, resources_.threads);
  if (wanted_ > 0) cut.at_once = std::min(wanted_, cut.rows);
  // What is left over is of another shape, which must be kept, too.
  if (cut.at_once > 0 && cut.rows % cut.at_once != 0 && resources_.kept_shapes < 2)
    cut.at_once = cut.rows;
  if (cuts_.size() >= static_cast<size_t>(resources_.kept_shapes)) cuts_.pop_back();
  return *cuts_.insert(cuts_.begin(), std::move(cut));
}

void SlicedRun::set_slice(int64_t begin, int64_t rows) {
  for (size_t i = 0; i < inputs_.size(); ++i)
    run_.set_input(i, input_has_rows(plan(), i) ? rows_of(*inputs_[i], begin, rows) : *inputs_[i]);
}

void SlicedRun::bind() {
  const bool was_sliced = is_sliced_;
  is_sliced_ = false;
  if (can_slice_ && !is_observed_) {
    for (size_t i = 0; i < inputs_.size(); ++i) input_dims_[i] = inputs_[i]->dims;
    const Cut& cut = cut_of(input_dims_);
    is_sliced_ = cut.at_once < cut.rows;
    rows_ = cut.rows;
    at_once_ = cut.at_once;
  }
  if (is_sliced_) {
    set_slice(0, at_once_);
  } else if (was_sliced) {
    run_.clear_outputs();
    for (size_t i = 0; i < inputs_.size(); ++i) run_.set_input(i, *inputs_[i]);
    for (size_t i = 0; i < outputs_.size(); ++i)
      if (outputs_[i]) run_.set_output(i, *outputs_[i]);
  }
  run_.bind();
}

void SlicedRun::prepare(std::span<const Dims> input_dims) {
  has_run_ = false;
  const Cut* const cut = can_slice_ ? &cut_of(input_dims) : nullptr;
  if (cut == nullptr || cut->at_once == cut->rows) return run_.prepare(input_dims);
  for (const int64_t rows : {cut->rows % cut->at_once, cut->at_once}) {
    if (rows == 0) continue;
    std::vector<Dims> of_slice(input_dims.begin(), input_dims.end());
    for (size_t i = 0; i < of_slice.size(); ++i)
      if (input_has_rows(plan(), i)) of_slice[i][0] = rows;
    run_.prepare(of_slice);
  }
}

std::optional<Dims> SlicedRun::output_dims(size_t index) const {
  std::optional<Dims> dims = run_.output_dims(index);
  if (is_sliced_) (*dims)[0] = rows_;
  return dims;
}

// Of all rows: the caller's memory, or ours.
void SlicedRun::place_results() {
  for (size_t i = 0; i < results_.size(); ++i) {
    const Slot& slot = plan().slots[plan().outputs[i]];
    const Dims dims = *output_dims(i);
    if (outputs_[i]) {
      run_.check_output(i, *outputs_[i], dims);
      results_[i] = *outputs_[i];
      continue;
    }
    const size_t bytes = static_cast<size_t>(count(dims)) * size_of(slot.type.dtype);
    std::unique_ptr<Buffer>& own = own_outputs_[i];
    if (!own || own->size() < bytes) {
      own.reset();
      own = resources_.devices.back()->allocate(std::max<size_t>(bytes, 1));
    }
    results_[i] = row_major_view(slot.type.dtype, dims, own->data());
  }
}

template <class Run>
void SlicedRun::for_slices(Run&& run) {
  has_run_ = false;
  place_results();
  for (int64_t begin = 0; begin < rows_; begin += at_once_) {
    const int64_t rows = std::min(at_once_, rows_ - begin);
    set_slice(begin, rows);
    for (size_t i = 0; i < results_.size(); ++i)
      run_.set_output(i, rows_of(results_[i], begin, rows));
    run_.bind();
    run();
  }
  has_run_ = true;
}

void SlicedRun::run(Team& team) {
  if (!is_sliced_) return run_.run(team);
  for_slices([&] { run_.run(team); });
}

void SlicedRun::profile(Team& team, std::vector<StepTime>& times) {
  if (!is_sliced_) return run_.profile(team, times);
  std::vector<StepTime> all;
  for_slices([&] {
    std::vector<StepTime> slice;
    run_.profile(team, slice);
    add_times(all, slice);
  });
  times.insert(times.end(), all.begin(), all.end());
}

TensorView SlicedRun::output(size_t index) const {
  return is_sliced_ ? results_[index] : run_.output(index);
}

void SlicedRun::observe(const Observer& observer) {
  is_observed_ = static_cast<bool>(observer);
  run_.observe(observer);
}

size_t SlicedRun::memory_bytes() const {
  size_t bytes = run_.memory_bytes();
  for (const auto& own : own_outputs_) bytes += own ? own->size() : 0;
  return bytes;
}

}  // namespace anneal
