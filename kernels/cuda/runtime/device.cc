#include "anneal/kernels/cuda/runtime/device.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>

#include "anneal/core/fail.h"
#include "anneal/kernels/cuda/api/libraries.h"
#include "anneal/kernels/cuda/code/code_image.h"
#include "anneal/kernels/cuda/code/jit.h"
#include "anneal/kernels/cuda/code/nvrtc.h"
#include "anneal/kernels/cuda/runtime/emulated_gpu.h"
#include "anneal/kernels/cuda/runtime/gpu_device.h"
#include "anneal/kernels/cuda/runtime/target_names.h"

namespace anneal::cuda {
namespace {

// To build for; what is built runs elsewhere.
class OfflineDevice final : public GpuDevice {
 public:
  OfflineDevice(int architecture, const DeviceSpec& spec)
      : GpuDevice(spec), architecture_(architecture) {}
  std::string target() const override { return fmt::format("sm_{}", architecture_); }
  bool takes_libraries() const override { return true; }
  std::string description() const override {
    return fmt::format("sm_{}, to build for, as on the {}", architecture_, spec().name);
  }
  std::unique_ptr<Buffer> allocate(size_t) override { refuse(); }
  std::unique_ptr<DeviceStream> make_stream() override { refuse(); }
  void copy(std::byte*, const std::byte*, size_t, DeviceStream&) override { refuse(); }

  std::vector<std::byte> prepare_code(std::span<const std::byte> image) override {
    const auto functions = code().functions();
    if (functions.empty()) return {};
    CodePart part = part_for(functions, architecture_);
    for (const CodePart& earlier : parts_of(image))
      if (earlier.architecture == part.architecture && earlier.names == part.names &&
          earlier.digests == part.digests)
        return code_image({&earlier, 1});
    part.cubin = compile_once(nvrtc_compiler(), program_of(functions), architecture_);
    return code_image({&part, 1});
  }

 private:
  [[noreturn]] void refuse() const {
    fail(ErrorCode::kDevice,
         fmt::format("sm_{} is only to build for: to run, open cuda or emulated", architecture_));
  }
  const int architecture_;
};

// The whole text as a number.
std::optional<int> number_of(std::string_view text) {
  int number = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failed != std::errc{} || end != text.data() + text.size() || number < 0) return std::nullopt;
  return number;
}

std::unique_ptr<Device> open_offline(int architecture) {
  const DeviceSpec* const spec = find_spec(architecture);
  if (spec == nullptr) {
    std::string known;
    for (const DeviceSpec& each : device_specs())
      known += fmt::format("{}sm_{}", known.empty() ? "" : ", ", each.architecture);
    fail(ErrorCode::kInvalidArgument,
         fmt::format("there are no kernels for sm_{}: use one of {}", architecture, known));
  }
  return std::make_unique<OfflineDevice>(architecture, *spec);
}

std::unique_ptr<Device> open_card(int ordinal) {
  const LibraryTable<Driver>& library = driver_library();
  if (!library.table)
    fail(ErrorCode::kDevice, fmt::format("there is no CUDA driver here ({})", library.why_not));
  return open_driver_device({.driver = *library.table,
                             .compiler = nvrtc_compiler(),
                             .ordinal = ordinal,
                             .name = fmt::format("cuda:{}", ordinal)});
}

std::unique_ptr<Device> open_emulated(bool counts) {
  const EmulatedGpu& gpu = emulated_gpu();
  // What it runs is code of this machine, which is never taken from a file.
  return open_driver_device({.driver = gpu.driver,
                             .compiler = counts ? gpu.counting_compiler : gpu.compiler,
                             .name = "emulated",
                             .keeps_images = false,
                             .target = "emulated",
                             .explain = gpu.fault,
                             .take_counts = gpu.take_counts,
                             .limit_access = gpu.limit_access});
}

template <class Mine, class Theirs>
Mine& as(Theirs& theirs) {
  auto* const mine = dynamic_cast<Mine*>(&theirs);
  check(mine != nullptr, "it is of the CUDA backend");
  return *mine;
}

}  // namespace

std::unique_ptr<Device> open_device(std::string_view target) {
  if (target == "emulated") return open_emulated(/*counts=*/false);
  if (target == kCountingTarget) return open_emulated(/*counts=*/true);
  if (target == "cuda") return open_card(0);
  if (target.starts_with("cuda:"))
    if (const auto ordinal = number_of(target.substr(5))) return open_card(*ordinal);
  if (target.starts_with("sm_"))
    if (const auto architecture = number_of(target.substr(3))) return open_offline(*architecture);
  fail(ErrorCode::kInvalidArgument,
       fmt::format("\"{}\" is no CUDA target: use cuda, cuda:1, emulated, or sm_90 to build for it",
                   target));
}

const DeviceSpec& spec_of(const Device& device) { return as<const GpuDevice>(device).spec(); }

GpuDevice& gpu_of(Device& device) { return as<GpuDevice>(device); }

GpuStream& gpu_stream_of(DeviceStream& stream) { return as<GpuStream>(stream); }

Code& code_of(Device& device) { return as<GpuDevice>(device).code(); }

void launch(DeviceStream& stream, const Function& function, const Geometry& geometry,
            Arguments& arguments) {
  as<GpuStream>(stream).launch(function, geometry, arguments);
}

std::byte* found_memory(DeviceStream& stream, Device& device, size_t bytes) {
  return gpu_stream_of(stream).found_memory(device, bytes);
}

void copy(DeviceStream& stream, std::byte* to, const std::byte* from, size_t bytes) {
  as<GpuStream>(stream).copy(to, from, bytes);
}

}  // namespace anneal::cuda
