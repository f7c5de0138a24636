// Session: an ExecutionContext whose inputs and outputs are arrays of Python.
#pragma once
#include <nanobind/nanobind.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "anneal/engine/run/engine.h"
#include "anneal/engine/run/stream.h"
#include "anneal/python/src/arrays.h"
#include "anneal/python/src/calls.h"
#include "anneal/python/src/python_errors.h"

namespace anneal::python {

// What the sessions of an engine share. Callers have the GIL when one is made and destroyed.
struct SharedEngine {
  explicit SharedEngine(std::shared_ptr<const Engine> engine,
                        std::shared_ptr<nanobind::object> log = nullptr);

  struct Port {
    const TensorInfo* info;
    nanobind::str name;
    bool is_fixed;  // no size is open
    bool is_state;  // an output that sessions keep
  };
  std::shared_ptr<const Engine> engine;
  std::shared_ptr<nanobind::object> log;  // which the engine calls; None or null: none
  NumPy numpy;
  std::vector<Port> inputs, outputs;
  bool has_states;
};

// Several threads may call it: their runs happen one after another. Callers have the GIL, which a
// run gives back. A call from inside a call of the same thread, and one in a child process that
// would wait for a thread of its parent, fail with kInvalidArgument.
class Session {
 public:
  Session(std::shared_ptr<const SharedEngine> engine, const ContextOptions& options);
  ~Session();

  // inputs: arrays by name. out: arrays to write outputs to by name, or nothing (null). Other
  // outputs are new arrays. States are not among them.
  nanobind::dict run(const nanobind::dict& inputs, const nanobind::dict& out);
  // The outputs of a run, and (step, kernel, microseconds, times) of each of its steps.
  nanobind::tuple profile(const nanobind::dict& inputs, const nanobind::dict& out);
  void enqueue(const nanobind::dict& inputs, const Stream& stream, const nanobind::dict& out);
  nanobind::dict wait();
  bool is_done();
  void prepare(const nanobind::dict& shapes);
  // callback takes (name, step, kernel, value, iterations) of each tensor of later runs whose name
  // `wants` accepts; each may be None.
  void observe(const nanobind::object& callback, const nanobind::object& wants);

  // For Python's collector of cycles: calls visitor with each object that it holds but arrays, and
  // drops those that call back.
  void visit(const std::function<void(nanobind::handle)>& visitor) const;
  void clear();

  // Copies of the states after the last run, by the names of their inputs.
  nanobind::dict states();
  void reset_states(
      const nanobind::dict& shapes);  // by the names of inputs; others: the initial ones

  size_t memory_bytes();
  std::vector<std::string> run_warnings();
  // Inputs that were copied because no view can have their strides.
  uint64_t copied_inputs() const { return copied_inputs_; }

 private:
  class Turn;  // of a thread
  void bind(const nanobind::dict& inputs, const nanobind::dict& out);
  void bind_inputs(const nanobind::dict& inputs);
  void bind_outputs(const nanobind::dict& out);
  nanobind::dict collect();

  std::shared_ptr<const SharedEngine> shared_;
  std::unique_ptr<ExecutionContext> context_;
  Maker maker_;
  std::mutex mutex_;
  std::atomic<std::thread::id> holder_ = std::thread::id();  // of the mutex
  CallbackErrors errors_;                                    // of the observer
  std::shared_ptr<nanobind::object> callback_, wants_;       // of the observer, which shares them
  // By port: what the context reads and writes. results_ has no array where values decide a size.
  std::vector<ReadArray> read_;
  std::vector<WrittenArray> written_;
  std::vector<nanobind::object> results_;
  std::vector<bool> is_set_;      // by input
  std::vector<Dims> input_dims_;  // of the last run
  bool are_shapes_new_ = true;
  bool is_enqueued_ = false;
  std::optional<LateWork> late_;  // while a run is enqueued
  uint64_t copied_inputs_ = 0;
};

}  // namespace anneal::python
