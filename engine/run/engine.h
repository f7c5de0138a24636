// Loading and running an engine. An application that runs engines needs only this header.
#pragma once
#include <cstddef>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "anneal/core/application/hooks.h"
#include "anneal/core/error.h"
#include "anneal/core/tensor.h"
#include "anneal/engine/run/stream.h"

namespace anneal {

struct DebugOptions;  // engine/run/debug.h

// An input or output of an engine.
struct TensorInfo {
  std::string name;
  DataType dtype = DataType::kF32;
  Dims dims = {};                           // -1: a size that is open until inputs are set
  std::vector<std::string> dim_names = {};  // of every size: "N", "3", "(H + 1)//2"
  Dims min_dims = {}, max_dims = {};        // the allowed range; equal to dims where they are known
  // The value of the input in runs that do not set it. Without one, every run must set the input.
  std::optional<Tensor> default_value = {};
  // The output that a context keeps as the value of this input in its next run; empty: none.
  std::string state_output = {};
};

struct EngineOptions {
  // Selects the plan: "cpu", "cpu:avx2", "cuda", "cuda:1", "emulated" (the GPU plan on the host,
  // for tests), "emulated:counting" (also counts memory accesses). "auto": a GPU if the engine has
  // a plan for one and the machine has one, else the CPU.
  std::string device = "auto";
  bool map = true;  // false: read the file instead of mapping it
  // Maximum number of threads while loading, the caller's included: they verify checksums and pack
  // weights. 0: one per core. The engine does not depend on it.
  int threads = 0;
  const DebugOptions* debug = nullptr;  // read by load() only; null: its defaults
  // Shared libraries with kernels of operators that Anneal does not have
  // (engine/run/library/c_kernels.h).
  std::vector<std::string> libraries = {};
  // Gives the host memory of weights that are not mapped, and of all contexts; null: the system.
  // gpu_allocator: weights, activations and workspaces on the GPU; null: the driver.
  std::shared_ptr<Allocator> allocator = {}, gpu_allocator = {};
  LogSink log = {};  // what was loaded, and warnings of loading and of all runs
  // The file of weights of an engine that does not hold them (BuildOptions::weights_path).
  std::string weights = {};
};

// A loaded plan with its kernels. Immutable: threads share it, each with its own ExecutionContext.
class Engine {
 public:
  // An engine file is untrusted input, so all of it is checked before it is used. Fails with kIo,
  // with kIncompatiblePlan if the file is damaged, of another version or has no plan for the
  // device, with kDevice, and with kInvalidArgument on fewer than 0 threads.
  static std::shared_ptr<const Engine> load(const std::string& path,
                                            const EngineOptions& options = {});
  // An engine file in memory. The engine reads its weights in place and keeps owner as long as it
  // lives; the bytes must not change. Without an owner, or if they are not aligned to 64 bytes, it
  // copies them first. options.map is ignored.
  static std::shared_ptr<const Engine> load(std::span<const std::byte> bytes,
                                            std::shared_ptr<const void> owner,
                                            const EngineOptions& options = {});
  ~Engine();

  std::span<const TensorInfo> inputs() const;   // in the model's order
  std::span<const TensorInfo> outputs() const;  // in the model's order
  std::string device() const;  // the device, as text for people: "NVIDIA H100 80GB HBM3, sm_90"
  // One sentence for each step whose planned kernel this machine lacks, with its replacement.
  std::span<const std::string> load_warnings() const;

