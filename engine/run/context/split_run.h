// SplitRun: the run of an engine's plan, with the whole batch at once or in micro-batches.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "anneal/engine/run/context/batch_split.h"
#include "anneal/engine/run/plan_run.h"

namespace anneal {

// The interface of PlanRun. A batch is split if the plan allows it (Plan::batch_split) and the run
// has no observer. Slices that threads run side by side have a PlanRun of one thread
// each.
class SplitRun {
 public:
  // micro_batch: of a batch; 0: as many as batch_split.h says. Plan and resources must outlive it.
  SplitRun(const LoadedPlan& loaded, const RunResources& resources, int64_t micro_batch);

  const Plan& plan() const { return run_.plan(); }
  void set_input(size_t index, const TensorView& memory);
  void unset_input(size_t index) { inputs_[index].reset(), has_run_ = false; }
  void set_output(size_t index, const TensorView& memory);
  void clear_output(size_t index);  // undoes it
  bool has_input(size_t index) const { return inputs_[index].has_value(); }
  const Dims& input_dims(size_t index) const { return inputs_[index]->dims; }
  void bind();
  void prepare(std::span<const Dims> input_dims);
  std::optional<Dims> output_dims(size_t index) const;
  void run(ThreadTeam& team) {
    start(team);
    finish(team);
  }
  // A batch that is cut has run when start() returns.
  void start(ThreadTeam& team, const std::function<void()>* inputs_read = nullptr);
  void finish(ThreadTeam& team);
  void profile(ThreadTeam& team, std::vector<CountedStep>& times);
  bool has_run() const { return has_run_ && (is_split_ || run_.has_run()); }
  TensorView output(size_t index) const;
  void observe(const Observer& observer);
  // Slices that threads run alone are on CPUs and have no remarks.
  std::span<const std::string> remarks() const { return run_.remarks(); }
  HeldMemory memory() const;
  size_t arena_bytes() const;

 private:
  // Kept for inputs of dims that return.
  struct KnownCut {
    std::vector<Dims> input_dims;
    RowCut cut;
  };
  RowCut cut_of(std::span<const Dims> input_dims);
  void set_slice(PlanRun& run, int64_t begin, int64_t rows);  // of the inputs
  void place_results();
  template <class Visit>
  void for_shapes(const RowCut& cut, Visit&& visit);
  template <class Run>
  void for_slices(ThreadTeam& team, Run&& run);

  const LoadedPlan& loaded_;
  const RunResources& resources_;
  const RunResources resources_alone_;           // of one thread
  PlanRun run_;                                  // of all threads together
  std::vector<std::unique_ptr<PlanRun>> alone_;  // by thread; none until a batch is so cut
  int64_t micro_batch_;                          // 0: not told
  bool can_split_;
  bool is_observed_ = false;
  std::vector<std::optional<TensorView>> inputs_, outputs_;  // the caller's
  std::vector<KnownCut> cuts_;                               // used last first
  std::vector<Dims> input_dims_;
  // As bound:
  bool is_split_ = false;
  RowCut cut_;
  std::vector<std::unique_ptr<Buffer>> own_outputs_;  // of all rows, where the caller gave none
  std::vector<TensorView> results_;                   // of all rows
  bool has_run_ = false;                              // and nothing was set or cut otherwise since
};

}  // namespace anneal
