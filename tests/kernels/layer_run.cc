#include "anneal/tests/kernels/layer_run.h"

#include <algorithm>
#include <cstring>

#include "anneal/core/channels_last.h"
#include "anneal/core/fail.h"
#include "anneal/core/new_tensor.h"
#include "anneal/core/size/size.h"
#include "anneal/kernels/cuda/backend.h"

namespace anneal::testing {
namespace {

constexpr std::byte kUntouched{0xa5};

// The memory of one tensor: an image of it on the host, and while it is used a copy on the device.
class TensorMemory {
 public:
  // is_exact: as RunOptions has it. own: strides instead of the placement's.
  TensorMemory(DataType dtype, const Dims& dims, Placement placement, bool is_exact,
               const std::optional<Shape>& own = std::nullopt)
      : is_exact_(is_exact) {
    view_.dtype = dtype;
    view_.dims = dims;
    const bool last = placement == Placement::kChannelsLast;
    Dims strides = last ? channels_last_strides(dims) : row_major_strides(dims);
    int64_t first = 0;
    if (placement == Placement::kPadded) {
      int64_t step = 2;
      for (int axis = dims.rank() - 1; axis >= 0; --axis) {
        strides[axis] = step;
        step = step * std::max<int64_t>(dims[axis], 1) + 3;
      }
      first = 5;
    }
    if (placement == Placement::kCut && dims.rank() >= 3) {
      const int outer = dims.rank() == 3 ? 0 : 1;
      int64_t step = dims[outer] * dims[outer + 1];
      strides[outer + 1] = 1;
      strides[outer] = dims[outer + 1];
      for (int axis = dims.rank() - 1; axis >= 0; --axis) {
        if (axis == outer || axis == outer + 1) continue;
        strides[axis] = step;
        step *= dims[axis];
      }
    }
    if (own) strides = dims_of(*own);
    int64_t extent = first + 1;
    for (int axis = 0; axis < dims.rank(); ++axis) {
      const int64_t reach = std::max<int64_t>(dims[axis] - 1, 0) * strides[axis];
      extent += reach;
      if (placement != Placement::kReversed) continue;
      strides[axis] = -strides[axis];
      first += reach;
    }
    view_.strides = strides;
    if (count(dims) == 0 && is_exact) extent = first;
    image_.assign((static_cast<size_t>(extent) + (is_exact ? 0 : 8)) * size_of(dtype), kUntouched);
    first_ = first * static_cast<int64_t>(size_of(dtype));
    begin_ = placement == Placement::kReversed ? 0 : static_cast<size_t>(first_);
  }
  const TensorView& view() const { return view_; }  // without data

  void fill(const Tensor& tensor) {
    for_each([&](std::byte* mine, size_t at, size_t size) {
      std::memcpy(mine, tensor.bytes().data() + at, size);
    });
  }
  // The view on the device.
  // on_host: where inputs that decide shapes lie.
  TensorView upload(Device& device, DeviceStream& stream, bool on_host = false) {
    TensorView view = view_;
    if (on_host) {
      memory_ = device.allocate_staging(image_.size());
      std::memcpy(memory_->data(), image_.data(), image_.size());
      view.data = memory_->data() + first_;
      return view;
    }
    memory_ = device.allocate(image_.size());
    if (is_exact_) device.limit_access(memory_->data() + begin_, image_.size() - begin_);
    device.copy(memory_->data(), image_.data(), image_.size(), stream);
    view.data = memory_->data() + first_;
    return view;
  }
  // Returns the device's result, and restores the image to its state before it was filled.
  Tensor take(Device& device, DeviceStream& stream) {
    device.copy(image_.data(), memory_->data(), image_.size(), stream);
    stream.wait();
    auto fresh = allocate_tensor(view_.dtype, view_.dims);
    for_each([&](std::byte* mine, size_t at, size_t size) {
      std::memcpy(fresh.data.data() + at, mine, size);
    });
    for_each([&](std::byte* mine, size_t, size_t size) { std::fill_n(mine, size, kUntouched); });
    check(std::all_of(image_.begin(), image_.end(), [](std::byte b) { return b == kUntouched; }),
          "the kernel wrote beside its output");
    return fresh.tensor;
  }
  void free_device() { memory_.reset(); }

 private:
  template <class F>
  void for_each(F f) {
    const size_t size = size_of(view_.dtype);
    Dims at = Dims::filled(view_.dims.rank(), 0);
    for (int64_t i = 0, elements = count(view_.dims); i < elements; ++i) {
      int64_t offset = 0;
      for (int axis = 0; axis < at.rank(); ++axis) offset += at[axis] * view_.strides[axis];
      f(image_.data() + first_ + offset * static_cast<int64_t>(size), static_cast<size_t>(i) * size,
        size);
      for (int axis = at.rank() - 1; axis >= 0 && ++at[axis] == view_.dims[axis]; --axis)
        at[axis] = 0;
    }
  }

