#include "anneal/kernels/cuda/cudnn/cudnn_kernel.h"

#include <fmt/format.h>

#include <memory>
#include <mutex>

#include "anneal/core/bytes.h"
#include "anneal/core/fail.h"
#include "anneal/core/hash/sha256.h"
#include "anneal/kernels/cuda/cost/vendor_tactic.h"
#include "anneal/kernels/cuda/cudnn/cudnn_device.h"
#include "anneal/kernels/cuda/cudnn/operation_graph.h"
#include "anneal/kernels/cuda/cudnn/plans.h"
#include "anneal/kernels/cuda/runtime/device.h"

namespace anneal::cuda {
namespace {

// A tactic: VendorTactic::bytes of cuDNN holds the last three.
struct RecordedPlan {
  uint32_t version = 0;
  uint64_t workspace_bytes = 0;
  PropertyFigures figures = {};  // of the device that the plan was made for
  std::string layer = {};        // names the graph
  std::string json = {};
};

std::vector<std::byte> bytes_of(const RecordedPlan& plan) {
  ByteWriter to;
  for (const int figure : {plan.figures.architecture, plan.figures.multiprocessors,
                           plan.figures.shared_bytes_per_block})
    to.number(static_cast<int32_t>(figure));
  to.text(plan.layer);
  to.text(plan.json);
  return to.take();
}

// Nullopt if the bytes, which may be any, are none.
std::optional<RecordedPlan> recorded_plan_of(std::span<const std::byte> tactic) {
  const auto vendor = vendor_tactic_of(tactic);
  if (!vendor) return std::nullopt;
  try {
    ByteReader from(vendor->bytes, "plan of cuDNN");
    RecordedPlan plan{.version = vendor->library_version,
                      .workspace_bytes = vendor->workspace_bytes};
    for (int* const figure : {&plan.figures.architecture, &plan.figures.multiprocessors,
                              &plan.figures.shared_bytes_per_block})
      *figure = from.number<int32_t>();
    plan.layer = from.text();
    plan.json = from.text();
    from.expect_end();
    return plan;
  } catch (const Error&) {
    return std::nullopt;
  }
}

// Two graphs of one name are the same.
std::string name_of(const Operations& operations) {
  const std::string text = to_string(operations);
  return hex(sha256(std::as_bytes(std::span(text)))).substr(0, 16);
}

Tactic tactic_of_plan(const CudnnPlan& plan, const CudnnDevice& device, std::string layer) {
  return tactic_of(
      {.library_version = device.version,
       .architecture = static_cast<uint32_t>(device.figures.architecture),
       .workspace_bytes = static_cast<uint64_t>(plan.workspace_bytes),
       .algorithm = plan.algorithm,
       .bytes =
           bytes_of({.figures = device.figures, .layer = std::move(layer), .json = plan.json})});
}

// A tensor of a plan's that has memory.
struct BoundTensor {
  int64_t id = 0;
  TensorPlace place = TensorPlace::kInput;
  int index = 0;
  float value = 0;
  std::shared_ptr<const std::vector<std::byte>> bytes = {};
  int64_t alignment = 1;
};

std::vector<BoundTensor> bound_tensors(const Operations& operations) {
  std::vector<BoundTensor> bound;
  for (size_t i = 0; i < operations.tensors.size(); ++i) {
    const CudnnTensor& each = operations.tensors[i];
    if (each.place != TensorPlace::kVirtual)
      bound.push_back(
          {unique_id(i), each.place, each.index, each.value, each.bytes, each.alignment});
  }
  return bound;
}

// A plan's memory of the last launch, which the next one mostly has as well.
struct PreparedPlan final : PreparedKernel {
  explicit PreparedPlan(CudnnHandle& used) : handle(used) {}
  CudnnHandle& handle;
  std::vector<void*> pointers;
  void* workspace = nullptr;
  Descriptor pack;
};

class CudnnKernel final : public Kernel {
 public:
  CudnnKernel(GpuDevice& device, const Cudnn& cudnn, CudnnPlan plan, Tactic tactic,
              std::vector<BoundTensor> bound)
      : device_(device),
        cudnn_(cudnn),
        plan_(std::move(plan)),
        tactic_(std::move(tactic)),
        bound_(std::move(bound)) {
    for (const BoundTensor& each : bound_) ids_.push_back(each.id);
  }

  std::vector<std::byte> tactic() const override { return tactic_; }

  // Alignments of the operands' memory; 0: not known.
  std::string why_misaligned(std::span<const uint32_t> inputs,
                             std::span<const uint32_t> outputs) const {
    for (const BoundTensor& each : bound_) {
      if (each.place != TensorPlace::kInput && each.place != TensorPlace::kOutput) continue;
      const auto known = (each.place == TensorPlace::kInput ? inputs : outputs);
      const auto alignment = static_cast<int64_t>(known[static_cast<size_t>(each.index)]);
      if (alignment == 0 || alignment % each.alignment != 0)
        return fmt::format("the plan reads {} bytes at once, and the memory may be less aligned",
                           each.alignment);
    }
    return {};
  }

