#include "anneal/bench/gpu/layer_timing.h"

#include <algorithm>
#include <chrono>

#include "anneal/core/fail.h"
#include "anneal/core/new_tensor.h"
#include "anneal/core/parallel.h"
#include "anneal/engine/data/made_samples.h"
#include "anneal/kernels/cuda/runtime/gpu_device.h"

namespace anneal::bench {
namespace {

constexpr int64_t kRandomElements = 1 << 20;
constexpr double kLongLaunch = 2000;  // microseconds; few launches are enough
constexpr int kFewLaunches = 5;

// From the first element to behind the last.
size_t span_bytes(const TensorView& view) {
  int64_t last = 0;
  for (int axis = 0; axis < view.dims.rank(); ++axis) {
    if (view.dims[axis] == 0) return 0;
    last += (view.dims[axis] - 1) * view.strides[axis];
  }
  return static_cast<size_t>(last + 1) * size_of(view.dtype);
}

TensorView view_of(const Slot& slot) {
  TensorView view;
  view.dtype = slot.type.dtype;
  view.dims = dims_of(slot.type.shape);
  view.strides = dims_of(slot.strides);
  return view;
}

constexpr size_t kPieces = 16, kPieceBytes = size_t{1} << 16;
struct Piece {
  size_t offset, bytes;
};
// Whole elements: every size of one divides the pieces and their distance.
std::vector<Piece> pieces_of(const TensorView& view) {
  const size_t bytes = view.data == nullptr ? 0 : span_bytes(view);
  std::vector<Piece> pieces;
  if (bytes <= kPieces * kPieceBytes) {
    for (size_t at = 0; at < bytes; at += kPieceBytes)
      pieces.push_back({at, std::min(kPieceBytes, bytes - at)});
    return pieces;
  }
  const size_t step = (bytes - kPieceBytes) / (kPieces - 1) / 64 * 64;
  for (size_t i = 0; i + 1 < kPieces; ++i) pieces.push_back({i * step, kPieceBytes});
  pieces.push_back({bytes - kPieceBytes, kPieceBytes});
  return pieces;
}

// Takes down launches instead of doing them.
class LaunchLog final : public cuda::GpuStream {
 public:
  void wait() override {}
  void launch(const cuda::Function& function, const cuda::Geometry& geometry,
              cuda::Arguments&) override {
    LaunchFacts facts{.function = function.name, .blocks = 1, .threads = 1};
    for (const uint32_t size : geometry.grid) facts.blocks *= size;
    for (const uint32_t size : geometry.block) facts.threads *= static_cast<int>(size);
    facts.shared_bytes = static_cast<int>(geometry.shared_bytes);
    seen.push_back(std::move(facts));
  }
  void copy(std::byte*, const std::byte*, size_t) override {}
  void call(const std::function<void(cuda::CUstream)>&) override {
    fail(ErrorCode::kInternal, "a library's kernel has launches of its own");
  }
  std::vector<FunctionCounts> take_counts() override { return {}; }
  std::vector<LaunchFacts> seen;
};

// A kernel with the memory that one launch after another uses.
class Launcher {
 public:
  Launcher(const Kernel& kernel, const OperandSets& operands, Device& device, DeviceStream& stream)
      : kernel_(kernel),
        operands_(operands),
        stream_(stream),
        prepared_(kernel.prepare(operands.inputs(0), operands.outputs(0), 1)),
        workspace_(device.allocate(std::max<size_t>(prepared_->workspace_bytes, 1))) {}
  void operator()(int set) {
    kernel_.launch({operands_.inputs(set), operands_.outputs(set), prepared_.get(),
                    workspace_->data(), stream_, team_});
  }

