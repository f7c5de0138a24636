// A device behind a driver's table: a card, or the emulated device.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <unordered_map>
#include <utility>

#include "anneal/kernels/cuda/code/code_image.h"
#include "anneal/kernels/cuda/code/jit.h"
#include "anneal/kernels/cuda/runtime/card_spec.h"
#include "anneal/kernels/cuda/runtime/context.h"
#include "anneal/kernels/cuda/runtime/driver_stream.h"
#include "anneal/kernels/cuda/runtime/gpu_device.h"

namespace anneal::cuda {
namespace {

CUdeviceptr address(const std::byte* data) { return reinterpret_cast<CUdeviceptr>(data); }

class DeviceBuffer final : public Buffer {
 public:
  DeviceBuffer(std::shared_ptr<Context> context, size_t bytes)
      : context_(std::move(context)), size_(bytes) {
    const auto current = context_->enter();
    const Driver& driver = context_->driver();
    const CUresult result = driver.cuMemAlloc(&data_, std::max(bytes, size_t{1}));
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
      size_t free = 0, total = 0;
      driver.cuMemGetInfo(&free, &total);
      fail(ErrorCode::kOutOfMemory,
           fmt::format("cannot allocate {} bytes on {}: {} of its {} bytes are free", bytes,
                       context_->name(), free, total));
    }
    context_->check(result, fmt::format("allocating {} bytes", bytes));
  }
  ~DeviceBuffer() override {
    if (const auto current = context_->enter_to_free()) context_->driver().cuMemFree(data_);
  }
  // A CUdeviceptr is an address that the host can hold.
  std::byte* data() override { return std::bit_cast<std::byte*>(data_); }
  size_t size() const override { return size_; }

 private:
  const std::shared_ptr<Context> context_;
  CUdeviceptr data_ = 0;
  size_t size_;
};

class StagingBuffer final : public Buffer {
 public:
  StagingBuffer(std::shared_ptr<Context> context, size_t bytes)
      : context_(std::move(context)), size_(bytes) {
    const auto current = context_->enter();
    const CUresult result =
        context_->driver().cuMemHostAlloc(&data_, std::max(bytes, size_t{1}), 0);
    if (result == CUDA_ERROR_OUT_OF_MEMORY)
      fail(ErrorCode::kOutOfMemory,
           fmt::format("cannot allocate {} bytes of page-locked host memory for {}", bytes,
                       context_->name()));
    context_->check(
        result, fmt::format("allocating {} bytes of page-locked host memory for copies", bytes));
  }
  ~StagingBuffer() override {
    if (const auto current = context_->enter_to_free()) context_->driver().cuMemFreeHost(data_);
  }
  std::byte* data() override { return static_cast<std::byte*>(data_); }
  size_t size() const override { return size_; }

