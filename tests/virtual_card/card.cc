#include "anneal/tests/virtual_card/card.h"

#include <fmt/format.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

#include "anneal/core/hash/sha256.h"
#include "anneal/kernels/cuda/cost/device_spec.h"
#include "anneal/tests/virtual_card/ptx/decode.h"

namespace anneal::virtual_card {
namespace {

// CUDA_ERROR_STREAM_CAPTURE_IMPLICIT
constexpr auto kImplicit = static_cast<CUresult>(906);
constexpr int kFixedShared = 48 * 1024;  // without CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES

const char* setting(const char* name, const char* otherwise) {
  const char* const value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : otherwise;
}

const DeviceSpec& spec() {
  static const DeviceSpec& found = [&]() -> const DeviceSpec& {
    const DeviceSpec* const known = find_spec(std::atoi(setting("ANNEAL_VIRTUAL_CARD_SM", "90")));
    if (known == nullptr) report_violation("ANNEAL_VIRTUAL_CARD_SM names no known architecture");
    return *known;
  }();
  return found;
}

bool is_device_address(uint64_t address) { return address >= ptx::kFirstAddress; }

// Host memory that may have been unmapped since the call.
std::vector<std::byte> read_host(uint64_t from, size_t bytes, const std::string& call) {
  std::vector<std::byte> read(bytes);
  const iovec to{read.data(), bytes}, source{reinterpret_cast<void*>(from), bytes};
  if (process_vm_readv(getpid(), &to, 1, &source, 1, 0) != static_cast<ssize_t>(bytes))
    report_violation(call + ": the host memory was freed before the copy was done");
  return read;
}
bool can_read(void* to, const void* from, size_t bytes) {
  const iovec target{to, bytes}, source{const_cast<void*>(from), bytes};
  return process_vm_readv(getpid(), &target, 1, &source, 1, 0) == static_cast<ssize_t>(bytes);
}
void write_host(uint64_t to, const std::byte* from, size_t bytes, const std::string& call) {
  const iovec source{const_cast<std::byte*>(from), bytes},
      target{reinterpret_cast<void*>(to), bytes};
  if (process_vm_writev(getpid(), &source, 1, &target, 1, 0) != static_cast<ssize_t>(bytes))
    report_violation(call + ": the host memory was freed before the copy was done");
}

// By the digest of its cubin. Parsed once in a process.
ptx::TextModule& text_of(std::span<const std::byte> cubin) {
  // Not destroyed: work may be under way while the process ends.
  static auto& known = *new std::map<std::string, std::unique_ptr<ptx::TextModule>>;
  const std::string name = hex(sha256(cubin));
  auto& module = known[name];
  if (module != nullptr) return *module;
  const std::string path = fmt::format("{}/{}.ptx", setting("ANNEAL_VIRTUAL_CARD_PTX", "."), name);
  std::ifstream file(path);
  if (!file)
    throw Refusal{CUDA_ERROR_INVALID_IMAGE,
                  fmt::format("there is no PTX {}: the cubin was not compiled by the virtual "
                              "card's NVRTC; empty ANNEAL_CACHE_DIR",
                              path)};
  std::stringstream text;
  text << file.rdbuf();
  module = std::make_unique<ptx::TextModule>(ptx::parse(text.str()));
  return *module;
}

size_t bytes_of_cubin(const void* image) {
  // The section table is the last part of NVRTC's files.
  uint64_t table = 0;
  uint16_t entry_bytes = 0, entries = 0, segment_bytes = 0, segments = 0;
  uint64_t segment_table = 0;
  const auto* const bytes = static_cast<const std::byte*>(image);
  std::memcpy(&segment_table, bytes + 32, 8);
  std::memcpy(&table, bytes + 40, 8);
  std::memcpy(&segment_bytes, bytes + 54, 2);
  std::memcpy(&segments, bytes + 56, 2);
  std::memcpy(&entry_bytes, bytes + 58, 2);
  std::memcpy(&entries, bytes + 60, 2);
  return std::max(table + uint64_t{entry_bytes} * entries,
                  segment_table + uint64_t{segment_bytes} * segments);
}

}  // namespace

HostMemory Context::take_host(size_t bytes) {
  constexpr size_t kLeastReused = 1 << 20;  // so that freed memory has room for what comes next
  if (!freed_host.empty() && freed_host.back().capacity >= bytes) {
    HostMemory reused = std::move(freed_host.back());
    freed_host.pop_back();
    return reused;
  }
  const size_t capacity = reuses_addresses ? std::max(bytes, kLeastReused) : bytes;
  return {.memory = std::make_unique<std::byte[]>(capacity), .capacity = capacity};
}

Place place_of(Context& context, uint64_t address, size_t bytes, const std::string& call) {
  const uint64_t owner = (address - ptx::kFirstAddress) >> 56;
  if (owner != static_cast<uint64_t>(context.device))
    report_violation(fmt::format("{}: {:#x} is memory of device {}, and device {} is current", call,
                                 address, owner, context.device));
  ptx::GlobalMemory::Allocation* const found = context.memory.find(address);
  if (found == nullptr || bytes > found->bytes - (address - found->address))
    throw Refusal{
        CUDA_ERROR_INVALID_VALUE,
        fmt::format("{}: {} bytes at {:#x} are not in one allocation", call, bytes, address)};
  return {found, address - found->address};
}

CUresult result_of(ptx::Fault::Kind kind) {
  switch (kind) {
    case ptx::Fault::kAddress:
      return CUDA_ERROR_ILLEGAL_ADDRESS;
    case ptx::Fault::kMisaligned:
      return CUDA_ERROR_MISALIGNED_ADDRESS;
    case ptx::Fault::kEndless:
      return CUDA_ERROR_LAUNCH_TIMEOUT;
    case ptx::Fault::kUndefined:
      break;
  }
  return CUDA_ERROR_LAUNCH_FAILED;
}

std::vector<std::byte> read_unchanged(uint64_t from, size_t bytes, const std::string& call,
                                      std::optional<uint64_t> hash) {
  std::vector<std::byte> data = read_host(from, bytes, call);
  if (hash && hash_of(data.data(), bytes) != *hash)
    report_violation(call + ": the host memory changed before the copy was done");
  return data;
}

void report_violation(const std::string& what) {
  std::fprintf(stderr, "virtual card: %s\n", what.c_str());
  std::fflush(stderr);
  std::abort();
}

Machine::Machine()
    : seed(static_cast<uint64_t>(std::atoll(setting("ANNEAL_VIRTUAL_CARD_SEED", "0")))),
      queues(mutex, seed) {
  devices.resize(static_cast<size_t>(std::atoi(setting("ANNEAL_VIRTUAL_CARD_COUNT", "1"))));
  if (*setting("ANNEAL_VIRTUAL_CARD_TRUNCATES", "0") == '1')
    arithmetic.tensor_sums = ptx::TensorSums::kCut;
  else if (std::string_view(setting("ANNEAL_VIRTUAL_CARD_SUMS", "")) == "in_order")
    arithmetic.tensor_sums = ptx::TensorSums::kInOrder;
  queues.order().set_threads_apart(*setting("ANNEAL_VIRTUAL_CARD_THREADS_APART", "0") == '1');
  reads_pageable_late = std::string_view(setting("ANNEAL_VIRTUAL_CARD_PAGEABLE", "")) == "late";
  arithmetic.approximate_ulps = std::atoi(setting("ANNEAL_VIRTUAL_CARD_ULPS", "0"));
}

Machine& machine() {
  static Machine* const only = new Machine;  // threads may call while the process ends
  return *only;
}

namespace {

struct ThreadOfTheHost {
  ThreadOfTheHost() { machine().queues.order().begin_thread(); }
  ~ThreadOfTheHost() {
    const std::lock_guard lock(machine().mutex);
    machine().queues.order().end_thread();
    const auto found = machine().callers.find(std::this_thread::get_id());
    if (found == machine().callers.end()) return;
    if (!found->second.contexts.empty())
      report_violation(fmt::format("a thread ends, and the context of device {} is still current",
                                   found->second.contexts.back()->device));
    if (found->second.mode != CU_STREAM_CAPTURE_MODE_GLOBAL)
      report_violation("a thread ends, and its capture mode is not what it was");
    machine().callers.erase(found);
  }
};

}  // namespace

Caller& caller() {
  thread_local const ThreadOfTheHost thread;
  static_cast<void>(thread);
  return machine().callers[std::this_thread::get_id()];
}

int architecture() { return spec().architecture; }

int attribute_of(CUdevice_attribute attribute) {
  const DeviceSpec& card = spec();
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y:
      return 1024;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z:
      return 64;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X:
      return 0x7fffffff;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y:
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z:
      return 65535;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK:
      return kFixedShared;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE:
      return ptx::kLanes;
    case CU_DEVICE_ATTRIBUTE_CLOCK_RATE:
      return static_cast<int>(card.f32_flops / card.multiprocessors / 256 / 1000);
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
      return card.multiprocessors;
    case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE:
      return 1000000;
    case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH:
      return static_cast<int>(card.bandwidth / 2 / 1e9 * 8);
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE:
      return card.l2_bytes;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR:
      return card.threads_per_multiprocessor;
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
      return 1;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      return card.architecture / 10;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
      return card.architecture % 10;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR:
      return card.shared_bytes_per_multiprocessor;
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR:
      return card.registers_per_multiprocessor;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
      return card.shared_bytes_per_block;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR:
      return card.blocks_per_multiprocessor;
  }
  throw Refusal{CUDA_ERROR_INVALID_VALUE, "an attribute that the virtual card does not know"};
}

