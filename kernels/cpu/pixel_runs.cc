#include "anneal/kernels/cpu/pixel_runs.h"

#include <algorithm>

#include "anneal/kernels/cpu/workspace.h"

namespace anneal::cpu {
namespace {

constexpr int64_t kRunElements = 4096;

}  // namespace

PixelRuns::PixelRuns(std::span<const TensorView> inputs, std::span<const TensorView> outputs,
                     const PixelMemory& memory, const Epilogue& epilogue, int threads,
                     size_t& bytes)
    : space_(epilogue.pixel_space(inputs, outputs)) {
  const TensorView& y = outputs[0];
  if (count(y.dims) == 0) return;
  x_ = ChannelsLast(inputs[0]);
  out_ = spatial_of(y.dims, 2, y.dims.rank() - 2, 1);
  channels_ = y.dims[1];
  const size_t element = memory.element > 0 ? memory.element : size_of(x_.element);
  run_ = std::clamp<int64_t>(kRunElements / channels_, 1, out_[2]);
  runs_ = (out_[2] + run_ - 1) / run_;
  shared_at_ = x_.staged_bytes();
  parts_at_ = align_up(shared_at_ + memory.shared);
  extra_at_ = align_up(static_cast<size_t>(run_ * channels_) * element);
  tape_at_ = extra_at_ + align_up(static_cast<size_t>(run_) * memory.per_pixel);
  part_bytes_ = align_up(tape_at_ + epilogue.scratch_bytes());
  bytes = parts_at_ + part_bytes_ * static_cast<size_t>(threads);
}

void PixelRuns::launch(const LaunchArgs& args, LoadBlock load, const Epilogue& epilogue,
                       FunctionRef<void(const PixelRun& run)> compute) const {
  const std::byte* x = args.inputs[0].data;
  if (x_.staged) {
    x_.stage(args.inputs[0], args.workspace, load, args.team);
    x = args.workspace;
  }
  WorkspaceParts parts(args.workspace + parts_at_, part_bytes_);
  args.team.for_ranges(x_.images * out_[0] * out_[1] * runs_, 1, [&](int64_t begin, int64_t end) {
    const WorkspaceParts::Part part(parts);
    for (int64_t item = begin; item < end; ++item) {
      PixelRun run{.x = x, .row = item / runs_, .first = item % runs_ * run_};
      run.count = std::min(run_, out_[2] - run.first);
      run.out = part.data();
      run.extra = part.data() + extra_at_;
      compute(run);
      epilogue.run(space_, args, run.out, channels_, run.row * out_[2] + run.first, run.count, 0,
                   channels_, part.data() + tape_at_);
    }
  });
}

}  // namespace anneal::cpu