  std::unique_ptr<PreparedKernel> prepare(std::span<const TensorView>, std::span<const TensorView>,
                                          int) const override {
    std::call_once(has_constants_, [&] { upload_constants(); });
    auto prepared = std::make_unique<PreparedPlan>(cudnn_handle_of(device_));
    if (plan_.workspace_bytes > 0)
      prepared->workspace_bytes = static_cast<size_t>(plan_.workspace_bytes) + kWorkspaceAlignment;
    return prepared;
  }

  void launch(const LaunchArgs& args) const override {
    auto& prepared = static_cast<PreparedPlan&>(*args.prepared);
    set_memory(prepared, args);
    gpu_stream_of(args.stream).call([&](CUstream stream) {
      prepared.handle.execute(stream, plan_.plan, prepared.pack);
    });
  }

 private:
  // Rounded constants, in a row.
  void upload_constants() const {
    size_t bytes = 0;
    for (const BoundTensor& each : bound_)
      if (each.bytes) bytes += aligned(each.bytes->size());
    if (bytes == 0) return;
    constants_ = device_.allocate(bytes);
    const auto stream = device_.make_stream();
    std::byte* to = constants_->data();
    for (const BoundTensor& each : bound_) {
      if (!each.bytes) continue;
      device_.copy(to, each.bytes->data(), each.bytes->size(), *stream);
      to += aligned(each.bytes->size());
    }
    stream->wait();
  }
  static size_t aligned(size_t bytes) { return (bytes + 63) / 64 * 64; }