 private:
  const Kernel& kernel_;
  const OperandSets& operands_;
  DeviceStream& stream_;
  ThreadTeam team_{1};
  const std::unique_ptr<PreparedKernel> prepared_;
  const std::unique_ptr<Buffer> workspace_;
};

}  // namespace

OperandSets::OperandSets(const PlannedLayer& layer, Device& device, DeviceStream& stream,
                         double bytes, int most) {
  const Step& step = layer.planned();
  do {
    Set& set = sets_.emplace_back();
    for (size_t i = 0; i < step.inputs.size(); ++i) {
      const bool on_host = i < step.op_input_count && is_host_value(step.op, static_cast<int>(i));
      set.inputs.push_back(place(layer, step.inputs[i],
                                 on_host ? Contents::kOnHost : Contents::kRead, device, stream));
    }
    for (const uint32_t slot : step.outputs)
      set.outputs.push_back(place(layer, slot, Contents::kWritten, device, stream));
  } while (count() < most && static_cast<double>(bytes_) < bytes);
  stream.wait();
}

TensorView OperandSets::place(const PlannedLayer& layer, uint32_t slot, Contents contents,
                              Device& device, DeviceStream& stream) {
  if (slot == kNoSlot) return {};
  TensorView view = view_of(layer.plan().slots[slot]);
  const bool is_weight = layer.plan().slots[slot].storage == Storage::kWeight;
  const Tensor* const weight =
      is_weight ? &layer.file.weights[layer.plan().slots[slot].offset] : nullptr;
  if (contents == Contents::kOnHost) {
    check(weight != nullptr, "what decides shapes is a constant of the layer");
    view.data = kernel_view(*weight).data;
    return view;
  }
  const size_t bytes = span_bytes(view);
  buffers_.push_back(device.allocate(std::max<size_t>(bytes, 1)));
  bytes_ += bytes;
  view.data = buffers_.back()->data();
  if (contents == Contents::kWritten) return view;
  if (weight == nullptr)
    random_.try_emplace(view.dtype, random_sample(view.dtype, {kRandomElements}, 7));
  const std::span<const std::byte> block =
      weight != nullptr ? weight->bytes() : random_.at(view.dtype).bytes();
  for (size_t at = 0; at < bytes; at += block.size())
    device.copy(view.data + at, block.data(), std::min(block.size(), bytes - at), stream);
  return view;
}

std::vector<std::vector<std::byte>> OperandSets::sample_outputs(Device& device,
                                                                DeviceStream& stream) const {
  std::vector<std::vector<std::byte>> samples;
  for (const TensorView& output : outputs(0)) {
    const std::vector<Piece> pieces = pieces_of(output);
    std::vector<std::byte>& sample = samples.emplace_back();
    for (const Piece& piece : pieces) sample.resize(sample.size() + piece.bytes);
    std::byte* to = sample.data();
    for (const Piece& piece : pieces) {
      device.copy(to, output.data + piece.offset, piece.bytes, stream);
      to += piece.bytes;
    }
  }
  stream.wait();
  return samples;
}

void OperandSets::clear_samples(Device& device, DeviceStream& stream) const {
  const std::vector<std::byte> block(kPieceBytes, std::byte{0xff});
  for (const TensorView& output : outputs(0))
    for (const Piece& piece : pieces_of(output))
      device.copy(output.data + piece.offset, block.data(), piece.bytes, stream);
  stream.wait();
}

std::vector<LaunchFacts> launches_of(const Kernel& kernel, const PlannedLayer& layer) {
  const Step& step = layer.planned();
  std::vector<TensorView> inputs, outputs;
  const auto add = [&](std::vector<TensorView>& to, uint32_t slot) {
    to.push_back(slot == kNoSlot ? TensorView{} : view_of(layer.plan().slots[slot]));
    const bool is_weight = slot != kNoSlot && layer.plan().slots[slot].storage == Storage::kWeight;
    if (is_weight)
      to.back().data = kernel_view(layer.file.weights[layer.plan().slots[slot].offset]).data;
  };
  for (const uint32_t slot : step.inputs) add(inputs, slot);
  for (const uint32_t slot : step.outputs) add(outputs, slot);
  LaunchLog log;
  ThreadTeam team(1);
  const auto prepared = kernel.prepare(inputs, outputs, 1);
  kernel.launch({inputs, outputs, prepared.get(), nullptr, log, team});
  return std::move(log.seen);
}

Timing time_of(const Kernel& kernel, const OperandSets& operands, Device& device,
               DeviceStream& stream, const TimingOptions& options) {
  Launcher launch(kernel, operands, device, stream);
  launch(0);
  stream.wait();  // what is wrong with it shows here
  Timing timing;
  timing.microseconds = stream.microseconds([&] { launch(1); });
  if (timing.microseconds > options.hopeless_above) {
    timing.is_hopeless = true;
    return timing;
  }
  timing.launches = timing.microseconds > kLongLaunch ? std::min(kFewLaunches, options.launches)
                                                      : options.launches;
  const auto all = [&] {
    for (int i = 0; i < timing.launches; ++i) launch(i);
  };
  std::unique_ptr<Recording> recording;
  try {
    recording = stream.record(all);
  } catch (const Error&) {  // a driver that refuses; if the card is lost, wait() says so
    stream.wait();
  }
  timing.is_recorded = recording != nullptr;
  const auto play = [&] {
    if (recording)
      stream.play(*recording);
    else
      all();
  };
  play();
  stream.wait();
  for (int i = 0; i < options.plays; ++i)
    timing.plays.push_back(stream.microseconds(play) / timing.launches);
  std::vector<double> sorted = timing.plays;
  std::sort(sorted.begin(), sorted.end());
  timing.microseconds = sorted[sorted.size() / 2];
  return timing;
}

void warm_up(const Kernel& kernel, const OperandSets& operands, Device& device,
             DeviceStream& stream, double seconds) {
  using Clock = std::chrono::steady_clock;
  Launcher launch(kernel, operands, device, stream);
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  do {
    for (int i = 0; i < kFewLaunches; ++i) launch(i);
    stream.wait();
  } while (Clock::now() < end);
}

std::vector<std::vector<std::byte>> outputs_of(const Kernel& kernel, const OperandSets& operands,
                                               Device& device, DeviceStream& stream) {
  operands.clear_samples(device, stream);
  Launcher launch(kernel, operands, device, stream);
  launch(0);
  stream.wait();
  return operands.sample_outputs(device, stream);
}

void launch_only(const Kernel& kernel, const OperandSets& operands, Device& device,
                 DeviceStream& stream, int launches) {
  Launcher launch(kernel, operands, device, stream);
  for (int i = 0; i < launches; ++i) launch(i);
  stream.wait();
}

}  // namespace anneal::bench
