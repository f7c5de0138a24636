#include "anneal/kernels/cpu/conv/pixel_runs.h"

#include <algorithm>

#include "anneal/core/integer.h"
#include "anneal/kernels/cpu/base/workspace.h"

namespace anneal::cpu {
namespace {

constexpr int64_t kRunElements = 6144;

struct ChannelBlocks {
  int64_t block, blocks, largest;
};

// Blocks of whole grains that leave room for `pixels` in a run, as far as that can be.
ChannelBlocks cut_channels(int64_t channels, int64_t grain, int64_t pixels) {
  const int64_t grains = grain > 0 ? channels / grain : 0;
  if (grains < 2 || channels * pixels <= kRunElements) return {channels, 1, channels};
  for (int64_t each = std::clamp<int64_t>(kRunElements / pixels / grain, 1, grains);; --each) {
    const int64_t block = each * grain, blocks = ceil_div(grains, each);
    const int64_t largest = std::max(block, channels - (blocks - 1) * block);
    if (each == 1 || largest * pixels <= kRunElements) return {block, blocks, largest};
  }
}

// An output that is computed twice may not be read as well: by an addend or, with a single pixel,
// by numbers of channels that alias it.
bool reads_y(const RegisterEpilogue& finish) {
  const auto* const y = finish.y;
  return finish.addend == y || reinterpret_cast<const std::byte*>(finish.offset) == y ||
         reinterpret_cast<const std::byte*>(finish.scale) == y;
}

}  // namespace

PixelRuns::PixelRuns(std::span<const TensorView> inputs, std::span<const TensorView> outputs,
                     const PixelMemory& memory, const Epilogue& epilogue, int threads,
                     size_t& bytes)
    : space_(epilogue.pixel_space(inputs, outputs)) {
  const TensorView& y = outputs[0];
  if (count(y.dims) == 0) return;
  x_ = ChannelsLast(inputs[0], memory.keeps_bf16, memory.repeats);
  out_ = spatial_of(y.dims, 2, y.dims.rank() - 2, 1);
  channels_ = y.dims[1];
  finishes_ = memory.finishes;
  const size_t element = memory.element > 0 ? memory.element : size_of(x_.element);
  const ChannelBlocks cut = cut_channels(channels_, memory.channel_grain, out_[2]);
  block_ = cut.block;
  blocks_ = cut.blocks;
  const int64_t most = std::clamp<int64_t>(kRunElements / cut.largest, 1, out_[2]);
  runs_ = ceil_div(out_[2], most);
  run_ = ceil_div(out_[2], runs_);
  shared_at_ = x_.staged_bytes();
  parts_at_ = cache_aligned(shared_at_ + memory.shared);
  extra_at_ = cache_aligned(static_cast<size_t>(run_ * cut.largest) * element);
  tape_at_ =
      extra_at_ + cache_aligned(static_cast<size_t>(run_) * memory.per_pixel + memory.per_run);
  part_bytes_ = cache_aligned(tape_at_ + epilogue.scratch_bytes());
  bytes = parts_at_ + part_bytes_ * static_cast<size_t>(threads);
}

void PixelRuns::launch(const LaunchArgs& args, LoadBlock load, const Epilogue& epilogue,
                       FunctionRef<void(const PixelRun& run)> compute) const {
  const std::byte* x = args.inputs[0].data;
  if (x_.staged) {
    x_.stage(args.inputs[0], args.workspace, load, args.team);
    x = args.workspace;
  }
  args.team.for_ranges(
      x_.images * out_[0] * out_[1] * runs_ * blocks_, 1, [&](int64_t begin, int64_t end) {
        std::byte* const part = part_of(args.team, args.workspace + parts_at_, part_bytes_);
        for (int64_t item = begin; item < end; ++item) {
          const int64_t block = item / runs_ % blocks_;
          PixelRun run{.x = x, .row = item / runs_ / blocks_, .first = item % runs_ * run_};
          run.count = std::min(run_, out_[2] - run.first);
          run.channel = block * block_;
          run.channels = (block + 1 < blocks_ ? run.channel + block_ : channels_) - run.channel;
          run.out = part;
          run.extra = part + extra_at_;
          const int64_t pixel = run.row * out_[2] + run.first;
          const auto finish = epilogue.finish(finishes_, space_, args, pixel, run.channel);
          if (finish && !reads_y(*finish)) run.finish = &*finish;
          compute(run);
          if (run.finish == nullptr)
            epilogue.run(space_, args, {run.out, run.channels},
                         {pixel, run.count, run.channel, run.channels}, part + tape_at_);
        }
      });
}

}  // namespace anneal::cpu