 private:
  friend class ExecutionContext;
  friend struct EngineInternals;  // engine/run/engine_state.h
  struct State;
  explicit Engine(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

struct ContextOptions {
  int threads = 0;  // maximum for one run, the caller's included; 0: one per core
  // Number of input shapes whose sizes, memory places and prepared kernels the context keeps, so
  // that a run at a known shape prepares nothing; at least one. The least recently used is dropped.
  int shape_cache_size = 8;
  // Limit in bytes for activations, workspaces, staging and outputs on all devices; 0: none. Shapes
  // that need more fail with kLimit before memory is allocated for them.
  size_t max_memory = 0;
  // Whether a thread that waits for a GPU keeps its core busy. Otherwise it sleeps, and wakes some
  // microseconds after the GPU is done.
  bool spin = false;
  // Whether the constructor prepares opt, max and min of each profile, at most shape_cache_size
  // of these three shapes, and allocates the arena of the largest.
  bool prewarm_profiles = true;
  // Rows per micro-batch (a row is an index of axis 0); 0: chosen so that activations fit in the
  // caches. Needs an engine whose output rows depend on the same input row only, built for any
  // number of rows from 1 on, or for a fixed number from 3 on. Observed runs are not divided.
  int64_t micro_batch = 0;
  // The index of the profile to use; -1: of those that accept the inputs, the one whose max shapes
  // have the fewest elements. Each has memory of its own, as far as max_memory allows.
  int profile = -1;
  const DebugOptions* debug = nullptr;  // read by the constructor only; null: its defaults
};

// The shape of an input, by name.
struct InputShape {
  std::string_view name;
  Dims dims;
};

// The time of a step in one run. The entry of an If, Loop or Scan excludes its body, whose steps
// follow, each summed over all iterations. If threads run slices of a batch in parallel, the time
// is the sum over the slices divided by the number of threads.
struct StepTime {
  std::string_view step, kernel;
  double microseconds;
  int64_t times = 1;  // how often it ran
};

// The memory and bindings of one inference at a time, small compared with its Engine. One thread at
// a time may use it. Between enqueue() and wait() it is busy: every call but wait() and is_done()
// fails with kInvalidArgument. A busy context may be moved; the destructor waits for its run.
class ExecutionContext {
 public:
  // Fails with kInvalidArgument (no engine, a number too small), kLimit (no declared shape fits).
  explicit ExecutionContext(std::shared_ptr<const Engine> engine,
                            const ContextOptions& options = {});
  ~ExecutionContext();
  ExecutionContext(ExecutionContext&&) noexcept;
  ExecutionContext& operator=(ExecutionContext&&) noexcept;

  // Sets the memory of an input: of the host, with any strides, or of the engine's GPU, dense and
  // row-major. The caller keeps ownership: it must be valid until the last run that reads it; that
  // of a state (TensorInfo::state_output) is for one run. TensorView() undoes it: runs then read
  // the default value or the initial state, else they fail. Fails with kInvalidArgument on a wrong
  // name, element type, rank or size; with kUnsupported on other memory of a GPU.
  void set_input(std::string_view name, const ConstTensorView& memory);
  // Optional: the memory that runs write an output to, set after inputs without a default value.
  // TensorView() undoes it. Runs fail if it overlaps another output, or an input it does not update
  // ("State" in docs/deployment.md). Refuses a size that depends on values. Fails as set_input().
  void set_output(std::string_view name, const TensorView& memory);
  // Prepares a run at these shapes: infers sizes, places memory and prepares kernels. An input that
  // is not named keeps the shape that was set last, else that of its default value, else the only
  // shape it allows. Invalidates the last run's outputs. Fails as set_input() and run() do.
  void prepare(std::span<const InputShape> inputs);
  // The dims of an output for the inputs bound so far; -1: depends on values.
  Dims output_dims(std::string_view name) const;
  // Runs all steps, after the work on the default stream if memory of a GPU is bound, and waits.
  // Allocates nothing if shapes and memory are those of the last run and no size depends on values.
  // Fails with kInvalidArgument if inputs disagree about a size that they share ("N").
  void run();
  // Starts a run on the stream, after the stream's earlier runs, and returns. Fails at once if
  // inputs are missing or disagree; wait() throws an error of the run. inputs_read is called once,
  // from any thread, when the memory of all inputs may be written again, also if the run fails; it
  // must not throw, and must not use the context or the stream.
  //
  // On a GPU's stream, memory of the GPU and page-locked memory are read and written in the
  // stream's order; on one of Stream::make(), after the work on the default stream. Other host
  // memory is read before enqueue() returns, and written when wait() returns. enqueue() waits for
  // steps on the CPU, and for all earlier work if these follow steps of the GPU or use its memory.
  void enqueue(const Stream& stream, std::function<void()> inputs_read);
  // As above; the future is ready when the memory of all inputs may be written again.
  std::future<void> enqueue(const Stream& stream);
  void wait();           // for the end of the enqueued run, if any; throws its error
  bool is_done() const;  // whether wait() would return at once
  // As run(), with the time of each step.
  std::vector<StepTime> profile();
  // After run() or profile(), or wait() for an enqueue(): the memory of set_output(), else memory
  // of the context, dense and row-major, valid until the next run, prepare() or set. Fails with
  // kInvalidArgument if the last run failed or a port was set since, and with kLimit (states only).
  TensorView output(std::string_view name) const;
  // One sentence for each sequence of steps that the GPU's driver could not capture as a CUDA
  // graph, and for each port in memory of the GPU that is copied through the host, with the reason:
  // runs are slower, with the same results. Valid until the next run.
  std::span<const std::string> run_warnings() const;

  size_t memory_bytes() const;  // arena, workspaces, cached shapes, staging, own outputs
  size_t arena_bytes() const;   // activations only, for the bound shapes; 0 before a run

 private:
  friend struct EngineInternals;  // engine/run/engine_state.h
  struct State;
  State& idle() const;  // fails while it is busy
  std::unique_ptr<State> state_;
};

}  // namespace anneal