 private:
  const std::shared_ptr<Context> context_;
  void* data_ = nullptr;
  size_t size_;
};

class Module {
 public:
  // Null handle, and the driver's answer, if it does not take the image.
  Module(std::shared_ptr<Context> context, std::span<const std::byte> image, CUresult& result)
      : context_(std::move(context)) {
    result = context_->driver().cuModuleLoadData(&handle_, image.data());
    if (result != CUDA_SUCCESS) handle_ = nullptr;
  }
  ~Module() {
    if (handle_ == nullptr) return;
    if (const auto current = context_->enter_to_free()) context_->driver().cuModuleUnload(handle_);
  }
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  // REQUIRES: it was loaded, and this thread has entered the context.
  LoadedFunction function(const std::string& name) const {
    const Driver& driver = context_->driver();
    LoadedFunction loaded;
    context_->check(driver.cuModuleGetFunction(&loaded.handle, handle_, name.c_str()),
                    fmt::format("looking for function {}", name));
    const auto attribute = [&](CUfunction_attribute what) {
      int value = 0;
      context_->check(driver.cuFuncGetAttribute(&value, what, loaded.handle),
                      fmt::format("asking about function {}", name));
      return static_cast<uint32_t>(value);
    };
    loaded.most_threads = attribute(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
    const uint32_t fixed = attribute(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
    const auto most = static_cast<uint32_t>(
        context_->attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN));
    loaded.most_shared_bytes = most > fixed ? most - fixed : 0;
    // Without this a launch may ask for 48 KiB at most.
    context_->check(
        driver.cuFuncSetAttribute(loaded.handle, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                  static_cast<int>(loaded.most_shared_bytes)),
        fmt::format("allowing shared memory to function {}", name));
    return loaded;
  }

 private:
  const std::shared_ptr<Context> context_;
  CUmodule handle_ = nullptr;
};

std::string text_of_driver(const Driver& driver, CUdevice device) {
  char name[256] = {};
  if (driver.cuDeviceGetName(name, sizeof(name) - 1, device) != CUDA_SUCCESS) return "unnamed";
  return name;
}

class DriverDeviceImpl final : public GpuDevice {
 public:
  DriverDeviceImpl(const DriverDevice& what, std::shared_ptr<Context> context, int architecture,
                   const DeviceSpec& spec)
      : GpuDevice(spec),
        compiler_(what.compiler),
        keeps_images_(what.keeps_images),
        take_counts_(what.take_counts),
        target_(what.target.empty() ? fmt::format("sm_{}", architecture) : what.target),
        architecture_(architecture),
        limit_access_(what.limit_access),
        context_(std::move(context)) {}

  std::string target() const override { return target_; }
  std::string description() const override;
  std::unique_ptr<Buffer> allocate(size_t bytes) override {
    return std::make_unique<DeviceBuffer>(context_, bytes);
  }
  std::unique_ptr<Buffer> allocate_staging(size_t bytes) override {
    return std::make_unique<StagingBuffer>(context_, bytes);
  }
  std::unique_ptr<DeviceStream> make_stream() override {
    return make_driver_stream(context_, take_counts_);
  }
  void copy(std::byte* to, const std::byte* from, size_t bytes, DeviceStream& stream) override {
    if (bytes == 0) return;
    const CUstream handle = handle_of(stream, *context_);
    const auto current = context_->enter();
    // The driver knows from the addresses which way it goes.
    context_->check(context_->driver().cuMemcpyAsync(address(to), address(from), bytes, handle),
                    fmt::format("copying {} bytes", bytes));
  }
  void limit_access(std::byte* begin, size_t bytes) override {
    if (limit_access_ == nullptr) return;
    const auto current = context_->enter();
    context_->check(limit_access_(address(begin), bytes),
                    fmt::format("limiting accesses to {} bytes", bytes));
  }
  std::vector<std::byte> prepare_code(std::span<const std::byte> image) override;

 private:
  bool load(const CodePart& part, const std::vector<std::shared_ptr<Function>>& functions);
  CodePart compile(const std::vector<std::shared_ptr<Function>>& functions) const;

