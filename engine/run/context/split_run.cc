#include "anneal/engine/run/context/split_run.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "anneal/core/parallel.h"

namespace anneal {
namespace {

TensorView rows_of(TensorView view, int64_t begin, int64_t rows) {
  view.dims[0] = rows;
  view.data += begin * view.strides[0] * static_cast<int64_t>(size_of(view.dtype));
  return view;
}

void add_times(std::vector<CountedStep>& all, const std::vector<CountedStep>& slice,
               int side_by_side) {
  for (size_t i = 0; i < slice.size(); ++i) {
    if (i == all.size()) all.push_back({{slice[i].step, slice[i].kernel, 0, 0}});
    all[i].microseconds += slice[i].microseconds / side_by_side;
    all[i].times += slice[i].times;
    add_counts(all[i].functions, slice[i].functions);
  }
}

RunResources of_one_thread(RunResources resources) {
  resources.threads = 1;
  return resources;
}

}  // namespace

SplitRun::SplitRun(const LoadedPlan& loaded, const RunResources& resources, int64_t micro_batch)
    : loaded_(loaded),
      resources_(resources),
      resources_alone_(of_one_thread(resources)),
      run_(loaded, resources),
      micro_batch_(micro_batch),
      can_split_(loaded.plan->batch_split.has_value()),
      inputs_(loaded.plan->inputs.size()),
      outputs_(loaded.plan->outputs.size()),
      input_dims_(loaded.plan->inputs.size()),
      own_outputs_(loaded.plan->outputs.size()),
      results_(loaded.plan->outputs.size()) {}

void SplitRun::set_input(size_t index, const TensorView& memory) {
  inputs_[index] = memory;
  run_.ports().set_input(index, memory);
  has_run_ = false;
}

void SplitRun::set_output(size_t index, const TensorView& memory) {
  outputs_[index] = memory;
  if (!is_split_) run_.ports().set_output(index, memory);
  has_run_ = false;
}

void SplitRun::clear_output(size_t index) {
  outputs_[index].reset();
  run_.ports().clear_output(index);
  has_run_ = false;
}

RowCut SplitRun::cut_of(std::span<const Dims> input_dims) {
  if (!can_split_ || is_observed_) return {};
  const auto known = std::ranges::find_if(
      cuts_, [&](const KnownCut& each) { return std::ranges::equal(each.input_dims, input_dims); });
  if (known != cuts_.end()) {
    std::rotate(cuts_.begin(), known, known + 1);
    return cuts_.front().cut;
  }
  RowCut cut = cut_rows(plan(), input_dims, resources_.threads, micro_batch_);
  // The last slice may be of another shape, which must be kept, too.
  const int64_t rest = cut.rows - cut.rows_alone;
  if (rest > 0 && rest % cut.together != 0 && resources_.shape_cache_size < 2) cut.together = rest;
  if (cuts_.size() >= static_cast<size_t>(resources_.shape_cache_size)) cuts_.pop_back();
  cuts_.insert(cuts_.begin(), {{input_dims.begin(), input_dims.end()}, cut});
  return cut;
}

// Calls visit(run, begin, rows) for one slice of each run that the cut needs and each shape it has.
template <class Visit>
void SplitRun::for_shapes(const RowCut& cut, Visit&& visit) {
  if (cut.rows_alone > 0) {
    while (alone_.size() < static_cast<size_t>(resources_.threads))
      alone_.push_back(std::make_unique<PlanRun>(loaded_, resources_alone_));
    for (const auto& run : alone_) visit(*run, 0, cut.alone);
  }
  if (cut.together == 0) return;
  const int64_t rest = (cut.rows - cut.rows_alone) % cut.together;
  if (rest != 0) visit(run_, cut.rows - rest, rest);
  visit(run_, cut.rows_alone, cut.together);
}

void SplitRun::set_slice(PlanRun& run, int64_t begin, int64_t rows) {
  for (size_t i = 0; i < inputs_.size(); ++i)
    run.ports().set_input(
        i, input_has_rows(plan(), i) ? rows_of(*inputs_[i], begin, rows) : *inputs_[i]);
}

void SplitRun::bind() {
  for (size_t i = 0; i < inputs_.size(); ++i) input_dims_[i] = inputs_[i]->dims;
  cut_ = cut_of(input_dims_);
  const bool was_split = std::exchange(is_split_, !cut_.is_whole());
  if (was_split != is_split_) has_run_ = false;
  if (is_split_)
    return for_shapes(cut_, [&](PlanRun& run, int64_t begin, int64_t rows) {
      set_slice(run, begin, rows);
      run.bind();
    });
  if (was_split) {
    run_.ports().clear_outputs();
    for (size_t i = 0; i < inputs_.size(); ++i) run_.ports().set_input(i, *inputs_[i]);
    for (size_t i = 0; i < outputs_.size(); ++i)
      if (outputs_[i]) run_.ports().set_output(i, *outputs_[i]);
  }
  run_.bind();
}

void SplitRun::prepare(std::span<const Dims> input_dims) {
  has_run_ = false;
  const RowCut cut = cut_of(input_dims);
  if (cut.is_whole()) return run_.prepare(input_dims);
  for_shapes(cut, [&](PlanRun& run, int64_t, int64_t rows) {
    std::vector<Dims> of_slice(input_dims.begin(), input_dims.end());
    for (size_t i = 0; i < of_slice.size(); ++i)
      if (input_has_rows(plan(), i)) of_slice[i][0] = rows;
    run.prepare(of_slice);
  });
}

std::optional<Dims> SplitRun::output_dims(size_t index) const {
  if (!is_split_) return run_.output_dims(index);
  std::optional<Dims> dims = (cut_.rows_alone > 0 ? *alone_[0] : run_).output_dims(index);
  (*dims)[0] = cut_.rows;
  return dims;
}

// Of all rows: the caller's memory, or ours.
void SplitRun::place_results() {
  for (size_t i = 0; i < results_.size(); ++i) {
    const Slot& slot = plan().slots[plan().outputs[i]];
    const Dims dims = *output_dims(i);
    if (outputs_[i]) {
      run_.ports().check_output(i, *outputs_[i], dims);
      results_[i] = *outputs_[i];
      continue;
    }
    const size_t bytes = static_cast<size_t>(count(dims)) * size_of(slot.type.dtype);
    std::unique_ptr<Buffer>& own = own_outputs_[i];
    if (!own || own->size() < bytes) {
      own.reset();
      own = resources_.budget->allocate(*resources_.devices.back(), std::max<size_t>(bytes, 1));
    }
    results_[i] = row_major_view(slot.type.dtype, dims, own->data());
  }
}

// Calls run(its, team) for each slice, its: the run that is bound to it.
template <class Run>
void SplitRun::for_slices(ThreadTeam& team, Run&& run) {
  place_results();
  const auto bind_slice = [&](PlanRun& its, int64_t begin, int64_t rows) {
    set_slice(its, begin, rows);
    for (size_t i = 0; i < results_.size(); ++i)
      its.ports().set_output(i, rows_of(results_[i], begin, rows));
    its.bind();
  };
  // Which threads get slices is decided while running, when nothing may be allocated any more.
  if (cut_.rows_alone > 0)
    for (const auto& each : alone_) {
      bind_slice(*each, 0, cut_.alone);
      if (!each->place_staging()) break;  // nor do the others need any
    }
  if (cut_.rows_alone > 0)
    team.for_ranges(cut_.rows_alone / cut_.alone, 1, [&](int64_t slice, int64_t end) {
      ThreadTeam nobody_else(1);
      PlanRun& own = *alone_[static_cast<size_t>(team.thread())];
      for (; slice < end; ++slice) {
        bind_slice(own, slice * cut_.alone, cut_.alone);
        run(own, nobody_else);
      }
    });
  for (int64_t begin = cut_.rows_alone; begin < cut_.rows; begin += cut_.together) {
    bind_slice(run_, begin, std::min(cut_.together, cut_.rows - begin));
    run(run_, team);
  }
}

void SplitRun::start(ThreadTeam& team, const std::function<void()>* inputs_read) {
  has_run_ = false;
  if (!is_split_) return run_.start(team, inputs_read);
  for_slices(team, [](PlanRun& run, ThreadTeam& its_team) { run.run(its_team); });
  if (inputs_read != nullptr) (*inputs_read)();
}

void SplitRun::finish(ThreadTeam& team) {
  if (!is_split_) run_.finish(team);
  has_run_ = true;
}

void SplitRun::profile(ThreadTeam& team, std::vector<CountedStep>& times) {
  has_run_ = false;
  if (is_split_) {
    std::mutex mutex;
    std::vector<CountedStep> all;
    for_slices(team, [&](PlanRun& run, ThreadTeam& its_team) {
      std::vector<CountedStep> slice;
      run.profile(its_team, slice);
      const std::lock_guard lock(mutex);
      add_times(all, slice, &run == &run_ ? 1 : team.size());
    });
    times.insert(times.end(), all.begin(), all.end());
  } else {
    run_.profile(team, times);
  }
  has_run_ = true;
}

TensorView SplitRun::output(size_t index) const {
  return is_split_ ? results_[index] : run_.output(index);
}

void SplitRun::observe(const Observer& observer) {
  is_observed_ = static_cast<bool>(observer);
  run_.observe(observer);
}

HeldMemory SplitRun::memory() const {
  HeldMemory held = run_.memory();
  for (const auto& run : alone_) held += run->memory();
  for (const auto& own : own_outputs_) held.ports += own ? own->size() : 0;
  return held;
}

size_t SplitRun::arena_bytes() const {
  const bool is_alone = is_split_ && cut_.rows_alone > 0;
  size_t bytes = is_alone && cut_.together == 0 ? 0 : run_.arena_bytes();
  if (is_alone)
    for (const auto& run : alone_) bytes += run->arena_bytes();
  return bytes;
}

}  // namespace anneal
