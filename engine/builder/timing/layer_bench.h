// LayerBench: what runs the kernels of one layer while they are timed; a test gives another one.
#pragma once
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "anneal/kernels/kernel.h"

namespace anneal {

// Kernels are numbered as they were added.
class LayerBench {
 public:
  virtual ~LayerBench() = default;
  // Runs it once. Fails with kDevice where it does not run, and then it has no number. The kernel
  // outlives this.
  virtual void add(const Kernel& kernel) = 0;
  // Of one launch: of several in a row the average.
  virtual double microseconds(size_t kernel) = 0;
  // How its results differ from those of kernel 0; empty: they agree as far as rounding goes.
  virtual std::string difference(size_t kernel) = 0;
};

struct TimedStep;

// The machine on which steps of a plan are timed.
class TimingMachine {
 public:
  virtual ~TimingMachine() = default;
  virtual std::unique_ptr<LayerBench> bench(const TimedStep& step, Device& device) = 0;
  // Of the device's multiprocessors; nothing where it is not known.
  virtual std::optional<unsigned> clock_mhz(const Device&) { return std::nullopt; }
  virtual double seconds() const = 0;  // since this was made
};

}  // namespace anneal
