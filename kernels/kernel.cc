#include "anneal/kernels/kernel.h"

#include <algorithm>

#include "anneal/core/new_tensor.h"

namespace anneal {

std::unique_ptr<PreparedKernel> Kernel::prepare(std::span<const TensorView>,
                                                std::span<const TensorView>, int) const {
  return std::make_unique<PreparedKernel>();
}

std::unique_ptr<DataDependentDims> Kernel::find(std::span<const TensorView>, DeviceStream&,
                                                ThreadTeam&) const {
  return nullptr;
}

NewTensor PackedConstants::allocate(size_t bytes, const std::shared_ptr<Allocator>& allocator) {
  return allocate_tensor(DataType::kU8, {static_cast<int64_t>(bytes)}, allocator);
}

namespace {

class NoPackedConstants final : public PackedConstants {
  std::optional<Tensor> find(std::string_view, size_t) override { return std::nullopt; }
  void keep(std::string_view, const Tensor&) override {}
};

}  // namespace

Tensor packed_constant(const Request& request, std::string_view form, size_t bytes,
                       const std::function<void(std::byte*)>& fill) {
  NoPackedConstants none;
  PackedConstants& constants = request.packed ? *request.packed : none;
  if (auto ready = constants.find(form, bytes)) return *std::move(ready);
  const NewTensor fresh = constants.allocate(bytes, request.device.allocator());
  fill(fresh.data.data());
  constants.keep(form, fresh.tensor);
  return fresh.tensor;
}

void for_parts(const Request& request, int64_t parts, FunctionRef<void(int64_t part)> fill) {
  const auto fill_range = [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) fill(part);
  };
  if (request.team) return request.team->for_ranges(parts, 1, fill_range);
  fill_range(0, parts);
}

const KernelEntry* find_kernel(const Backend& backend, std::string_view name) {
  for (const KernelFamily family : backend.families)
    for (const KernelEntry& entry : family())
      if (entry.name == name) return &entry;
  return nullptr;
}

bool is_reference(const Backend& backend, const KernelEntry& entry) {
  const KernelEntry* last = nullptr;
  for (const KernelFamily family : backend.families)
    for (const KernelEntry& other : family())
      if (other.op == entry.op) last = &other;
  return backend.kind == DeviceKind::kCpu && last == &entry;
}

std::string_view why_left_out(const KernelEntry& entry, const KernelOptions& options) {
  if (std::ranges::find(options.skip, entry.name) != options.skip.end()) return "skipped";
  if (options.exact && !entry.exact) return "skipped: it may change numerics";
  return {};
}

const KernelEntry* first_accepting(const Backend& backend, size_t op, const KernelOptions& options,
                                   const std::function<std::string(const KernelEntry&)>& refusal,
                                   std::vector<std::pair<std::string_view, std::string>>& refused) {
  for (const KernelFamily family : backend.families) {
    for (const KernelEntry& entry : family()) {
      if (entry.op != op || entry.source != KernelSource::kOwn) continue;
      const std::string_view left_out = why_left_out(entry, options);
      std::string reason = left_out.empty() ? refusal(entry) : std::string(left_out);
      if (reason.empty()) return &entry;
      refused.emplace_back(entry.name, std::move(reason));
    }
  }
  return nullptr;
}

KernelChoice choose_kernel(const Backend& backend, const Request& request,
                           const KernelOptions& options) {
  KernelChoice chosen;
  const auto make = [&](const KernelEntry& entry) {
    KernelResult made = entry.make(request);
    if (made) chosen.kernel = *std::move(made);
    return made.reason();
  };
  chosen.entry = first_accepting(backend, request.op.index(), options, make, chosen.refused);
  return chosen;
}

}  // namespace anneal
