#include "anneal/tests/virtual_card/cudnn/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <set>

#include "anneal/tests/virtual_card/cudnn/execute.h"
#include "anneal/tests/virtual_card/library_work.h"

namespace anneal::fake_cudnn {
namespace {

using virtual_card::LibraryMemory;

constexpr int64_t kWorkspaceAlignment = 256;  // as cuMemAlloc() gives
constexpr int kRubbish = 0xa5;                // in the workspace

std::vector<uint64_t> pointers_of(const Descriptor& pack, Attribute attribute) {
  const Value& value = pack.value(attribute);
  std::vector<uint64_t> all(static_cast<size_t>(value.count));
  std::memcpy(all.data(), value.bytes.data(), value.bytes.size());
  return all;
}

// The memory of one tensor or of the workspace.
struct Used {
  std::string name;
  uint64_t address = 0;
  bool is_written = false;
  std::vector<ElementRows> rows;

  uint64_t end() const {
    uint64_t last = address;
    for (const ElementRows& r : rows)
      last = std::max(last, address + r.offset + (r.rows - 1) * r.pitch + r.bytes);
    return last;
  }
  void mark(std::vector<bool>& bytes, uint64_t from) const {
    for (const ElementRows& r : rows)
      for (size_t i = 0; i < r.rows; ++i)
        for (size_t j = 0; j < r.bytes; ++j)
          bytes[address + r.offset + i * r.pitch + j - from] = true;
  }
};

bool share_bytes(const Used& a, const Used& b) {
  if (a.end() <= b.address || b.end() <= a.address) return false;
  const uint64_t from = std::min(a.address, b.address);
  const size_t bytes = std::max(a.end(), b.end()) - from;
  std::vector<bool> of_a(bytes), of_b(bytes);
  a.mark(of_a, from);
  b.mark(of_b, from);
  for (size_t i = 0; i < bytes; ++i)
    if (of_a[i] && of_b[i]) return true;
  return false;
}

void check_address(const std::string& name, uint64_t address, int64_t alignment) {
  if (address == 0)
    refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER,
           fmt::format("CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS: {} is null", name));
  if (address % static_cast<uint64_t>(alignment) != 0)
    refuse(CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER,
           fmt::format("CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS: {} at {:#x} is not aligned to {} "
                       "bytes",
                       name, address, alignment));
}

std::map<int64_t, uint64_t> addresses_of(const OperationGraph& graph, const Descriptor& pack) {
  const std::vector<int64_t> ids = pack.integers(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  const std::vector<uint64_t> pointers = pointers_of(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
  std::map<int64_t, uint64_t> addresses;
  for (size_t i = 0; i < ids.size(); ++i) {
    const auto found = graph.tensors.find(ids[i]);
    if (found == graph.tensors.end() || found->second.is_virtual)
      refuse(CUDNN_STATUS_BAD_PARAM,
             fmt::format("CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS: the plan's graph has no tensor {} "
                         "with memory",
                         ids[i]));
    addresses[ids[i]] = pointers[i];
  }
  for (const auto& [uid, tensor] : graph.tensors)
    if (!tensor.is_virtual && !addresses.contains(uid))
      refuse(CUDNN_STATUS_BAD_PARAM,
             fmt::format("CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS: tensor {} is missing", uid));
  return addresses;
}

Used workspace_of(const Plan& plan, const Descriptor& pack) {
  const auto bytes = static_cast<size_t>(plan.config.workspace_bytes);
  const uint64_t address = pack.has(CUDNN_ATTR_VARIANT_PACK_WORKSPACE)
                               ? pointers_of(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE)[0]
                               : 0;
  if (address == 0)
    refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER,
           fmt::format("CUDNN_ATTR_VARIANT_PACK_WORKSPACE: none, the plan needs {} bytes", bytes));
  if (address % kWorkspaceAlignment != 0)
    refuse(CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER,
           fmt::format("CUDNN_ATTR_VARIANT_PACK_WORKSPACE: {:#x} is not aligned to {} bytes",
                       address, kWorkspaceAlignment));
  return {
      .name = "the workspace", .address = address, .is_written = true, .rows = {{.bytes = bytes}}};
}

void check_device(const HandleObject& handle, const Plan& plan) {
  if (handle.user != std::this_thread::get_id())
    refuse(CUDNN_STATUS_BAD_PARAM_STREAM_MISMATCH,
           "another thread has set the handle's stream since this one did");
  auto* const current = virtual_card::function_of_card<int()>("virtual_card_current_device");
  if (current == nullptr || current() != handle.device)
    refuse(CUDNN_STATUS_BAD_PARAM,
           fmt::format("the handle is of device {}, whose context is not current", handle.device));
  const DeviceProperties device = current_properties();
  if (device.device_version != plan.device.device_version ||
      device.multiprocessors != plan.device.multiprocessors)
    refuse(CUDNN_STATUS_NOT_SUPPORTED_ARCH_MISMATCH,
           fmt::format("CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP: a plan for version {} on a device of "
                       "version {}",
                       plan.device.device_version, device.device_version));
}

}  // namespace

void check_pack(const Descriptor& pack) {
  const std::vector<int64_t> ids = pack.integers(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  const int64_t pointers = pack.value(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS).count;
  if (static_cast<int64_t>(ids.size()) != pointers)
    refuse(CUDNN_STATUS_BAD_PARAM,
           fmt::format("CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS: {} pointers for {} ids", pointers,
                       ids.size()));
  if (std::set<int64_t>(ids.begin(), ids.end()).size() != ids.size())
    refuse(CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES,
           "CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS: an id twice");
}

void run(const HandleObject& handle, const Plan& plan, const Descriptor& pack,
         const std::shared_ptr<const Meaning>& user) {
  check_device(handle, plan);
  const OperationGraph& graph = plan.graph;
  std::set<int64_t> written;
  for (const Operation& operation : graph.operations)
    for (const auto& [name, uid] : operation.outputs) written.insert(uid);
  std::vector<Used> uses;
  std::map<int64_t, size_t> use_of;                    // by uid: in `memory`
  std::map<int64_t, std::vector<std::byte>> by_value;  // read now
  std::vector<LibraryMemory> memory;
  const auto add = [&](Used use) {
    for (const ElementRows& r : use.rows)
      memory.push_back({.address = use.address + r.offset,
                        .bytes = r.bytes,
                        .rows = r.rows,
                        .pitch = r.pitch,
                        .is_read = !use.is_written,
                        .is_written = use.is_written});
    for (const Used& other : uses)
      if ((use.is_written || other.is_written) && share_bytes(use, other))
        refuse(CUDNN_STATUS_BAD_PARAM,
               fmt::format("CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS: {} and {} share memory",
                           other.name, use.name));
    uses.push_back(std::move(use));
  };
  for (const auto& [uid, address] : addresses_of(graph, pack)) {
    const Tensor& tensor = graph.tensors.at(uid);
    const std::string name = fmt::format("tensor {}", uid);
    check_address(name, address, tensor.is_by_value ? 1 : tensor.alignment);
    if (tensor.is_by_value) {
      auto& bytes = by_value[uid];
      bytes.resize(bytes_of(tensor.type));
      std::memcpy(bytes.data(), std::bit_cast<const void*>(address), bytes.size());
    } else {
      use_of[uid] = memory.size();
      add({name, address, written.contains(uid), rows_of(tensor)});
    }
  }
  const size_t workspace = memory.size();
  const auto workspace_bytes = static_cast<size_t>(plan.config.workspace_bytes);
  if (workspace_bytes != 0) add(workspace_of(plan, pack));
  const auto work = [user, graph, use_of, by_value = std::move(by_value), workspace,
                     workspace_bytes](std::byte* const* at) mutable {
    TensorMemory places;
    for (const auto& [uid, index] : use_of) places[uid] = at[index];
    for (auto& [uid, bytes] : by_value) places[uid] = bytes.data();
    if (workspace_bytes != 0) std::memset(at[workspace], kRubbish, workspace_bytes);
    execute(graph, places);
  };
  const cuda::CUresult result =
      virtual_card::put_library_work(handle.stream, "cudnnBackendExecute", memory, work);
  if (result != cuda::CUDA_SUCCESS)
    refuse(CUDNN_STATUS_EXECUTION_FAILED_CUDA_DRIVER,
           fmt::format("the virtual card refuses the work with error {}; "
                       "ANNEAL_VIRTUAL_CARD_VERBOSE=1 tells why",
                       static_cast<int>(result)));
}

}  // namespace anneal::fake_cudnn
