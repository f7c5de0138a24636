// A device behind a driver's table: a card, or the emulated device.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <exception>
#include <thread>
#include <unordered_map>
#include <utility>

#include "anneal/kernels/cuda/api/libraries.h"
#include "anneal/kernels/cuda/api/monitor.h"
#include "anneal/kernels/cuda/code/code_image.h"
#include "anneal/kernels/cuda/code/jit.h"
#include "anneal/kernels/cuda/runtime/card_spec.h"
#include "anneal/kernels/cuda/runtime/context.h"
#include "anneal/kernels/cuda/runtime/device.h"
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

// Of the application.
class GivenBuffer final : public Buffer {
 public:
  GivenBuffer(std::shared_ptr<Allocator> from, size_t bytes, const std::string& device)
      : from_(std::move(from)), bytes_(std::max(bytes, size_t{1})), size_(bytes) {
    data_ = static_cast<std::byte*>(from_->allocate(bytes_, kAlignment));
    if (data_ == nullptr)
      fail(ErrorCode::kOutOfMemory,
           fmt::format("the application's allocator has no {} bytes on {}", bytes, device));
    if (address(data_) % kAlignment == 0) return;
    from_->release(data_, bytes_);
    fail(ErrorCode::kInvalidArgument,
         fmt::format("the application's allocator gives memory on {} that is not aligned to {} "
                     "bytes",
                     device, kAlignment));
  }
  ~GivenBuffer() override { from_->release(data_, bytes_); }
  GivenBuffer(const GivenBuffer&) = delete;
  GivenBuffer& operator=(const GivenBuffer&) = delete;
  std::byte* data() override { return data_; }
  size_t size() const override { return size_; }

