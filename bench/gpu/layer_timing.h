// The time of one kernel's launch on a stream: a graph of many launches, divided by their number.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "anneal/bench/gpu/layer_kernels.h"

namespace anneal::bench {

// Memory for the operands of a layer, several times over, so that launches which follow each other
// do not find their operands in the L2 cache; inputs have random contents.
class OperandSets {
 public:
  // As many sets as exceed `bytes` together, at most `most`.
  OperandSets(const PlannedLayer& layer, Device& device, DeviceStream& stream, double bytes,
              int most);
  int count() const { return static_cast<int>(sets_.size()); }
  double bytes() const { return static_cast<double>(bytes_); }  // of all sets
  std::span<const TensorView> inputs(int set) const { return sets_[index(set)].inputs; }
  std::span<const TensorView> outputs(int set) const { return sets_[index(set)].outputs; }
  // At most 1 MiB of each output of set 0, in pieces from its beginning to its end.
  std::vector<std::vector<std::byte>> sample_outputs(Device& device, DeviceStream& stream) const;
  // What an earlier kernel wrote there becomes 0xff.
  void clear_samples(Device& device, DeviceStream& stream) const;

 private:
  struct Set {
    std::vector<TensorView> inputs, outputs;
  };
  size_t index(int set) const { return static_cast<size_t>(set) % sets_.size(); }
  enum class Contents { kOnHost, kRead, kWritten };
  TensorView place(const PlannedLayer& layer, uint32_t slot, Contents contents, Device& device,
                   DeviceStream& stream);

  std::vector<std::unique_ptr<Buffer>> buffers_;
  std::vector<Set> sets_;
  std::map<DataType, Tensor> random_;  // what is copied to inputs again and again
  size_t bytes_ = 0;
};

// The resources that a launch needs on the GPU.
struct LaunchFacts {
  std::string function;
  int64_t blocks = 0;
  int threads = 0, shared_bytes = 0;  // dynamic shared memory
};
std::vector<LaunchFacts> launches_of(const Kernel& kernel, const PlannedLayer& layer);

struct TimingOptions {
  int launches = 20;  // in one recording; fewer of launches that take milliseconds
  int plays = 7;
  double hopeless_above = 1e9;  // microseconds of one launch: not timed further
};
struct Timing {
  double microseconds = 0;  // the median play, divided by the launches in it
  std::vector<double> plays;
  int launches = 0;
  bool is_recorded = true;  // false: launched one by one
  bool is_hopeless = false;
};
Timing time_of(const Kernel& kernel, const OperandSets& operands, Device& device,
               DeviceStream& stream, const TimingOptions& options);
// Keeps the card busy for so long.
void warm_up(const Kernel& kernel, const OperandSets& operands, Device& device,
             DeviceStream& stream, double seconds);
// Parts of the kernel's outputs on the operands of set 0, as OperandSets::sample_outputs() takes
// them; what it does not write is 0xff.
std::vector<std::vector<std::byte>> outputs_of(const Kernel& kernel, const OperandSets& operands,
                                               Device& device, DeviceStream& stream);
// Launches it `launches` times, for a profiler.
void launch_only(const Kernel& kernel, const OperandSets& operands, Device& device,
                 DeviceStream& stream, int launches);

}  // namespace anneal::bench