  const Compiler& compiler_;
  const bool keeps_images_;
  TakeCounts* const take_counts_;
  const std::string target_;
  const int architecture_;
  CUresult (*const limit_access_)(CUdeviceptr, size_t);
  const std::shared_ptr<Context> context_;
  std::mutex mutex_;  // of the members below
  std::vector<CodePart> parts_;
  std::vector<std::unique_ptr<Module>> modules_;
  std::unordered_map<std::string, LoadedFunction> loaded_;  // by name
};

std::string DriverDeviceImpl::description() const {
  const Driver& driver = context_->driver();
  int version = 0;
  size_t bytes = 0;
  driver.cuDriverGetVersion(&version);
  driver.cuDeviceTotalMem(&bytes, context_->device());
  return fmt::format("{}, sm_{}, {} multiprocessors, {:.1f} GiB, driver for CUDA {}.{}",
                     context_->name(), architecture_,
                     context_->attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT),
                     static_cast<double>(bytes) / (1 << 30), version / 1000, version % 1000 / 10);
}

// False if the driver does not take this machine code.
bool DriverDeviceImpl::load(const CodePart& part,
                            const std::vector<std::shared_ptr<Function>>& functions) {
  const auto current = context_->enter();
  CUresult result = CUDA_SUCCESS;
  auto module = std::make_unique<Module>(context_, part.cubin, result);
  if (result == CUDA_ERROR_NO_BINARY_FOR_GPU || result == CUDA_ERROR_INVALID_IMAGE) return false;
  context_->check(result, "loading device code");
  // All functions before any is registered: a module that lacks one is unloaded again.
  std::vector<LoadedFunction> found;
  for (const auto& function : functions)
    if (function->handle == nullptr) found.push_back(module->function(function->name));
  modules_.push_back(std::move(module));
  auto next = found.begin();
  for (const auto& function : functions)
    if (function->handle == nullptr)
      function->handle = &loaded_.insert_or_assign(function->name, *next++).first->second;
  return true;
}

CodePart DriverDeviceImpl::compile(const std::vector<std::shared_ptr<Function>>& functions) const {
  CodePart part;
  for (const auto& function : functions) part.names.push_back(function->name);
  const std::string program = program_of(functions);
  part.architecture = architecture_;
  part.digest = sha256(std::as_bytes(std::span(program)));
  part.cubin = compile_once(compiler_, program, architecture_);
  return part;
}

std::vector<std::byte> DriverDeviceImpl::prepare_code(std::span<const std::byte> image) {
  const std::lock_guard lock(mutex_);
  const auto functions = code().functions();
  for (const auto& function : functions) {
    if (function->handle != nullptr) continue;  // and other threads may be launching it
    if (const auto known = loaded_.find(function->name); known != loaded_.end())
      function->handle = &known->second;
  }
  const auto lacking = [&] {
    std::vector<std::shared_ptr<Function>> found;
    for (const auto& function : functions)
      if (function->handle == nullptr) found.push_back(function);
    return found;
  };
  if (keeps_images_)
    for (CodePart& part : parts_of(image)) {
      if (!runs_on(part.architecture, architecture_)) continue;
      const auto held = functions_of(part, functions);
      const bool wanted =
          std::any_of(held.begin(), held.end(), [](const auto& f) { return f->handle == nullptr; });
      if (wanted && load(part, held)) parts_.push_back(std::move(part));
    }
  if (const auto missing = lacking(); !missing.empty()) {
    CodePart part = compile(missing);
    if (!load(part, missing))
      fail(ErrorCode::kDevice,
           fmt::format("{} does not take the code that {} makes for it: is its driver older than "
                       "this CUDA?",
                       context_->name(), compiler_.identity()));
    if (keeps_images_) parts_.push_back(std::move(part));
  }
  return parts_.empty() ? std::vector<std::byte>{} : code_image(parts_);
}

}  // namespace

std::unique_ptr<Device> open_driver_device(const DriverDevice& what) {
  const Driver& driver = what.driver;
  if (const CUresult result = driver.cuInit(0); result != CUDA_SUCCESS)
    fail(ErrorCode::kDevice,
         fmt::format("{} cannot be opened ({})", what.name, error_text(driver, result)));
  int count = 0;
  check(driver, driver.cuDeviceGetCount(&count), "counting devices");
  if (what.ordinal >= count)
    fail(ErrorCode::kDevice, fmt::format("there is no {}: this machine has {} CUDA device{}",
                                         what.name, count, count == 1 ? "" : "s"));
  CUdevice device = 0;
  check(driver, driver.cuDeviceGet(&device, what.ordinal), fmt::format("opening {}", what.name));
  auto context = std::make_shared<Context>(
      driver, device, fmt::format("{} ({})", what.name, text_of_driver(driver, device)),
      what.explain);
  const CardFigures figures = figures_of(*context);
  const int architecture = figures.architecture;
  // Its name lives in the context, which the device holds.
  const auto spec = spec_of_card(figures, context->name());
  if (!spec)
    fail(ErrorCode::kDevice,
         fmt::format("{} is of architecture sm_{}, which there are no kernels for: they begin at "
                     "sm_{}",
                     context->name(), architecture, device_specs().front().architecture));
  return std::make_unique<DriverDeviceImpl>(what, std::move(context), architecture, *spec);
}

}  // namespace anneal::cuda