  TensorView view_;
  std::vector<std::byte> image_;
  int64_t first_ = 0;  // where element [0,...,0] is
  size_t begin_ = 0;   // and the element that is first in memory
  bool is_exact_;
  std::unique_ptr<Buffer> memory_;
};

// Sizes that are symbols make strides that are symbols, as the placement has them.
Operand operand(const Type& type, const TensorView& view, Placement placement, SizeTable& sizes) {
  Operand result;
  result.type = type;
  result.strides = shape_of(view.strides);
  if (!known(type.shape) && placement == Placement::kRowMajor)
    result.strides = row_major_strides(type.shape, sizes);
  if (!known(type.shape) && placement == Placement::kChannelsLast)
    result.strides = channels_last_strides(type.shape, sizes);
  return result;
}

}  // namespace

std::vector<Type> own_types(const TestLayer& layer) {
  std::vector<Type> types;
  for (const auto& input : layer.inputs) types.push_back(input ? type_of(*input) : Type{});
  return types;
}

namespace {

Facts infer_found(const TestLayer& layer, const std::vector<Type>& types, SizeTable& sizes,
                  std::span<const Dims> found) {
  std::vector<Fact> facts(layer.inputs.size());
  std::vector<TensorView> views(layer.inputs.size());
  std::vector<InferInput> inputs(layer.inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!layer.inputs[i]) continue;
    facts[i].type = types[i];
    views[i] = kernel_view(*layer.inputs[i]);
    inputs[i].fact = &facts[i];
    if (known(types[i].shape)) inputs[i].value = &views[i];
  }
  return infer_layer(layer.op, layer.epilogues, layer.op_input_count, InferInputs(inputs, sizes),
                     found);
}

}  // namespace

Facts infer_with(const TestLayer& layer, const std::vector<Type>& types, SizeTable& sizes) {
  return infer_found(layer, types, sizes, {});
}

Facts run_time_facts(const TestLayer& layer, const KernelEntry& reference, Device& device) {
  SizeTable sizes;
  Facts facts = infer_with(layer, own_types(layer), sizes);
  std::vector<Operand> in_operands, out_operands;
  std::vector<TensorView> inputs;
  for (const auto& input : layer.inputs) {
    inputs.push_back(input ? kernel_view(*input) : TensorView{});
    in_operands.push_back(input
                              ? operand(type_of(*input), inputs.back(), Placement::kRowMajor, sizes)
                              : Operand{.present = false});
  }
  for (const Fact& fact : facts) {
    Type type = fact.type;
    for (int axis = 0; axis < type.shape.rank(); ++axis)
      if (type.shape[axis].is_unknown()) type.shape[axis] = sizes.fresh("found");
    out_operands.push_back({.type = type, .strides = row_major_strides(type.shape, sizes)});
  }
  const KernelResult made = reference.make({layer.op,
                                            layer.epilogues,
                                            layer.op_input_count,
                                            in_operands,
                                            out_operands,
                                            sizes,
                                            device,
                                            {}});
  if (!made) return facts;
  const auto stream = device.make_stream();
  ThreadTeam team(1);
  const auto found = (*made)->find(inputs, *stream, team);
  return found ? infer_found(layer, own_types(layer), sizes, found->dims) : facts;
}

const char* to_string(Placement placement) {
  switch (placement) {
    case Placement::kRowMajor:
      return "row-major";
    case Placement::kChannelsLast:
      return "channels-last";
    case Placement::kPadded:
      return "padded";
    case Placement::kReversed:
      return "reversed";
    case Placement::kCut:
      return "cut";
  }
  return "?";
}

struct MadeLayer::State {
  Device& device;
  std::vector<std::optional<TensorMemory>> inputs;
  std::vector<bool> on_host;  // of each input
  std::vector<TensorMemory> outputs;
  int in_place = -1;
  std::optional<Tensor> overwritten;  // what lies in output 0 before
  bool is_exact = false;
  KernelResult made;
};

MadeLayer::MadeLayer(MadeLayer&&) noexcept = default;
MadeLayer::~MadeLayer() = default;

