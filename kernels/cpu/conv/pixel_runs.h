// Runs of pixels for kernels with channels-last activations. A run is a part of one output row and
// a work item with memory of its own, to which the epilogue is applied. Accumulators of a run fit
// the first-level cache.
#pragma once
#include <cstdint>
#include <span>

#include "anneal/core/parallel.h"
#include "anneal/kernels/cpu/conv/channels_last.h"
#include "anneal/kernels/cpu/program/epilogue.h"

namespace anneal::cpu {

struct PixelRun {
  const std::byte* x = nullptr;       // the input, staged if it had to be
  int64_t row = 0;                    // of the output, through images, z and y
  int64_t first = 0, count = 0;       // pixels
  int64_t channel = 0, channels = 0;  // of the output
  std::byte* out = nullptr;           // for these channels of each pixel
  std::byte* extra = nullptr;         // PixelMemory::per_pixel for each, and per_run
  // The epilogue of sums; some may be computed twice. Null: sums are written to `out`.
  const RegisterEpilogue* finish = nullptr;
};

struct PixelMemory {
  size_t element = 0;  // bytes of an accumulator; 0: of an element of x, staged
  size_t shared = 0;   // bytes that all runs read
  size_t per_pixel = 0, per_run = 0;
  // Multiples at which channels may be cut, so that runs have many pixels. 0: nowhere.
  int64_t channel_grain = 0;
  bool keeps_bf16 = false;  // x of bf16 is not widened
  int64_t repeats = 1;      // of each channel of x
  CanStore finishes = stores_nothing;
};

class PixelRuns {
 public:
  PixelRuns() = default;
  // x and y of [N, C, spatial axes]; the bytes of workspace go to `bytes`, none if y is empty.
  PixelRuns(std::span<const TensorView> inputs, std::span<const TensorView> outputs,
            const PixelMemory& memory, const Epilogue& epilogue, int threads, size_t& bytes);

  bool empty() const { return channels_ == 0; }
  const ChannelsLast& x() const { return x_; }
  const Spatial& out() const { return out_; }
  int64_t channels() const { return channels_; }  // of the output
  std::byte* shared(const LaunchArgs& args) const { return args.workspace + shared_at_; }

  // compute() fills run.out, from where the epilogue takes it, or follows run.finish.
  void launch(const LaunchArgs& args, LoadBlock load, const Epilogue& epilogue,
              FunctionRef<void(const PixelRun& run)> compute) const;

 private:
  TapeSpace space_;
  ChannelsLast x_;
  Spatial out_{};
  CanStore finishes_ = stores_nothing;
  int64_t channels_ = 0;
  int64_t run_ = 1, runs_ = 1;      // pixels of one item, items of an output row
  int64_t block_ = 0, blocks_ = 1;  // channels; the last block has all the rest
  size_t shared_at_ = 0, parts_at_ = 0, part_bytes_ = 0, extra_at_ = 0, tape_at_ = 0;
};

}  // namespace anneal::cpu
