#include "anneal/kernels/cuda/cudnn/cudnn_device.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <string_view>

#include "anneal/core/fail.h"
#include "anneal/core/file.h"
#include "anneal/kernels/cuda/cost/vendor_tactic.h"
#include "anneal/kernels/cuda/cudnn/plan_text.h"
#include "anneal/kernels/cuda/runtime/context.h"

namespace anneal::cuda {
namespace {

// The first that makes plans from properties in JSON.
constexpr uint32_t kOldestVersion = 91100;
constexpr uintmax_t kMostPropertyBytes = 1 << 16;
constexpr const char* kPropertiesVariable = "ANNEAL_CUDNN_PROPERTIES";

// JSON of the properties, for an architecture; or why there is none.
Result<std::string> properties_from(std::string_view name, int architecture) {
  if (const CardProperties* const card = find_card(name)) {
    if (card->architecture != architecture) return std::string();
    return json_of(*card);
  }
  const std::string path(name);
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored) ||
      std::filesystem::file_size(path, ignored) > kMostPropertyBytes)
    return refuse(
        fmt::format("{}: \"{}\" is neither a card that Anneal knows nor a file of at most {} bytes",
                    kPropertiesVariable, name, kMostPropertyBytes));
  const FileBytes file = read_file(path);
  const std::string json(reinterpret_cast<const char*>(file.bytes.data()), file.bytes.size());
  const auto figures = figures_of(json);
  if (!figures || !why_unsafe(json).empty())
    return refuse(
        fmt::format("{}: {} has no properties of a card, as anneal devices "
                    "--save-properties writes them",
                    kPropertiesVariable, name));
  return figures->architecture == architecture ? json : std::string();
}

// Of a device to build for.
Result<std::string> chosen_properties(const DeviceSpec& spec) {
  const char* const value = std::getenv(kPropertiesVariable);
  std::string_view left = value != nullptr ? value : "";
  while (!left.empty()) {
    const std::string_view name = left.substr(0, left.find(':'));
    left.remove_prefix(std::min(name.size() + 1, left.size()));
    if (name.empty()) continue;
    Result<std::string> json = properties_from(name, spec.architecture);
    if (!json || !json->empty()) return json;
  }
  if (const CardProperties* const card = find_card(spec.name)) return json_of(*card);
  return refuse(
      fmt::format("no properties of sm_{} are known to plan for: {} may name a file of "
                  "them",
                  spec.architecture, kPropertiesVariable));
}

// cuDNN asks the card itself, so that it may use more engines than for properties from a text.
Descriptor properties_of_card(CudnnCalls& calls, Context& context) {
  const auto current = context.enter();
  Descriptor properties = calls.make(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  calls.set(properties, CUDNN_ATTR_DEVICEPROP_DEVICE_ID, static_cast<int32_t>(context.device()));
  calls.finalize(properties, fmt::format("reading the properties of {}", context.name()));
  return properties;
}

std::string json_of_properties(CudnnCalls& calls, const Descriptor& properties) {
  const int64_t length =
      calls.count(properties, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR);
  const auto json = calls.get<char>(properties, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, length);
  std::string text(json.begin(), json.end());
  while (!text.empty() && text.back() == '\0') text.pop_back();
  return text;
}

void make_properties(CudnnDevice& found, GpuDevice& device) {
  CudnnCalls calls(*found.cudnn);
  if (const auto context = device.context()) {
    found.properties = properties_of_card(calls, *context);
    found.json = json_of_properties(calls, found.properties);
  } else {
    Result<std::string> json = chosen_properties(device.spec());
    if (!json) {
      found.why_not = json.reason();
      return;
    }
    found.json = *std::move(json);
    found.properties = calls.make(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
    calls.set_all<char>(found.properties, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, found.json);
    calls.finalize(found.properties, "reading the properties of the device");
  }
  found.why_not = calls.failure();
  const auto figures = figures_of(found.json);
  if (figures) found.figures = *figures;
  if (!figures && found.why_not.empty())
    found.why_not = "the properties of the device have no architecture";
}

std::shared_ptr<CudnnDevice> make_cudnn_device(GpuDevice& device) {
  auto found = std::make_shared<CudnnDevice>();
  if (!device.takes_libraries()) {
    found->why_not = "no library of NVIDIA runs on this device";
    return found;
  }
  const LibraryTable<Cudnn>& library = cudnn_library();
  if (!library.table) {
    found->why_not = library.why_not;
    return found;
  }
  found->cudnn = &*library.table;
  found->version = static_cast<uint32_t>(found->cudnn->cudnnGetVersion());
  if (found->version < kOldestVersion) {
    found->why_not = fmt::format("cuDNN {} is older than {}", library_version_text(found->version),
                                 library_version_text(kOldestVersion));
    return found;
  }
  try {
    make_properties(*found, device);
  } catch (const std::exception& error) {  // cuDNN's reader of JSON lets others pass
    found->why_not = error.what();
  }
  return found;
}

}  // namespace

const CudnnDevice& cudnn_of(GpuDevice& device) {
  return device.of_library<CudnnDevice>([&] { return make_cudnn_device(device); });
}

std::string read_properties(const Cudnn& cudnn, Context& context) {
  CudnnCalls calls(cudnn);
  std::string json = json_of_properties(calls, properties_of_card(calls, context));
  if (calls.failed()) fail(ErrorCode::kDevice, calls.failure());
  return json;
}

CudnnHandle::CudnnHandle(const Cudnn& cudnn, std::shared_ptr<Context> context)
    : cudnn_(cudnn), context_(std::move(context)) {
  const auto current = context_->enter();
  CudnnCalls calls(cudnn_);
  if (!calls.check(cudnn_.cudnnCreate(&handle_),
                   fmt::format("opening cuDNN on {}", context_->name())))
    fail(ErrorCode::kDevice, calls.failure());
}

CudnnHandle::~CudnnHandle() {
  if (handle_ == nullptr) return;
  if (const auto current = context_->enter_to_free()) cudnn_.cudnnDestroy(handle_);
}

void CudnnHandle::execute(CUstream stream, const Descriptor& plan, const Descriptor& pack) {
  const std::lock_guard lock(mutex_);
  CudnnCalls calls(cudnn_);
  if (!calls.check(cudnn_.cudnnSetStream(handle_, stream), "giving cuDNN a stream") ||
      !calls.check(cudnn_.cudnnBackendExecute(handle_, plan.handle(), pack.handle()),
                   "running a plan of cuDNN"))
    fail(ErrorCode::kDevice, fmt::format("{} on {}", calls.failure(), context_->name()));
}

CudnnHandle& cudnn_handle_of(GpuDevice& device) {
  const CudnnDevice& cudnn = cudnn_of(device);
  if (!cudnn.why_not.empty()) fail(ErrorCode::kDevice, cudnn.why_not);
  check(device.context() != nullptr, "it is a card");
  return device.of_library<CudnnHandle>(
      [&] { return std::make_shared<CudnnHandle>(*cudnn.cudnn, device.context()); });
}

}  // namespace anneal::cuda