 private:
  static constexpr size_t kAlignment = 256;  // as cuMemAlloc()
  const std::shared_ptr<Allocator> from_;
  const size_t bytes_;  // as asked
  std::byte* data_ = nullptr;
  const size_t size_;
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

// One program of all, or several to compile side by side.
std::vector<std::vector<std::shared_ptr<Function>>> groups_of(
    const std::vector<std::shared_ptr<Function>>& functions, bool several) {
  constexpr size_t kInGroup = 8;
  const size_t step = several ? kInGroup : functions.size();
  std::vector<std::vector<std::shared_ptr<Function>>> groups;
  for (size_t i = 0; i < functions.size(); i += step)
    groups.emplace_back(
        functions.begin() + static_cast<ptrdiff_t>(i),
        functions.begin() + static_cast<ptrdiff_t>(std::min(i + step, functions.size())));
  return groups;
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
  // The emulated device compiles for the host, so that no file has its images.
  bool takes_libraries() const override { return keeps_images_; }
  std::shared_ptr<Context> context() const override { return context_; }
  std::string description() const override;
  std::unique_ptr<Buffer> allocate(size_t bytes) override {
    if (gpu_allocator())
      return std::make_unique<GivenBuffer>(gpu_allocator(), bytes, context_->name());
    return std::make_unique<DeviceBuffer>(context_, bytes);
  }
  std::unique_ptr<Buffer> allocate_staging(size_t bytes) override {
    return std::make_unique<StagingBuffer>(context_, bytes);
  }
  std::unique_ptr<DeviceStream> make_stream() override {
    return make_driver_stream(context_, take_counts_);
  }
  void copy(std::byte* to, const std::byte* from, size_t bytes, DeviceStream& stream) override {
    static_cast<void>(handle_of(stream, *context_));  // a stream of this device
    gpu_stream_of(stream).copy(to, from, bytes);
  }
  void limit_access(std::byte* begin, size_t bytes) override {
    if (limit_access_ == nullptr) return;
    const auto current = context_->enter();
    context_->check(limit_access_(address(begin), bytes),
                    fmt::format("limiting accesses to {} bytes", bytes));
  }
  std::vector<std::byte> prepare_code(std::span<const std::byte> image) override;
  std::string machine() const override;
  std::optional<unsigned> clock_mhz() const override;
  void compile_in_parallel(int threads) override { compile_threads_ = threads; }

 private:
  bool load(const CodePart& part, const std::vector<std::shared_ptr<Function>>& functions);
  using Functions = std::vector<std::shared_ptr<Function>>;
  CodePart compile(const Functions& functions) const;
  std::vector<CodePart> compile_parts(const std::vector<Functions>& groups) const;

  const Compiler& compiler_;
  const bool keeps_images_;
  TakeCounts* const take_counts_;
  const std::string target_;
  const int architecture_;
  CUresult (*const limit_access_)(CUdeviceptr, size_t);
  const std::shared_ptr<Context> context_;
  std::atomic<int> compile_threads_ = 1;
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

// All that times of kernels on the card depend on, in the order in which caches sort it.
std::string DriverDeviceImpl::machine() const {
  const Driver& driver = context_->driver();
  int version = 0;
  driver.cuDriverGetVersion(&version);
  const std::string release = read_cards({}).driver_version;
  std::string text =
      fmt::format("{}, {}, {} multiprocessors, driver {}for CUDA {}.{}",
                  text_of_driver(driver, context_->device()), target_,
                  context_->attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT),
                  release.empty() ? "" : release + " ", version / 1000, version % 1000 / 10);
  if (!keeps_images_) return text;
  int major = 0, minor = 0;
  if (const auto& nvrtc = nvrtc_library().table; nvrtc && nvrtc->nvrtcVersion(&major, &minor) == 0)
    text += fmt::format(", NVRTC {}.{}", major, minor);
  if (const auto& cudnn = cudnn_library().table)
    text += fmt::format(", cuDNN {}", cudnn->cudnnGetVersion());
  if (const auto& lt = cublas_lt_library().table)
    text += fmt::format(", cuBLASLt {}", lt->cublasLtGetVersion());
  return text;
}

std::optional<unsigned> DriverDeviceImpl::clock_mhz() const {
  if (!keeps_images_) return std::nullopt;
  constexpr int kIdBytes = 32;
  char id[kIdBytes] = {};
  const auto current = context_->enter();
  if (context_->driver().cuDeviceGetPCIBusId(id, kIdBytes, context_->device()) != CUDA_SUCCESS)
    return std::nullopt;
  const std::string bus_id = id;
  const Cards cards = read_cards({&bus_id, 1});
  return cards.cards.empty() ? std::nullopt : cards.cards[0].clock_mhz;
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
  CodePart part = part_for(functions, architecture_);
  part.cubin = compile_once(compiler_, program_of(functions), architecture_);
  return part;
}

// Each on the next free thread: NVRTC compiles on several at once.
std::vector<CodePart> DriverDeviceImpl::compile_parts(const std::vector<Functions>& groups) const {
  std::vector<CodePart> parts(groups.size());
  std::vector<std::exception_ptr> failed(groups.size());
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t i; (i = next++) < groups.size();) try {
        parts[i] = compile(groups[i]);
      } catch (...) {
        failed[i] = std::current_exception();
      }
  };
  std::vector<std::jthread> threads;
  const size_t count = std::min(groups.size(), static_cast<size_t>(compile_threads_.load()));
  for (size_t i = 1; i < count; ++i) threads.emplace_back(work);
  work();
  threads.clear();
  for (const std::exception_ptr& each : failed)
    if (each) std::rethrow_exception(each);
  return parts;
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
    const std::vector<Functions> groups = groups_of(missing, compile_threads_ > 1);
    std::vector<CodePart> parts = compile_parts(groups);
    for (size_t i = 0; i < groups.size(); ++i) {
      if (!load(parts[i], groups[i]))
        fail(ErrorCode::kDevice,
             fmt::format("{} does not take the code that {} makes for it: is its driver older than "
                         "this CUDA?",
                         context_->name(), compiler_.identity()));
      if (keeps_images_) parts_.push_back(std::move(parts[i]));
    }
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
