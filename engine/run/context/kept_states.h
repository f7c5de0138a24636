// KeptStates: outputs that a context keeps as inputs of its next run (Plan::states).
#pragma once
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "anneal/engine/run/context/profile_run.h"
#include "anneal/engine/run/engine.h"
#include "anneal/engine/run/memory/held_memory.h"

namespace anneal {

// A state lies in memory of the context: of the engine's GPU where steps of the CPU do not use it,
// else of the host. A run reads one buffer and writes another, and they change places after it.
// One buffer is enough where the plan may update its input, and the sizes stay. If the application
// began the state with spare rows, a full buffer gets more rows. One buffer is also enough where
// the plan appends rows: it has room for them, and a full one is copied to another of 1.5 times the
// rows. The output of a run is kept also if the application gave the input.
class KeptStates {
 public:
  // ports: of all inputs. gpu: the number of the engine's GPU. All must outlive it.
  KeptStates(std::span<const LoadedPlan> plans, const RunResources& resources,
             std::span<const TensorInfo> ports, std::optional<int> gpu, ProfileRun& run);
  ~KeptStates();
  KeptStates(const KeptStates&) = delete;
  KeptStates& operator=(const KeptStates&) = delete;

  bool empty() const { return states_.empty(); }
  bool has_input(size_t input) const;
  bool has_output(size_t output) const;
  // Whether runs read the application's memory instead. REQUIRES: has_input(input)
  void set_given(size_t input, bool is_given);
  // Zeros of these sizes, or the default value of the input if all are open or as they must be. An
  // open size (-1) follows from the other inputs, or is the least that the engine takes. Fails with
  // kInvalidArgument on sizes that the input does not take. REQUIRES: as above
  void begin(size_t input, const Dims& dims);

  void place_inputs();   // before the run is bound. Fails with kLimit and kOutOfMemory
  void place_outputs();  // after that; binds the run again
  void take_results();   // of a run that came to its end
  // Dense and row-major, if need be a copy that lasts until the next run. Fails with kLimit and
  // kOutOfMemory. REQUIRES: run_.has_run()
  TensorView output(size_t output) const;
  void add_to(HeldMemory& held) const;
  std::string text() const;  // those of earlier runs, with their dims, for people

 private:
  struct State;
  State* of_input(size_t input) const;
  bool is_on_gpu(const State& state) const;
  bool begins_with_default(const State& state) const;
  Dims initial_dims(const State& state) const;
  TensorView view_of(const State& state, Buffer* memory, const Dims& dims) const;
  void release(std::unique_ptr<Buffer>& buffer) const;
  void ensure(const State& state, std::unique_ptr<Buffer>& buffer, size_t bytes) const;
  void set_input(State& state);
  void copy(std::byte* to, const std::byte* from, size_t bytes) const;
  void write_initial(State& state) const;
  struct Smaller {  // the buffer that a larger one has replaced
    State* state;
    std::unique_ptr<Buffer> memory;
    Dims dims;
  };
  std::optional<Smaller> enlarge(State& state);
  bool takes(std::span<const Smaller> larger);
  bool appends(const State& state) const;
  void make_room(State& state) const;
  bool place_output(State& state);

  std::span<const LoadedPlan> plans_;
  const RunResources& resources_;
  std::span<const TensorInfo> ports_;
  const std::optional<int> gpu_;
  ProfileRun& run_;
  std::vector<std::unique_ptr<State>> states_;
};

}  // namespace anneal
