// Engine: choosing a plan for the device at hand and making its kernels.
#include "anneal/engine/run/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "anneal/core/fail.h"
#include "anneal/core/file.h"
#include "anneal/core/integer.h"
#include "anneal/core/new_tensor.h"
#include "anneal/core/parallel.h"
#include "anneal/engine/kernel_library.h"
#include "anneal/engine/plan_check.h"
#include "anneal/engine/profiles.h"
#include "anneal/engine/run/debug.h"
#include "anneal/engine/run/engine_state.h"
#include "anneal/engine/run/make_engine.h"
#include "anneal/engine/run/memory/packed_memory.h"
#include "anneal/engine/run/memory/shared_packing.h"
#include "anneal/engine/run/packing_kernel.h"
#include "anneal/engine/run/planned_kernel.h"
#include "anneal/engine/slot_alignment.h"
#include "anneal/engine/symbols.h"
#include "anneal/kernels/cpu/backend.h"
#include "anneal/kernels/cuda/backend.h"

namespace anneal {
namespace {

constexpr size_t kFileAlignment = 64;  // of weights, counted from the beginning of the file

constexpr std::string_view kCpu = "cpu", kAuto = "auto";

// Whether a plan for `target` can run on `device`: it is for this kind of device and asks for no
// more than it has.
bool runs_on(const std::string& target, const Device& device) {
  if (target == device.target()) return true;
  if (is_cuda_target(target) != (device.kind() == DeviceKind::kCuda)) return false;
  if (device.kind() == DeviceKind::kCuda || target == kCpu) return true;
  try {
    return cpu_backend().open(target) != nullptr;
  } catch (const Error&) {
    return false;
  }
}

std::string targets_of(const EngineFile& file) {
  std::string targets;
  for (const Plan& plan : file.plans)
    if (plan.profile == 0) targets += (targets.empty() ? "" : ", ") + plan.target;
  return targets;
}

// The target of the plans made for this very device; else, of those that it can run, the last one
// for less than it is, so that a plan for sm_80 serves sm_86; else the first.
const std::string& choose_target(const EngineFile& file, const Device& device) {
  const Plan* chosen = nullptr;
  for (const Plan& plan : file.plans) {
    if (plan.target == device.target()) return plan.target;
    if (!runs_on(plan.target, device)) continue;
    const bool better = chosen && device.kind() == DeviceKind::kCuda &&
                        plan.target.size() == device.target().size() &&
                        plan.target < device.target() && plan.target > chosen->target;
    if (!chosen || better) chosen = &plan;
  }
  if (!chosen)
    fail(ErrorCode::kIncompatiblePlan,
         fmt::format("the engine holds plans for {}, and none runs on this device ({}): build it "
                     "for target {}",
                     targets_of(file), device.description(), device.target()));
  return chosen->target;
}

// "auto": a GPU if the engine has a plan for one and it is here, else the CPU.
std::unique_ptr<Device> open_device(const EngineFile& file, const std::string& wanted,
                                    std::vector<std::string>& remarks) {
  if (wanted != kAuto) {
    if (!is_cuda_target(wanted) && !wanted.starts_with(kCpu))
      fail(
          ErrorCode::kInvalidArgument,
          fmt::format("\"{}\" is no device: use auto, cpu, cpu:avx2 and the like, cuda, cuda:1 and "
                      "the like, or emulated",
                      wanted));
    if (!is_cuda_target(wanted)) return cpu_backend().open(wanted);
  }
  const auto has = [&](bool cuda) {
    return std::any_of(file.plans.begin(), file.plans.end(),
                       [&](const Plan& plan) { return is_cuda_target(plan.target) == cuda; });
  };
  const std::string_view elsewhere = has(false)
                                         ? "device cpu runs the engine on the CPU"
                                         : "device emulated runs the engine on the CPU, slowly";
  if (wanted != kAuto) {
    try {
      return cuda_backend().open(wanted);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kDevice) throw;
      fail(ErrorCode::kDevice, fmt::format("{}; {}", error.what(), elsewhere));
    }
  }
  if (!has(true)) return cpu_backend().open(kCpu);
  try {
    return cuda_backend().open("cuda");
  } catch (const Error& error) {
    if (!has(false))
      fail(ErrorCode::kDevice, fmt::format("the engine holds plans for {} only: {}; {}",
                                           targets_of(file), error.what(), elsewhere));
    remarks.push_back(fmt::format("runs on the CPU: {}", error.what()));
  }
  return cpu_backend().open(kCpu);
}

TensorInfo port_of(const Plan& plan, uint32_t index) {
  const Slot& slot = plan.slots[index];
  TensorInfo port{.name = slot.name, .dtype = slot.type.dtype};
  for (const Size size : port_shape(plan, index)) {
    port.dims.push_back(size.known() ? size.value() : -1);
    port.dim_names.push_back(plan.sizes->text(size));
    const Bounds bounds = plan.sizes->range(size);
    port.min_dims.push_back(bounds.min);
    port.max_dims.push_back(bounds.max);
  }
  return port;
}

bool is_number(const std::string& text) {
  return std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

// Takes what another profile allows as well.
void widen(TensorInfo& port, const TensorInfo& other) {
  for (int axis = 0; axis < port.dims.rank(); ++axis) {
    const auto i = static_cast<size_t>(axis);
    if (port.dims[axis] != other.dims[axis]) port.dims[axis] = -1;
    if (port.dim_names[i] != other.dim_names[i] && is_number(port.dim_names[i]))
      port.dim_names[i] = is_number(other.dim_names[i]) ? "?" : other.dim_names[i];
    port.min_dims[axis] = std::min(port.min_dims[axis], other.min_dims[axis]);
    port.max_dims[axis] = std::max(port.max_dims[axis], other.max_dims[axis]);
  }
}

// For all profiles together.
std::vector<TensorInfo> ports_of(std::span<const LoadedPlan> plans,
                                 std::vector<uint32_t> Plan::*ports) {
  std::vector<TensorInfo> infos;
  for (const LoadedPlan& loaded : plans) {
    const std::vector<uint32_t>& slots = loaded.plan->*ports;
    for (size_t i = 0; i < slots.size(); ++i)
      if (infos.size() < slots.size())
        infos.push_back(port_of(*loaded.plan, slots[i]));
      else
        widen(infos[i], port_of(*loaded.plan, slots[i]));
  }
  return infos;
}

struct Loading {
  const EngineFile& file;
  std::map<std::string, Tensor>& packed;  // by key and form: of plans that were loaded before
  PackedMemory& memory;                   // of packed constants, without an allocator
  std::span<const std::unique_ptr<Device>> devices;
  ThreadTeam& team;
  std::vector<std::string>& remarks;
  bool exact;                              // of the outermost plan
  std::shared_ptr<SharedPacking> packing;  // null: kernels pack their constants now
};

// Constants of a step that are in the file, or that another step of the engine has packed.
class LoadedConstants final : public PackedConstants {
 public:
  // packing: for the large ones, which the kernel packs again in each run; null: none.
  LoadedConstants(const Loading& loading, std::string key, SharedPacking* packing)
      : packed_(loading.packed),
        memory_(loading.memory),
        team_(loading.team),
        packing_(packing),
        key_(key),
        file_(loading.file, std::move(key)) {}
  std::optional<Tensor> find(std::string_view form, size_t bytes) override {
    if (packing_) return std::nullopt;
    if (auto found = file_.find(form, bytes)) return found;
    const auto found = packed_.find(key_ + std::string(form));
    if (found == packed_.end() || found->second.bytes().size() != bytes) return std::nullopt;
    return found->second;
  }
  void keep(std::string_view form, const Tensor& packed) override {
    if (!packing_) packed_.emplace(key_ + std::string(form), packed);
  }
  NewTensor allocate(size_t bytes, const std::shared_ptr<Allocator>& allocator) override {
    if (allocator) return PackedConstants::allocate(bytes, allocator);
    if (packing_)
      if (auto place = packing_->take(bytes, packed_again_, team_)) return *std::move(place);
    return memory_.allocate(bytes);
  }
  bool has_any_to_pack_again() const { return packed_again_ > 0; }

 private:
  std::map<std::string, Tensor>& packed_;
  PackedMemory& memory_;
  ThreadTeam& team_;
  SharedPacking* packing_;
  size_t packed_again_ = 0;  // bytes
  std::string key_;
  ReadyConstants file_;
};

// The kernel that the plan names, or why there is none.
KernelResult make_planned(const Loading& loading, const Plan& plan, const Step& step,
                          Device& device) {
  const bool on_card = device.kind() == DeviceKind::kCuda;
  const KernelEntry* entry = find_kernel(on_card ? cuda_backend() : cpu_backend(), step.kernel);
  if (!entry || entry->op != step.op.index()) return refuse("this library has no such kernel");
  const StepOperands operands = operands_of(loading.file, plan, step);
  Request request = request_of(plan, step, operands, device, &loading.team);
  SharedPacking* const packing = on_card ? nullptr : loading.packing.get();
  LoadedConstants ready(loading, packed_key(plan, step), packing);
  request.packed = &ready;
  request.packs_in_runs = packing != nullptr;
  std::unique_lock<std::mutex> lock;
  if (packing) lock = std::unique_lock(packing->mutex());
  KernelResult made = entry->make(request);
  if (!made || !ready.has_any_to_pack_again()) return made;
  return packing_kernel({loading.file, plan, step, *entry, device}, *std::move(made),
                        loading.packing);
}

// The next best one that takes the same views.
std::unique_ptr<Kernel> make_other(const Loading& loading, const Plan& plan, const Step& step,
                                   Device& device, const std::string& why) {
  KernelChoice chosen =
      other_kernel(loading.file, plan, step, device, loading.exact, &loading.team);
  if (!chosen.kernel)
    fail(ErrorCode::kIncompatiblePlan,
         fmt::format("no kernel runs step \"{}\" ({}): {}", step.name, to_string(step.op), why));
  loading.remarks.push_back(fmt::format("step \"{}\" runs on {} instead of {}: {}", step.name,
                                        chosen.entry->name, step.kernel, why));
  return std::move(chosen.kernel);
}

std::unique_ptr<Kernel> make_kernel(const Loading& loading, const Plan& plan, const Step& step,
                                    Device& device) {
  KernelResult made = make_planned(loading, plan, step, device);
  if (!made) return make_other(loading, plan, step, device, made.reason());
  auto kernel = *std::move(made);
  if (device.kind() != DeviceKind::kCuda) return kernel;
  const std::string why =
      know_alignments(*kernel, alignments_of(plan, step.inputs), alignments_of(plan, step.outputs));
  return why.empty() ? std::move(kernel) : make_other(loading, plan, step, device, why);
}

// Ascending.
std::vector<uint32_t> symbols_used(const Plan& plan) {
  std::vector<bool> seen(plan.sizes->expression_count()), used(plan.sizes->symbols().size());
  const auto add = [&](Size size) {
    if (size.known() || size.is_unknown() || seen[size.expression()]) return;
    seen[size.expression()] = true;
    for (const uint32_t symbol : plan.sizes->symbols_in(size)) used[symbol] = true;
  };
  for (const Slot& slot : plan.slots) {
    for (const Size size : slot.type.shape) add(size);
    for (const Size stride : slot.strides) add(stride);
    add(slot.base_offset);
  }
  for (const Step& step : plan.steps)
    if (const auto* tensor = std::get_if<SizeTensor>(&step.op))
      for (const Size size : tensor->elements) add(size);
  for (const Plan& body : plan.bodies)
    for (const uint32_t symbol : symbols_used(body)) used[symbol] = true;
  std::vector<uint32_t> symbols;
  for (uint32_t symbol = 0; symbol < used.size(); ++symbol)
    if (used[symbol]) symbols.push_back(symbol);
  return symbols;
}

// LoadedPlan::run_end
std::vector<size_t> run_ends(const Plan& plan, const std::vector<bool>& deferred) {
  const size_t host = plan.devices.size() - 1;
  std::vector<size_t> ends(plan.steps.size());
  size_t end = plan.steps.size();
  for (size_t i = plan.steps.size(); i-- > 0;) {
    const bool is_elsewhere = plan.steps[i].device != host, joins = is_elsewhere && !deferred[i];
    if (!joins) end = i;
    ends[i] = is_elsewhere && !joins ? i + 1 : end;
  }
  return ends;
}

bool is_data_dependent(const Plan& plan, uint32_t slot) {
  return slot != kNoSlot && plan.slots[slot].storage == Storage::kDataDependent;
}

// Kernels have packed copies: the file's pages need not be resident, too. Weights that kernels read
// in place are loaded again when they are read.
void give_weights_back(const EngineFile& file, const Plan& plan, const Step& step) {
  for (const uint32_t slot : step.inputs)
    if (slot != kNoSlot && plan.slots[slot].storage == Storage::kWeight)
      give_pages_back(file.weights[plan.slots[slot].offset]);
}

bool is_shaped_by_shapes(const Step& step) {
  for (size_t k = 0; k < step.op_input_count; ++k)
    if (step.inputs[k] != kNoSlot && is_host_value(step.op, static_cast<int>(k))) return false;
  return true;
}

// The first of the body's devices among those of the engine: it has all, or the CPU alone.
size_t first_device_of(const Plan& body, size_t devices) { return devices - body.devices.size(); }

// first_device: of the plan's among all devices.
LoadedPlan load_plan(const Loading& loading, const Plan& plan, size_t first_device) {
  const auto devices = loading.devices.subspan(first_device);
  LoadedPlan loaded;
  loaded.plan = &plan;
  loaded.first_device = first_device;
  loaded.kernels.reserve(plan.steps.size());
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    const Step& step = plan.steps[i];
    const auto late = [&](uint32_t slot) { return is_data_dependent(plan, slot); };
    loaded.deferred.push_back(std::any_of(step.inputs.begin(), step.inputs.end(), late) ||
                              std::any_of(step.outputs.begin(), step.outputs.end(), late));
    loaded.shaped_by_shapes.push_back(is_shaped_by_shapes(step));
    const bool no_kernel = !bodies_of(step.op).empty() || step.kernel == kTransfer ||
                           (std::holds_alternative<SizeTensor>(step.op) && step.epilogues.empty());
    loaded.kernels.push_back(no_kernel ? nullptr
                                       : make_kernel(loading, plan, step, *devices[step.device]));
    give_weights_back(loading.file, plan, step);
  }
  loaded.run_end = run_ends(plan, loaded.deferred);
  Loading of_bodies = loading;
  of_bodies.packing = nullptr;  // iterations would pack again
  for (const Plan& body : plan.bodies) {
    loaded.bodies.push_back(
        load_plan(of_bodies, body, first_device_of(body, loading.devices.size())));
    loaded.bodies.back().outer_symbols = symbols_used(body);
  }
  return loaded;
}

// Marks the weights that each device reads.
void mark_weights(const Plan& plan, size_t first_device, std::vector<std::vector<bool>>& used) {
  for (const Slot& slot : plan.slots)
    if (slot.storage == Storage::kWeight) used[first_device + slot.device][slot.offset] = true;
  for (const Plan& body : plan.bodies) mark_weights(body, first_device_of(body, used.size()), used);
}

// Each device's weights in one buffer.
std::unique_ptr<Buffer> upload(std::span<const Tensor> weights, const std::vector<bool>& used,
                               Device& device, std::vector<std::byte*>& places) {
  constexpr size_t kAlignment = 256;
  std::vector<size_t> offsets(weights.size());
  size_t bytes = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    if (!used[i]) continue;
    offsets[i] = bytes;
    bytes += align_up(weights[i].bytes().size(), kAlignment);
  }
  if (bytes == 0) return nullptr;
  auto buffer = device.allocate(bytes);
  const auto stream = device.make_stream();
  for (size_t i = 0; i < weights.size(); ++i) {
    if (!used[i]) continue;
    places[i] = buffer->data() + offsets[i];
    if (!weights[i].bytes().empty())
      device.copy(places[i], weights[i].bytes().data(), weights[i].bytes().size(), *stream);
  }
  stream->wait();
  return buffer;
}

