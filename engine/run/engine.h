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
  // The value of an input that is not set. Without one, each run needs the input to be set.
  std::optional<Tensor> default_value = {};
};

struct EngineOptions {
  // "cpu", "cpu:avx2", "cuda", "cuda:1", "emulated" (the CUDA plan, on the host: for tests),
  // "emulated:counting" (the same, counting memory accesses); the plan is chosen by it. "auto": a
  // GPU if the engine has a plan for one and the machine has one, else the CPU.
  std::string device = "auto";
  bool map = true;  // false: read the file instead of mapping it
  // Most threads that load, the caller's included: they compare checksums and pack weights; 0: one
  // per core. The engine is the same for any number.
  int threads = 0;
  const DebugOptions* debug = nullptr;  // read by load() only; null: its defaults
};

// A loaded plan with its kernels. Immutable: share one Engine between any number of threads, give
// each thread its own context.
class Engine {
 public:
  // An engine file is untrusted input: it is checked before anything of it is used. Fails with kIo,
  // with kIncompatiblePlan if the file is damaged, of another version or has no plan for the
  // device, with kDevice, and with kInvalidArgument on fewer than 0 threads.
  static std::shared_ptr<const Engine> load(const std::string& path,
                                            const EngineOptions& options = {});
  // An engine file in memory. The engine reads its weights in place and keeps owner as long as it
  // lives; the bytes must not change. Without an owner, or if they are not aligned to 64 bytes, it
  // copies them first. options.map has no meaning here.
  static std::shared_ptr<const Engine> load(std::span<const std::byte> bytes,
                                            std::shared_ptr<const void> owner,
                                            const EngineOptions& options = {});
  ~Engine();

  std::span<const TensorInfo> inputs() const;   // in the model's order
  std::span<const TensorInfo> outputs() const;  // in the model's order
  std::string device() const;  // what it runs on, for people: "NVIDIA H100 80GB HBM3, sm_90"
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
  int threads = 0;  // most threads of one run, the caller's included; 0: one per core
  // Number of input shapes whose sizes, memory places and prepared kernels the context keeps, so
  // that a run at a known shape prepares nothing; at least one. The least recently used is dropped.
  int shape_cache_size = 8;
  // Most bytes of activations, workspaces, staging and outputs on all devices; 0: no limit. Shapes
  // that need more fail with kLimit before memory is allocated for them.
  size_t max_memory = 0;
  // Whether a thread that waits for a device other than the CPU keeps its core busy. Otherwise it
  // sleeps, and wakes some microseconds after the device is done.
  bool spin = false;
  // Whether the constructor prepares the shapes declared at build (opt, max and min; the first
  // shape_cache_size of them), and allocates the arena of the largest. Other shapes are prepared by
  // the first run that uses them.
  bool prewarm_profiles = true;
  // Rows per micro-batch (a row is an index of axis 0); 0: chosen so that activations fit in the
  // caches. Needs an engine whose output rows depend on the same input row only, built for any
  // number of rows from 1 on, or for a fixed number from 3 on. Each thread runs micro-batches by
  // itself, with activations of its own; all threads together run the remainder. Observed runs are
  // not divided.
  int64_t micro_batch = 0;
  const DebugOptions* debug = nullptr;  // read by the constructor only; null: its defaults
};

// The shape of an input, by name.
struct InputShape {
  std::string_view name;
  Dims dims;
};

// The time of a step in one run. A step of control flow has its own time alone; the steps of its
// bodies follow it, each with the sum of all iterations. Where threads run slices of a batch side
// by side, it is the sum of the slices divided by the number of threads.
struct StepTime {
  std::string_view step, kernel;
  double microseconds;
  int64_t times = 1;  // how often it ran
};

// The memory and the bindings of one inference at a time. One thread at a time may use it; cheap
// beside its Engine. Between enqueue() and wait() it is busy: every call but wait() and is_done()
// fails with kInvalidArgument. A busy context may be moved; the destructor waits for its run.
class ExecutionContext {
 public:
  // Fails with kInvalidArgument without an engine, and on fewer than 0 threads or rows.
  explicit ExecutionContext(std::shared_ptr<const Engine> engine,
                            const ContextOptions& options = {});
  ~ExecutionContext();
  ExecutionContext(ExecutionContext&&) noexcept;
  ExecutionContext& operator=(ExecutionContext&&) noexcept;

  // Sets the memory of an input, with any strides. The caller keeps ownership: the memory must be
  // valid until the last run that reads it, or until other memory is set. Fails with
  // kInvalidArgument on a wrong name, element type, rank or size, naming the input and the type and
  // shape that the engine accepts; with kUnsupported, naming place and device, on memory of a GPU.
  void set_input(std::string_view name, const ConstTensorView& memory);
  // As if the input had never been set: runs read its default value, or ask for it to be set. Fails
  // with kInvalidArgument on a wrong name.
  void clear_input(std::string_view name);
  // Optional: the memory that runs write an output to. Outputs without it live in memory of the
  // context. All inputs without a default value must be set before. An output whose size depends on
  // values has no size before the run, and is refused. Fails as set_input() does.
  void set_output(std::string_view name, const TensorView& memory);
  // Prepares a run at these shapes: infers sizes, places memory and prepares kernels. An input that
  // is not named keeps the shape that was set last, else that of its default value, else its only
  // one. Invalidates the outputs of the last run. Fails as set_input() and run() do.
  void prepare(std::span<const InputShape> inputs);
  // The dims an output will have with the inputs bound so far; -1 where values decide.
  Dims output_dims(std::string_view name) const;
  // Runs all steps and waits. Allocates nothing when shapes are as in the last run and no size
  // depends on values. Sizes that disagree (two inputs of the same symbol) fail with
  // kInvalidArgument.
  void run();
  // The same without waiting: the run is work of the stream, in order. Inputs that are missing or
  // disagree fail at once; an error of the run is thrown by wait(). inputs_read is called once,
  // from any thread, when the memory of all inputs may be written again, also if the run fails; it
  // must not throw, and must not use the context or the stream.
  //
  // On a GPU's stream the inputs are read before enqueue() returns, and outputs are in place after
  // wait(): an input that another run writes needs that run's wait() first. enqueue() waits for the
  // steps of the engine that run on the CPU.
  void enqueue(const Stream& stream, std::function<void()> inputs_read);
  // The same: the future is ready when the memory of all inputs may be written again.
  std::future<void> enqueue(const Stream& stream);
  void wait();           // until the enqueued run has ended; throws its error; returns if none is
  bool is_done() const;  // whether wait() would return at once
  // As run(), with the time of each step.
  std::vector<StepTime> profile();
  // An output of the last run: the memory that set_output() was given, else memory of the context,
  // dense and row-major, valid until the next run(), profile(), prepare() or set. Fails with
  // kInvalidArgument unless the last run came to its end and nothing was set since.
  TensorView output(std::string_view name) const;
  // One sentence for each sequence of steps that a GPU's driver did not capture as a graph, with
  // the reason: all later runs launch these steps one by one, with the same results. Valid until
  // the next run() or profile(), which may add sentences.
  std::span<const std::string> run_warnings() const;

  size_t memory_bytes() const;  // of arena, workspaces, known shapes, staging and own outputs
  size_t arena_bytes() const;   // of activations alone, for the shapes bound; 0 before a run

 private:
  friend struct EngineInternals;  // engine/run/engine_state.h
  struct State;
  State& idle() const;  // fails while it is busy
  std::unique_ptr<State> state_;
};

}  // namespace anneal