void Context::check() {
  if (error != CUDA_SUCCESS) throw Refusal{error, fault};
}

uint64_t Context::page_locked(uint64_t begin, uint64_t end) const {
  const auto after = host.upper_bound(begin);
  if (after == host.begin()) return 0;
  const auto& [from, memory] = *std::prev(after);
  return end <= from + memory.bytes ? memory.number : 0;
}

Context::Context(int of_device, uint64_t first_address)
    : device(of_device),
      memory(first_address, *setting("ANNEAL_VIRTUAL_CARD_REUSES", "0") == '1'),
      reuses_addresses(*setting("ANNEAL_VIRTUAL_CARD_REUSES", "0") == '1') {
  default_stream = machine().queues.make(*this);
  streams_made = 0;
  default_stream->name = fmt::format("the default stream of device {}", device);
  default_stream->is_default = true;
}

Context::~Context() {
  for (const auto& [handle, stream] : streams) machine().queues.destroy(stream);
  machine().queues.destroy(default_stream);
}

std::string Context::what_is_left() const {
  std::string list;
  const auto add = [&](size_t count, const char* what) {
    if (count != 0) list += fmt::format("{}{} {}", list.empty() ? "" : ", ", count, what);
  };
  add(memory.count() - module_variables, "allocations");
  add(host.size(), "page-locked buffers");
  add(streams.size(), "streams");
  add(events.size(), "events");
  add(modules.size(), "modules");
  add(graphs.size() + executables.size(), "graphs");
  return list;
}