// Each weight in a buffer of its own.
std::vector<std::unique_ptr<GuardedBuffer>> upload_apart(std::span<const Tensor> weights,
                                                         const std::vector<bool>& used,
                                                         Device& device, size_t zone,
                                                         std::vector<std::byte*>& places) {
  std::vector<std::unique_ptr<GuardedBuffer>> buffers(weights.size());
  const auto stream = device.make_stream();
  for (size_t i = 0; i < weights.size(); ++i) {
    if (!used[i]) continue;
    const std::span<const std::byte> bytes = weights[i].bytes();
    buffers[i] = std::make_unique<GuardedBuffer>(device, *stream, bytes.size(), zone);
    places[i] = buffers[i]->data();
    if (!bytes.empty()) device.copy(places[i], bytes.data(), bytes.size(), *stream);
  }
  stream->wait();
  return buffers;
}

// As GuardedBuffer takes it.
size_t zone_of(size_t bytes) {
  constexpr size_t kAlignment = 256, kMost = size_t{1} << 30;
  if (bytes > kMost)
    fail(ErrorCode::kInvalidArgument,
         fmt::format("red_zone is {} bytes: the maximum is {}", bytes, kMost));
  return align_up(bytes, kAlignment);
}

FileBytes copied(std::span<const std::byte> bytes, const std::shared_ptr<Allocator>& allocator) {
  const NewTensor copy =
      allocate_tensor(DataType::kU8, {static_cast<int64_t>(bytes.size())}, allocator);
  std::ranges::copy(bytes, copy.data.begin());
  return {copy.data, std::make_shared<const Tensor>(copy.tensor)};
}