  // cuDNN's pack of pointers, made anew where a launch has other memory than the last one.
  void set_memory(PreparedPlan& prepared, const LaunchArgs& args) const {
    void* const workspace =
        plan_.workspace_bytes == 0 ? nullptr : aligned_up(args.workspace, kWorkspaceAlignment);
    bool is_same = static_cast<bool>(prepared.pack) && prepared.workspace == workspace &&
                   prepared.pointers.size() == bound_.size();
    prepared.pointers.resize(bound_.size());
    std::byte* constant = constants_ ? constants_->data() : nullptr;
    for (size_t i = 0; i < bound_.size(); ++i) {
      void* const pointer = bound_[i].bytes ? constant : memory_of(bound_[i], args);
      if (bound_[i].bytes) constant += aligned(bound_[i].bytes->size());
      is_same = is_same && prepared.pointers[i] == pointer;
      prepared.pointers[i] = pointer;
    }
    if (is_same) return;
    prepared.workspace = workspace;
    prepared.pack = {};  // of other memory
    CudnnCalls calls(cudnn_);
    Descriptor pack = calls.make(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    calls.set_all<int64_t>(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, ids_);
    calls.set_pointers(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, prepared.pointers);
    calls.set_pointers(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, {&workspace, 1});
    calls.finalize(pack, "giving a plan its memory");
    if (calls.failed()) fail(ErrorCode::kDevice, calls.failure());
    prepared.pack = std::move(pack);
  }

  // As cudaMalloc() aligns, whose memory cuDNN's users mostly give it.
  static constexpr size_t kWorkspaceAlignment = 256;

  static void* memory_of(const BoundTensor& bound, const LaunchArgs& args) {
    if (bound.place == TensorPlace::kValue) return const_cast<float*>(&bound.value);
    const auto views = bound.place == TensorPlace::kInput ? args.inputs : args.outputs;
    std::byte* const data = views[static_cast<size_t>(bound.index)].data;
    if (reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(bound.alignment) != 0)
      fail(ErrorCode::kDevice,
           fmt::format("a plan of cuDNN reads {} bytes at once, and its memory is not aligned to "
                       "them: build without cuDNN's kernels for this layer",
                       bound.alignment));
    return data;
  }

  GpuDevice& device_;
  const Cudnn& cudnn_;
  const CudnnPlan plan_;
  const Tactic tactic_;
  const std::vector<BoundTensor> bound_;
  std::vector<int64_t> ids_;
  mutable std::once_flag has_constants_;
  mutable std::unique_ptr<Buffer> constants_;  // on the device
};

// Refuses a plan for other devices or of another version.
Result<CudnnPlan> load_recorded(const RecordedPlan& recorded, const Operations& operations,
                                const CudnnDevice& device) {
  if (recorded.version != device.version)
    return refuse(fmt::format("the plan is of cuDNN {}, and this one is {}",
                              library_version_text(recorded.version),
                              library_version_text(device.version)));
  if (recorded.figures != device.figures)
    return refuse(fmt::format("the plan is for {}, and this device is {}",
                              to_string(recorded.figures), to_string(device.figures)));
  Result<CudnnPlan> plan = load_plan(*device.cudnn, recorded.json, operations, device.properties);
  if (!plan) return plan;
  if (plan->workspace_bytes < 0 ||
      static_cast<uint64_t>(plan->workspace_bytes) > recorded.workspace_bytes)
    return refuse("the plan needs more workspace than its tactic says");
  if (plan->workspace_bytes > PlanChoice().most_workspace)
    return refuse(fmt::format("the plan needs {} bytes of workspace, and {} are allowed",
                              plan->workspace_bytes, PlanChoice().most_workspace));
  return plan;
}

// One graph of a layer, and its name.
struct LayerForm {
  Operations operations;
  std::string name;
};
// The forms of the layer, in the order in which they are worth a try: the second one where it
// differs.
Result<std::vector<LayerForm>> forms_of(const LayerOperations& layer) {
  std::vector<LayerForm> forms;
  for (const EpilogueForm bias : {EpilogueForm::kRewritten, EpilogueForm::kAsGiven}) {
    Result<Operations> operations = layer(bias);
    if (!operations) return refuse(operations.reason());
    std::string name = name_of(*operations);
    if (forms.empty() || forms[0].name != name)
      forms.push_back({*std::move(operations), std::move(name)});
  }
  return forms;
}

std::unique_ptr<Kernel> kernel_of(const Request& request, const CudnnDevice& device,
                                  const LayerForm& form, CudnnPlan plan, Tactic tactic) {
  return std::make_unique<CudnnKernel>(gpu_of(request.device), *device.cudnn, std::move(plan),
                                       std::move(tactic), bound_tensors(form.operations));
}

// Plans of one form; none where the reason says why.
struct FormPlans {
  const LayerForm* form = nullptr;
  CudnnPlans found;
};
FormPlans first_plan(const CudnnDevice& device, const std::vector<LayerForm>& forms) {
  FormPlans result;
  for (const LayerForm& form : forms) {
    result = {&form, find_plans(*device.cudnn, form.operations, device.properties, {.most = 1})};
    if (!result.found.plans.empty()) break;
  }
  return result;
}

KernelResult kernel_of_tactic(const Request& request, const CudnnDevice& device,
                              const std::vector<LayerForm>& forms) {
  const auto recorded = recorded_plan_of(request.tactic);
  if (!recorded) return refuse("a tactic that is none of this kernel's");
  for (const LayerForm& form : forms) {
    if (form.name != recorded->layer) continue;
    Result<CudnnPlan> plan = load_recorded(*recorded, form.operations, device);
    if (!plan) return refuse(plan.reason());
    return kernel_of(request, device, form, *std::move(plan),
                     Tactic(request.tactic.begin(), request.tactic.end()));
  }
  return refuse("the plan is of another layer");
}

}  // namespace

KernelResult make_cudnn_kernel(const Request& request, const LayerOperations& layer) {
  const CudnnDevice& device = cudnn_of(gpu_of(request.device));
  if (!device.why_not.empty()) return refuse(device.why_not);
  const auto forms = forms_of(layer);
  if (!forms) return refuse(forms.reason());
  if (!request.tactic.empty()) return kernel_of_tactic(request, device, *forms);
  auto [form, found] = first_plan(device, *forms);
  if (found.plans.empty()) return refuse(found.why_none);
  Tactic tactic = tactic_of_plan(found.plans[0], device, form->name);
  return kernel_of(request, device, *form, std::move(found.plans[0]), std::move(tactic));
}

std::string cudnn_misalignment(const Kernel& kernel, std::span<const uint32_t> inputs,
                               std::span<const uint32_t> outputs) {
  const auto* const mine = dynamic_cast<const CudnnKernel*>(&kernel);
  return mine == nullptr ? std::string() : mine->why_misaligned(inputs, outputs);
}

std::vector<Tactic> cudnn_tactics(const Request& request, const LayerOperations& layer) {
  const CudnnDevice& device = cudnn_of(gpu_of(request.device));
  if (!device.why_not.empty()) return {};
  const auto forms = forms_of(layer);
  if (!forms) return {};
  // Some of each form: kernels that cuDNN compiles for the second one may be faster.
  constexpr size_t kMost = 8, kOfFirstForm = 5;
  std::vector<Tactic> tactics;
  for (const LayerForm& form : *forms) {
    const bool has_more = &form != &forms->back();
    const size_t most = has_more ? kOfFirstForm : kMost - tactics.size();
    for (const CudnnPlan& plan :
         find_plans(*device.cudnn, form.operations, device.properties, {.most = most}).plans)
      tactics.push_back(tactic_of_plan(plan, device, form.name));
  }
  return tactics;
}

}  // namespace anneal::cuda