void give(const std::shared_ptr<Stream>& stream, Work work) {
  if (stream->is_default)
    for (const auto& [handle, other] : stream->context->streams)
      if (other->is_blocking && other->capture != nullptr) {
        other->capture->is_valid = false;
        throw Refusal{kImplicit, fmt::format("{} on the default stream during a capture of a "
                                             "blocking stream",
                                             work.call)};
      }
  if (stream->capture != nullptr)
    stream->capture->graph->works.push_back(std::move(work));
  else
    machine().queues.add(stream, std::move(work));
}

Module::~Module() {
  for (const auto& [name, address] : variables) {
    context->memory.release(address);
    --context->module_variables;
  }
}

std::shared_ptr<Module> load_module(Context& context, const void* image) {
  const auto* const bytes = static_cast<const std::byte*>(image);
  if (std::memcmp(bytes,
                  "\x7f"
                  "ELF",
                  4) != 0)
    throw Refusal{CUDA_ERROR_INVALID_IMAGE, "the image is no cubin"};
  const std::span cubin(bytes, bytes_of_cubin(image));
  if (!is_whole_cubin(cubin)) throw Refusal{CUDA_ERROR_INVALID_IMAGE, "the cubin is damaged"};
  auto module = std::make_shared<Module>();
  module->context = &context;
  module->text = &text_of(cubin);
  if (module->text->architecture / 10 != architecture() / 10 ||
      module->text->architecture > architecture())
    throw Refusal{CUDA_ERROR_NO_BINARY_FOR_GPU,
                  fmt::format("a cubin for sm_{} on a card of sm_{}", module->text->architecture,
                              architecture())};
  for (const ptx::Variable& variable : module->text->global) {
    if (variable.bytes == 0) continue;
    const uint64_t address = context.memory.allocate(variable.bytes);
    ++context.module_variables;
    module->variables[variable.name] = address;
    const Place place = place_of(context, address, variable.bytes, "loading a module");
    std::memset(place.written(), 1, variable.bytes);
    std::memset(place.data(), 0, variable.bytes);
    std::ranges::copy(variable.values, place.data());
  }
  for (const FunctionResources& resources : resources_of(cubin)) {
    const auto found =
        std::ranges::find(module->text->functions, resources.name, &ptx::TextFunction::name);
    if (found == module->text->functions.end())
      report_violation(fmt::format("the PTX has no function {}", resources.name));
    auto function = std::make_shared<Function>();
    function->module = module.get();
    try {
      function->code = ptx::decode(*module->text, *found, module->variables);
    } catch (const ptx::Refused& refused) {
      report_violation(refused.what());
    }
    function->resources = resources;
    module->functions[resources.name] = std::move(function);
  }
  return module;
}