FileBytes open_bytes(const std::string& path, const EngineOptions& options) {
  if (options.map) return map_file(path);
  FileBytes bytes = read_file(path);
  return options.allocator ? copied(bytes.bytes, options.allocator) : bytes;
}

WeightsSource open_weights(const EngineOptions& options) {
  if (options.weights.empty()) return {};
  return {WeightsSource::kApart, open_bytes(options.weights, options)};
}

int team_size(const EngineOptions& options) {
  if (options.threads < 0)
    fail(ErrorCode::kInvalidArgument,
         fmt::format("threads is {}: give 0 (one per core) or more", options.threads));
  return options.threads == 0 ? hardware_threads() : options.threads;
}

}  // namespace

Engine::Engine(std::unique_ptr<State> state) : state_(std::move(state)) {}
Engine::~Engine() = default;

std::shared_ptr<const Engine> Engine::load(const std::string& path, const EngineOptions& options) {
  return at_entry([&] {
    ThreadTeam team(team_size(options));
    const CustomOperators operators = load_kernel_libraries(options.libraries);
    return with_context(
        [&] { return fmt::format("while loading engine {}", path); },
        [&] {
          const FileBytes bytes = open_bytes(path, options);
          EngineFile file =
              load_engine_file(bytes.bytes, bytes.owner, &team, operators, open_weights(options));
          return EngineInternals::make(std::move(file), options, team,
                                       operators_given_twice(operators, Versions::kSame));
        });
  });
}

