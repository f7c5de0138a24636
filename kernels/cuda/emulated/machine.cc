#include "anneal/kernels/cuda/emulated/machine.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace anneal::cuda {
namespace {

uint64_t memory_limit() {
  constexpr uint64_t kDefault = uint64_t{8} << 30;
  const char* const setting = std::getenv("ANNEAL_EMULATED_MEMORY");
  if (setting == nullptr) return kDefault;
  const std::string_view text = setting;
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.begin(), text.end(), number);
  const std::string_view unit(end, static_cast<size_t>(text.end() - end));
  constexpr std::string_view kUnits[] = {"", "K", "M", "G"};
  for (int i = 0; error == std::errc{} && i < 4; ++i)
    if (unit == kUnits[i] && number <= (~uint64_t{0} >> 10 * i >> 8)) return number << 10 * i;
  refuse(
      CUDA_ERROR_INVALID_VALUE,
      fmt::format("ANNEAL_EMULATED_MEMORY is \"{}\": give a number of bytes, or one with K, M or "
                  "G behind it",
                  text));
}

// Whether the variable has the other value, and not its default.
bool has_other(const char* name, std::string_view usual, std::string_view other) {
  const char* const setting = std::getenv(name);
  const std::string_view value = setting == nullptr ? usual : setting;
  if (value != usual && value != other)
    refuse(CUDA_ERROR_INVALID_VALUE,
           fmt::format("{} is \"{}\": it may be {} or {}", name, value, usual, other));
  return value == other;
}

EmulatedContext::CaptureFails capture_fails() {
  using enum EmulatedContext::CaptureFails;
  const char* const setting = std::getenv("ANNEAL_EMULATED_CAPTURE_FAILS");
  const std::string_view where = setting == nullptr ? "never" : setting;
  if (where == "never") return kNever;
  if (where == "begin") return kBegin;
  if (where == "launch") return kLaunch;
  if (where == "end") return kEnd;
  refuse(
      CUDA_ERROR_INVALID_VALUE,
      fmt::format("ANNEAL_EMULATED_CAPTURE_FAILS is \"{}\": it may be never, begin, launch or end",
                  where));
}

}  // namespace

void refuse(CUresult result, std::string text) { throw EmulatedRefusal{result, std::move(text)}; }

EmulatedContext::EmulatedContext()
    : memory(memory_limit(), !has_other("ANNEAL_EMULATED_BOUNDS", "tensors", "allocations")),
      runner(memory, has_other("ANNEAL_EMULATED_ORDER", "forward", "reversed")),
      capture_fails(cuda::capture_fails()),
      skips_kernels(has_other("ANNEAL_EMULATED_KERNELS", "run", "skip")) {}

bool EmulatedContext::is_known(uint64_t address) const {
  if (EmulatedMemory::is_device(address)) return true;
  const auto behind = host_bytes.upper_bound(address);
  return behind != host_bytes.begin() &&
         address - std::prev(behind)->first < std::prev(behind)->second;
}

bool EmulatedContext::is_whole(uint64_t address, size_t bytes) const {
  if (EmulatedMemory::is_device(address)) return memory.holds(address, bytes);
  if (!is_known(address)) return address != 0;
  const auto& [begin, size] = *std::prev(host_bytes.upper_bound(address));
  return bytes <= begin + size - address;
}

std::string EmulatedContext::describe(uint64_t address) const {
  if (EmulatedMemory::is_device(address) || !is_known(address)) return memory.describe(address);
  const auto& [begin, size] = *std::prev(host_bytes.upper_bound(address));
  return fmt::format("at byte {} of a host allocation of {} bytes", address - begin, size);
}

void EmulatedContext::check_range(const char* verb, uint64_t address, size_t bytes) const {
  if (!is_whole(address, bytes))
    refuse(CUDA_ERROR_INVALID_VALUE, fmt::format("{} {} bytes {}", verb, bytes, describe(address)));
}