void launch(const std::shared_ptr<Stream>& stream, const std::shared_ptr<Function>& function,
            ptx::Dim3 grid, ptx::Dim3 block, unsigned shared_bytes, void** parameters) {
  const ptx::Function& code = function->code;
  const auto refuse = [&](CUresult result, std::string why) {
    throw Refusal{result, fmt::format("launching {}: {}", code.name, why)};
  };
  const auto most = [](CUdevice_attribute attribute) {
    return static_cast<uint64_t>(attribute_of(attribute));
  };
  if (grid.count() == 0 || block.count() == 0) refuse(CUDA_ERROR_INVALID_VALUE, "an empty grid");
  if (grid.x > most(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X) ||
      grid.y > most(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y) ||
      grid.z > most(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z))
    refuse(CUDA_ERROR_INVALID_VALUE, fmt::format("a grid of {} x {} x {}", grid.x, grid.y, grid.z));
  if (block.x > 1024 || block.y > 1024 || block.z > 64 || block.count() > 1024 ||
      (code.max_threads != 0 && block.count() > code.max_threads))
    refuse(CUDA_ERROR_INVALID_VALUE,
           fmt::format("a block of {} x {} x {}", block.x, block.y, block.z));
  const uint64_t registers = most(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR);
  if (static_cast<uint64_t>(function->resources.registers) * block.count() > registers)
    refuse(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES,
           fmt::format("{} registers for each of {} threads, {} there are",
                       function->resources.registers, block.count(), registers));
  const int fixed = function->resources.shared_bytes;
  const int limit = std::max(kFixedShared - fixed, function->dynamic_shared_limit);
  if (shared_bytes > static_cast<unsigned>(std::max(limit, 0)))
    refuse(CUDA_ERROR_INVALID_VALUE,
           fmt::format("{} bytes of dynamic shared memory, {} allowed", shared_bytes, limit));
  if (parameters == nullptr && !code.parameter_sizes.empty())
    refuse(CUDA_ERROR_INVALID_VALUE, "no parameters");
  std::vector<std::byte> values(code.parameter_bytes);
  for (size_t i = 0; i < code.parameter_sizes.size(); ++i) {
    const auto violation = [&](const std::string& what) {
      report_violation(fmt::format("launching {}: parameter {} of {} {}", code.name, i + 1,
                                   code.parameter_sizes.size(), what));
    };
    void* from = nullptr;
    if (!can_read(&from, parameters + i, sizeof(from)) || from == nullptr ||
        !can_read(values.data() + code.parameter_offsets[i], from, code.parameter_sizes[i]))
      violation("is missing");
    // The driver copies bytes; no object of C++ of the parameter's type lies there.
    if (reinterpret_cast<uintptr_t>(from) % code.parameter_alignments[i] != 0)
      violation(fmt::format("lies at {}, which is no multiple of {}", fmt::ptr(from),
                            code.parameter_alignments[i]));
  }
  Context& context = *stream->context;
  Work work{.call = fmt::format("cuLaunchKernel({})", code.name),
            .run = [&context, function, grid, block, shared_bytes,
                    values = std::move(values)](Running& running) {
              ptx::Launch launch;
              launch.grid = grid;
              launch.block = block;
              launch.dynamic_shared_bytes = shared_bytes;
              launch.number = running.launch;
              launch.touched = &running.touched;
              launch.seed = machine().seed;
              running.steps = ptx::run(function->code, values.data(), launch, context.memory,
                                       machine().arithmetic);
            }};
  work.module = function->module;
  give(stream, std::move(work));
}