std::shared_ptr<const Engine> Engine::load(std::span<const std::byte> bytes,
                                           std::shared_ptr<const void> owner,
                                           const EngineOptions& options) {
  const auto load_bytes = [&] {
    ThreadTeam team(team_size(options));
    if (!owner || reinterpret_cast<uintptr_t>(bytes.data()) % kFileAlignment != 0) {
      FileBytes copy = copied(bytes, options.allocator);
      bytes = copy.bytes;
      owner = std::move(copy.owner);
    }
    const CustomOperators operators = load_kernel_libraries(options.libraries);
    EngineFile file = load_engine_file(bytes, owner, &team, operators, open_weights(options));
    return EngineInternals::make(std::move(file), options, team,
                                 operators_given_twice(operators, Versions::kSame));
  };
  return at_entry([&] {
    return with_context([] { return "while loading an engine from memory"; }, load_bytes);
  });
}

const Plan& plan_of(const Engine& engine, size_t profile) {
  return EngineInternals::plan(engine, profile);
}

size_t profile_count(const Engine& engine) { return EngineInternals::profile_count(engine); }

size_t profile_for(const Engine& engine, std::span<const std::optional<Dims>> input_dims) {
  std::vector<ProfileRange> ranges;
  for (size_t i = 0; i < profile_count(engine); ++i) ranges.push_back(range_of(plan_of(engine, i)));
  return choose_profile(ranges, input_dims).value_or(0);
}

