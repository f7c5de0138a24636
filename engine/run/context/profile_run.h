// ProfileRun: the run of an engine that has a plan for each profile. The dims of the inputs choose.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "anneal/core/tensor.h"
#include "anneal/engine/profiles.h"
#include "anneal/engine/run/context/split_run.h"

namespace anneal {

// The interface of SplitRun. Each profile that is used has memory of its own for activations. It
// keeps that until the budget's limit needs it for another one.
class ProfileRun {
 public:
  // only: the profile to use; empty: by the dims of the inputs. Fails with kInvalidArgument if
  // there is no such profile. plans and resources must outlive it.
  ProfileRun(std::span<const LoadedPlan> plans, const RunResources& resources, int64_t micro_batch,
             std::optional<size_t> only);

  void set_input(size_t index, const TensorView& memory);
  void unset_input(size_t index) { inputs_[index].reset(), has_run_ = false; }
  void set_output(size_t index, const TensorView& memory);
  void clear_output(size_t index);  // undoes it
  bool has_input(size_t index) const { return inputs_[index].has_value(); }
  const Dims& input_dims(size_t index) const { return inputs_[index]->dims; }
  // Chooses the plan and binds it. Fails with kInvalidArgument if no profile takes the inputs.
  void bind();
  void prepare(std::span<const Dims> input_dims);
  // Of the only profile that runs may take, if it has one size of the input.
  std::optional<Dims> only_dims(size_t index) const;
  // Of the plan that is bound.
  size_t profile() const { return now_; }
  // Whether the output may be the memory of the input: Plan::updated_ports.
  bool may_update(size_t input, size_t output) const;
  // Whether the output may be the memory of the input, with rows behind it: Plan::appended_ports.
  bool may_append(size_t input, size_t output) const;
  std::optional<Dims> output_dims(size_t index) const {
    return runs_[now_].run->output_dims(index);
  }
  void run(ThreadTeam& team) {
    start(team);
    finish(team);
  }
  void start(ThreadTeam& team, const std::function<void()>* inputs_read = nullptr);
  void finish(ThreadTeam& team);
  void profile(ThreadTeam& team, std::vector<CountedStep>& times);
  bool has_run() const { return has_run_ && runs_[now_].run->has_run(); }
  TensorView output(size_t index) const { return runs_[now_].run->output(index); }
  void observe(const Observer& observer);
  // Of all plans that have run, in the order in which runs added them.
  std::span<const std::string> remarks() const { return remarks_; }
  HeldMemory memory() const;
  size_t arena_bytes() const { return runs_[now_].run->arena_bytes(); }

 private:
  struct OneRun {
    std::unique_ptr<SplitRun> run;
    // What was set since it was bound.
    std::vector<bool> new_inputs, new_outputs;
    size_t remarks = 0;  // of those that it has: in remarks_
  };
  void make_run(size_t profile);
  size_t choose(std::span<const Dims> input_dims);
  void bind(size_t profile);
  // Calls body(); at the limit again, without the memory of the other profiles.
  template <class Body>
  void within_limit(size_t profile, Body&& body);
  void add_remarks();

  std::span<const LoadedPlan> plans_;
  const RunResources& resources_;
  const int64_t micro_batch_;
  Observer observer_;
  std::vector<OneRun> runs_;          // by profile
  std::vector<ProfileRange> ranges_;  // by profile
  std::optional<size_t> only_;
  std::vector<std::optional<TensorView>> inputs_, outputs_;  // the caller's
  std::vector<Dims> input_dims_;
  std::vector<std::optional<Dims>> wanted_dims_;  // for choose_profile()
  std::vector<std::string> remarks_;
  size_t now_ = 0;
  bool has_run_ = false;  // and nothing was set since
};

}  // namespace anneal