void copy(const std::shared_ptr<Stream>& stream, CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  if (bytes == 0) return;
  Context& context = *stream->context;
  const std::string call = fmt::format("cuMemcpyAsync({:#x}, {:#x}, {})", to, from, bytes);
  const bool to_device = is_device_address(to), from_device = is_device_address(from);
  if (to_device) place_of(context, to, bytes, call);
  if (from_device) place_of(context, from, bytes, call);
  // Page-locked memory of the host is read when the copy is done, and until then it must stay as it
  // is. The driver may read pageable memory before the call returns ("API synchronization behavior"
  // in CUDA's manual), or as late.
  const uint64_t host = to_device ? from : to;
  const uint64_t page_locked = context.page_locked(host, host + bytes);
  const bool is_staged = !from_device && stream->capture == nullptr && page_locked == 0 &&
                         !machine().reads_pageable_late;
  std::vector<std::byte> staged;
  if (is_staged) staged = read_host(from, bytes, call);
  Work work{.call = call,
            .run = [&context, to, from, bytes, call, to_device, from_device, is_staged,
                    staged = std::move(staged)](Running& running) {
              std::vector<std::byte> data;
              std::vector<uint8_t> written(bytes, 1);
              if (from_device) {
                const Place source = place_of(context, from, bytes, call);
                running.touched.note(*source.allocation, source.at, bytes, false);
                data.assign(source.data(), source.data() + bytes);
                written.assign(source.written(), source.written() + bytes);
              } else {
                data = is_staged ? staged : read_unchanged(from, bytes, call, running.host_hash);
              }
              if (to_device) {
                const Place target = place_of(context, to, bytes, call);
                running.touched.note(*target.allocation, target.at, bytes, true);
                std::memcpy(target.data(), data.data(), bytes);
                std::memcpy(target.written(), written.data(), bytes);
              } else {
                write_host(to, data.data(), bytes, call);
              }
            }};
  if (!is_staged && !(to_device && from_device)) {
    work.host_begin = host;
    work.host_end = host + bytes;
    work.is_host_written = !to_device;
    work.page_locked = page_locked;
  }
  for (const uint64_t address : {to, from})
    if (is_device_address(address))
      work.allocations.emplace_back(address, context.memory.find(address)->number);
  give(stream, std::move(work));
}

void fill(const std::shared_ptr<Stream>& stream, CUdeviceptr to, unsigned char value,
          size_t bytes) {
  if (bytes == 0) return;
  Context& context = *stream->context;
  const std::string call = fmt::format("cuMemsetD8Async({:#x}, {}, {})", to, value, bytes);
  const uint64_t number = place_of(context, to, bytes, call).allocation->number;
  give(stream, {.call = call,
                .run =
                    [&context, to, value, bytes, call](Running& running) {
                      const Place target = place_of(context, to, bytes, call);
                      running.touched.note(*target.allocation, target.at, bytes, true);
                      std::memset(target.data(), value, bytes);
                      std::memset(target.written(), 1, bytes);
                    },
                .allocations = {{to, number}}});
}

}  // namespace anneal::virtual_card