std::span<const Tensor> weights_of(const Engine& engine) {
  return EngineInternals::weights(engine);
}

std::shared_ptr<const Engine> make_engine(EngineFile file, const EngineOptions& options) {
  ThreadTeam team(team_size(options));
  return EngineInternals::make(std::move(file), options, team, {});
}

void EngineInternals::load_weights(Engine::State& state) {
  const std::vector<Tensor>& weights = state.file.weights;
  std::vector<std::vector<bool>> used(state.devices.size(), std::vector<bool>(weights.size()));
  for (const LoadedPlan& loaded : state.plans) mark_weights(*loaded.plan, 0, used);
  for (size_t i = 0; i < state.devices.size(); ++i) {
    std::vector<std::byte*> places(weights.size());
    if (i + 1 == state.devices.size()) {
      for (size_t k = 0; k < weights.size(); ++k) places[k] = kernel_view(weights[k]).data;
    } else {
      with_context(
          [] { return "while loading the weights"; },
          [&] {
            if (state.red_zone)
              state.separate_weights.push_back(
                  upload_apart(weights, used[i], *state.devices[i], *state.red_zone, places));
            else
              state.weight_buffers.push_back(upload(weights, used[i], *state.devices[i], places));
          });
    }
    state.weights.push_back(std::move(places));
  }
  // Weights of other plans, and weights that cards have copies of.
  for (const Tensor& weight : weights) give_pages_back(weight);
}

