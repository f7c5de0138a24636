#include "anneal/engine/builder/timing/gpu_bench.h"

#include <algorithm>
#include <utility>

#include "anneal/engine/builder/timing/result_difference.h"
#include "anneal/kernels/cuda/backend.h"

namespace anneal {
namespace {

constexpr size_t kLaunches = 20;

}  // namespace

GpuBench::GpuBench(const TimedStep& step, Device& device)
    : step_(step),
      device_(device),
      stream_(device.make_stream()),
      operands_(step, device, *stream_, second_level_cache(device)) {}

void GpuBench::launch(const Added& added, size_t set) {
  const GpuOperands::Set& operands = operands_.sets()[set % operands_.sets().size()];
  added.kernel->launch({operands.inputs, operands.outputs, added.prepared.get(),
                        added.workspace->data(), *stream_, team_});
}

void GpuBench::add(const Kernel& kernel) {
  const GpuOperands::Set& first = operands_.sets()[0];
  Added added{&kernel, kernel.prepare(first.inputs, first.outputs, 1), {}, {}};
  added.workspace = device_.allocate(std::max<size_t>(added.prepared->workspace_bytes, 1));
  launch(added, 0);
  stream_->wait();
  added.recording = stream_->record([&] {
    for (size_t i = 0; i < kLaunches; ++i) launch(added, i);
  });
  added_.push_back(std::move(added));
  microseconds(added_.size() - 1);
}

double GpuBench::microseconds(size_t kernel) {
  const Added& added = added_[kernel];
  operands_.leave_the_cache(*stream_);
  const double all = stream_->microseconds([&] {
    if (added.recording) return stream_->play(*added.recording);
    for (size_t i = 0; i < kLaunches; ++i) launch(added, i);
  });
  return all / kLaunches;
}

std::vector<std::vector<std::byte>> GpuBench::results(size_t kernel) {
  operands_.spoil_outputs(*stream_);
  launch(added_[kernel], 0);
  stream_->wait();
  return operands_.read_outputs(*stream_);
}

std::string GpuBench::difference(size_t kernel) {
  const auto wanted = results(0), got = results(kernel);
  for (size_t i = 0; i < got.size(); ++i) {
    std::string told = result_difference(step_.operands.outputs[i].type.dtype, got[i], wanted[i]);
    if (!told.empty()) return told;
  }
  return {};
}

std::optional<unsigned> GpuTimingMachine::clock_mhz(const Device& device) {
  return anneal::clock_mhz(device);
}

double GpuTimingMachine::seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

}  // namespace anneal
