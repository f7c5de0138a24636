// The memory that a layer is timed on.
#pragma once
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "anneal/core/device.h"
#include "anneal/core/parallel.h"
#include "anneal/kernels/kernel.h"

namespace anneal {

// The opt value of the size. Fails with kInvalidArgument if it has none.
int64_t opt_size(const SizeTable& sizes, Size size);

// The operand at these sizes, without data. Fails as opt_size() does.
TensorView opt_view(const SizeTable& sizes, const Operand& operand);
// Elements that fill a tensor which is timed, repeated: random for floats and 8-bit integers, and
// the same for the same seed; else 0.
std::vector<std::byte> timing_pattern(DataType dtype, uint64_t seed);

// Operands of the request at the sizes it is optimized for: floats and 8-bit integers are random,
// the same each time, other integers 0, which are valid indices; constants are the layer's own.
// On the CPU only.
class TimedOperands {
 public:
  // `request` need not outlive it; its constants must. Fails as opt_size() and Device do.
  TimedOperands(const Request& request, int threads);

  std::span<const TensorView> inputs() const { return inputs_; }
  std::span<const TensorView> outputs() const { return outputs_; }
  DeviceStream& stream() { return *stream_; }
  // Between two runs of a layer others run: its constants have left the cores' own caches, and its
  // other inputs have just been written.
  void lie_as_in_a_network(ThreadTeam& team);

 private:
  struct Activation {
    std::unique_ptr<Buffer> buffer;
    std::vector<std::byte> pattern;  // repeated to fill it
  };
  TensorView view_of(const Request& request, const Operand& operand);

  Device& device_;
  std::unique_ptr<DeviceStream> stream_;
  std::vector<Activation> activations_;
  std::vector<TensorView> inputs_, outputs_;
  size_t written_ = 0;  // of activations_: those that the layer reads
  std::unique_ptr<Buffer> others_;
};

}  // namespace anneal