std::shared_ptr<const Engine> EngineInternals::make(EngineFile file, const EngineOptions& options,
                                                    ThreadTeam& team,
                                                    std::vector<std::string> warnings) {
  auto state = std::make_unique<Engine::State>();
  state->warnings = std::move(warnings);
  state->file = std::move(file);
  if (options.debug != nullptr && options.debug->separate_slots)
    state->red_zone = zone_of(options.debug->red_zone);
  state->log = options.log;
  state->devices.push_back(open_device(state->file, options.device, state->warnings));
  const std::string& target = choose_target(state->file, *state->devices[0]);
  const Plan& first = *std::ranges::find(state->file.plans, target, &Plan::target);
  const bool on_card = state->devices[0]->kind() == DeviceKind::kCuda;
  if (first.devices.size() != (on_card ? 2 : 1))
    fail(ErrorCode::kIncompatiblePlan,
         fmt::format("the plan for {} names {} devices", target, first.devices.size()));
  if (on_card) state->devices.push_back(cpu_backend().open(first.devices[1]));
  if (options.allocator) use_allocator(*state->devices.back(), options.allocator);
  if (options.gpu_allocator && on_card)
    use_gpu_allocator(*state->devices[0], options.gpu_allocator);
  std::map<std::string, Tensor> packed;
  PackedMemory packed_memory;
  for (const Plan& plan : state->file.plans) {
    if (plan.target != target) continue;
    state->plans.push_back(load_plan({.file = state->file,
                                      .packed = packed,
                                      .memory = packed_memory,
                                      .devices = state->devices,
                                      .team = team,
                                      .remarks = state->warnings,
                                      .exact = plan.is_exact,
                                      .packing = state->file.packing},
                                     plan, 0));
    // Before the kernels of the next plan add their functions, whose code is with that plan.
    with_context([&] { return fmt::format("while loading the code of the plan for {}", target); },
                 [&] { state->devices[0]->prepare_code(plan.code); });
  }
  load_weights(*state);
  state->inputs = ports_of(state->plans, &Plan::inputs);
  state->outputs = ports_of(state->plans, &Plan::outputs);
  for (const auto [input, output] : first.states)
    state->inputs[input].state_output = state->outputs[output].name;
  // A profile whose sizes exclude a default value has none.
  for (const LoadedPlan& loaded : state->plans)
    for (size_t i = 0; i < loaded.plan->input_defaults.size(); ++i)
      if (const uint32_t value = loaded.plan->input_defaults[i]; value != kNoDefault)
        state->inputs[i].default_value = state->file.weights[value];
  if (state->log) {
    state->log(Severity::kInfo,
               fmt::format("loaded \"{}\", the plan for {} with {} steps, on {}", first.name,
                           target, first.steps.size(), state->devices[0]->description()));
    for (const std::string& warning : state->warnings) state->log(Severity::kWarning, warning);
  }
  return std::shared_ptr<const Engine>(new Engine(std::move(state)));
}

std::span<const TensorInfo> Engine::inputs() const { return state_->inputs; }
std::span<const TensorInfo> Engine::outputs() const { return state_->outputs; }
std::string Engine::device() const {
  return at_entry([&] { return state_->devices[0]->description(); });
}
std::span<const std::string> Engine::load_warnings() const { return state_->warnings; }

}  // namespace anneal