MadeLayer::MadeLayer(const KernelEntry& entry, const TestLayer& layer, Device& device,
                     const RunOptions& options)
    : state_(new State{device,
                       {},
                       {},
                       {},
                       options.in_place,
                       std::nullopt,
                       options.is_exact,
                       refuse("it was not asked")}) {
  SizeTable sizes;
  if (options.sizes) sizes = *options.sizes;
  std::vector<Operand> input_operands, output_operands;
  const auto placement_of = [&](size_t i) {
    const bool constant =
        std::ranges::find(options.constants, static_cast<int>(i)) != options.constants.end();
    return constant ? Placement::kRowMajor : options.placement;
  };
  for (size_t i = 0; i < layer.inputs.size(); ++i) {
    const auto& tensor = layer.inputs[i];
    if (!tensor) {
      input_operands.push_back({.present = false});
      continue;
    }
    const TensorMemory placed(tensor->dtype(), tensor->dims(), placement_of(i), options.is_exact);
    const Type type = options.input_types.empty() ? type_of(*tensor) : options.input_types[i];
    input_operands.push_back(operand(type, placed.view(), placement_of(i), sizes));
    if (std::ranges::find(options.constants, static_cast<int>(i)) != options.constants.end())
      input_operands.back().constant = &*tensor;
  }
  for (size_t i = 0; i < layer.output_dims.size(); ++i) {
    const TensorMemory& placed = state_->outputs.emplace_back(
        layer.outputs[i].dtype, layer.output_dims[i], options.placement, options.is_exact);
    output_operands.push_back(operand(layer.outputs[i], placed.view(), options.placement, sizes));
  }
  if (options.in_place >= 0)
    state_->overwritten = *layer.inputs[static_cast<size_t>(options.in_place)];
  LaidOutKernel made = make_laid_out(
      entry,
      {.op = layer.op,
       .epilogues = layer.epilogues,
       .op_input_count = layer.op_input_count,
       .inputs = input_operands,
       .outputs = output_operands,
       .sizes = sizes,
       .device = device,
       .tactic = options.tactic,
       .ignore_speed_heuristics = options.ignore_speed_heuristics},
      options.placement == Placement::kChannelsLast ? FreeInputs::kAll : FreeInputs::kConstants);
  state_->made = std::move(made.made);
  for (size_t i = 0; i < layer.inputs.size(); ++i) {
    auto& placed = state_->inputs.emplace_back();
    const int index = static_cast<int>(i);
    state_->on_host.push_back(index < layer.op_input_count && is_host_value(layer.op, index));
    if (!layer.inputs[i]) continue;
    const Tensor& tensor = *layer.inputs[i];
    const auto own = std::ranges::find(made.laid_out, i, &LaidOutInput::input);
    placed.emplace(tensor.dtype(), tensor.dims(), placement_of(i), options.is_exact,
                   own == made.laid_out.end() ? std::nullopt : std::optional(own->strides));
    placed->fill(tensor);
  }
}

const std::string& MadeLayer::why_not() const { return state_->made.reason(); }

std::vector<std::byte> MadeLayer::tactic() const {
  return state_->made ? (*state_->made)->tactic() : std::vector<std::byte>();
}

RunResult MadeLayer::run(int threads) const {
  Device& device = state_->device;
  const Kernel& kernel = **state_->made;
  const auto stream = device.make_stream();
  std::vector<TensorView> inputs, outputs, input_shapes, output_shapes;
  for (auto& input : state_->inputs) {
    const bool on_host = state_->on_host[inputs.size()];
    inputs.push_back(input ? input->upload(device, *stream, on_host) : TensorView{});
    input_shapes.push_back(input ? input->view() : TensorView{});
  }
  if (state_->in_place >= 0) state_->outputs[0].fill(*state_->overwritten);
  for (TensorMemory& output : state_->outputs) {
    outputs.push_back(output.upload(device, *stream));
    output_shapes.push_back(output.view());
  }
  if (state_->in_place >= 0) inputs[static_cast<size_t>(state_->in_place)] = outputs[0];
  ThreadTeam team(threads);
  const auto found = kernel.find(inputs, *stream, team);
  // An epilogue may make several results of one.
  const bool is_compared = found && found->dims.size() == outputs.size();
  for (size_t i = 0; is_compared && i < outputs.size(); ++i)
    check(found->dims[i] == outputs[i].dims, "the kernel found sizes that the reference did not");
  const auto prepared = kernel.prepare(input_shapes, output_shapes, threads);
  const size_t guard = state_->is_exact ? 0 : 64;
  std::vector<std::byte> guarded(prepared->workspace_bytes + guard, kUntouched);
  const auto workspace = device.allocate(guarded.size());
  device.copy(workspace->data(), guarded.data(), guarded.size(), *stream);
  kernel.launch({inputs, outputs, prepared.get(), workspace->data(), *stream, team, found.get()});
  device.copy(guarded.data(), workspace->data(), guarded.size(), *stream);
  stream->wait();
  check(std::all_of(guarded.end() - static_cast<ptrdiff_t>(guard), guarded.end(),
                    [](std::byte b) { return b == kUntouched; }),
        "the kernel wrote beyond its workspace");

  RunResult result;
  result.tactic = kernel.tactic();
  for (TensorMemory& output : state_->outputs) {
    result.outputs.push_back(output.take(device, *stream));
    output.free_device();
  }
  for (auto& input : state_->inputs)
    if (input) input->free_device();
  return result;
}

RunResult run_layer(const KernelEntry& entry, const TestLayer& layer, Device& device,
                    const RunOptions& options) {
  const MadeLayer made(entry, layer, device, options);
  if (!made.why_not().empty()) return {made.why_not(), {}, {}};
  device.prepare_code({});
  return made.run(options.threads);
}

const KernelEntry* reference_entry(const Backend& backend, size_t op) {
  const KernelEntry* last = nullptr;
  for (const KernelFamily family : backend.families)
    for (const KernelEntry& entry : family())
      if (entry.op == op) last = &entry;
  constexpr std::string_view kSuffix = ".reference";
  const bool is_reference = last && last->name.size() > kSuffix.size() &&
                            last->name.substr(last->name.size() - kSuffix.size()) == kSuffix;
  return is_reference ? last : nullptr;
}

}  // namespace anneal::testing