void EmulatedContext::copy(EmulatedStream& stream, CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  check_range("copies from", from, bytes);
  check_range("copies to", to, bytes);
  const uint64_t apart = to > from ? to - from : from - to;
  if (apart < bytes)
    refuse(CUDA_ERROR_INVALID_VALUE,
           fmt::format("copies {} bytes to where they overlap with themselves", bytes));
  const bool knows_from = is_known(from), knows_to = is_known(to);
  stream.add([=, this](auto&) -> std::optional<EmulatedFault> {
    const auto gone = [&](const char* verb, uint64_t address) {
      return EmulatedFault{
          CUDA_ERROR_ILLEGAL_ADDRESS,
          fmt::format("copies {} {} bytes {}, freed meanwhile", verb, bytes, describe(address))};
    };
    if (knows_from && !(is_known(from) && is_whole(from, bytes))) return gone("from", from);
    if (knows_to && !(is_known(to) && is_whole(to, bytes))) return gone("to", to);
    std::memcpy(EmulatedMemory::host(to), EmulatedMemory::host(from), bytes);
    if (EmulatedMemory::is_device(to) != EmulatedMemory::is_device(from)) bus_bytes += bytes;
    return std::nullopt;
  });
}

void EmulatedContext::fill(EmulatedStream& stream, CUdeviceptr to, unsigned char value,
                           size_t bytes) {
  check_range("fills", to, bytes);
  if (!EmulatedMemory::is_device(to))
    refuse(CUDA_ERROR_INVALID_VALUE, "fills host memory as if it were the device's");
  stream.add([=, this](auto&) -> std::optional<EmulatedFault> {
    if (!memory.holds(to, bytes))
      return EmulatedFault{CUDA_ERROR_ILLEGAL_ADDRESS,
                           fmt::format("fills {} bytes {}", bytes, memory.describe(to))};
    std::memset(EmulatedMemory::host(to), value, bytes);
    return std::nullopt;
  });
}

void EmulatedContext::launch(EmulatedStream& stream, EmulatedFunction* function,
                             emulator::Index3 grid, emulator::Index3 block, unsigned shared_bytes,
                             void* const* parameters) {
  constexpr uint64_t kMostX = 0x7fffffff, kMostYZ = 65535;
  if (stream.captures() && capture_fails == CaptureFails::kLaunch) {
    stream.invalidate();
    refuse(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "the environment says that launches fail so");
  }
  const auto most_shared = functions.find(function);
  if (most_shared == functions.end())
    refuse(CUDA_ERROR_INVALID_HANDLE, "launches what is no function of a loaded module");
  const emulator::Entry& entry = *function->entry;
  const uint64_t threads = uint64_t{block.x} * block.y * block.z;
  if (grid.x == 0 || grid.y == 0 || grid.z == 0 || threads == 0 || grid.x > kMostX ||
      grid.y > kMostYZ || grid.z > kMostYZ)
    refuse(CUDA_ERROR_INVALID_VALUE,
           fmt::format("{} is launched with {} x {} x {} blocks of {} x {} x {} threads",
                       function->name, grid.x, grid.y, grid.z, block.x, block.y, block.z));
  if (block.x > 1024 || block.y > 1024 || block.z > 64 ||
      threads > static_cast<uint64_t>(entry.most_threads))
    refuse(CUDA_ERROR_INVALID_VALUE,
           fmt::format("{} is launched with {} x {} x {} threads in a block, {} at most",
                       function->name, block.x, block.y, block.z, entry.most_threads));
  if (shared_bytes > static_cast<unsigned>(most_shared->second))
    refuse(CUDA_ERROR_INVALID_VALUE,
           fmt::format("{} is launched with {} bytes of dynamic shared memory, {} at most",
                       function->name, shared_bytes, most_shared->second));
  if (skips_kernels) return;
  EmulatedLaunch launch{function, grid, block, shared_bytes, {}};
  for (int i = 0; i < entry.parameters; ++i) {
    uint64_t value = 0;
    std::memcpy(&value, parameters[i], entry.bytes[i]);
    launch.parameters.push_back(value);
  }
  stream.add([this, launch = std::move(launch)](std::vector<FunctionCounts>& counts) {
    return runner.run(launch, counts);
  });
}

void EmulatedContext::finish(std::optional<EmulatedFault> found) {
  if (!found) return;
  error = found->code;
  fault = found->text;
  refuse(error, fault);
}

void EmulatedContext::refuse_while_capturing() {
  for (const auto& [handle, stream] : streams)
    if (stream->forbids(std::this_thread::get_id(), callers_mode)) {
      stream->invalidate();
      refuse(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "not while a stream captures");
    }
}

}  // namespace anneal::cuda
