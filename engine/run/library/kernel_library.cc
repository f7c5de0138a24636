#include "anneal/engine/kernel_library.h"

#include <fmt/format.h>

#include <memory>
#include <utility>

#include "anneal/core/fail.h"
#include "anneal/core/library.h"
#include "anneal/engine/run/c_struct.h"
#include "anneal/engine/run/library/library_operator.h"

namespace anneal {
namespace {

constexpr int32_t kMostKernels = 1 << 16;
constexpr uint64_t kKnownFlags = ANNEAL_KERNEL_PURE | ANNEAL_KERNEL_ROUNDED | ANNEAL_KERNEL_F16 |
                                 ANNEAL_KERNEL_BF16 | ANNEAL_KERNEL_LAUNCHES;

[[noreturn]] void refuse_table(const std::string& why) { fail(ErrorCode::kInvalidArgument, why); }

CustomOperator::Description description_of(const anneal_kernel& kernel,
                                           const std::string& library) {
  CustomOperator::Description description;
  description.library = library;
  if (kernel.domain && std::string_view(kernel.domain) != "ai.onnx")
    description.domain = kernel.domain;
  if (!kernel.op || *kernel.op == 0) refuse_table("op is null or empty");
  description.type = kernel.op;
  if (kernel.since < 0) refuse_table("since is below 0");
  description.since = kernel.since == 0 ? 1 : kernel.since;
  description.version = kernel.version;
  if (!kernel.infer) refuse_table("infer is null");
  if (!kernel.run) refuse_table("run is null");
  if (kernel.create && !kernel.destroy) refuse_table("create is set, and destroy is null");
  if (kernel.cuda_source && !kernel.cuda_launch)
    refuse_table("cuda_source is set, and cuda_launch is null");
  if (kernel.flags & ~kKnownFlags)
    refuse_table("flags has bits that this version of Anneal does not know");
  description.is_pure = (kernel.flags & ANNEAL_KERNEL_PURE) != 0;
  description.row_inputs = kernel.row_inputs;
  description.takes_f16 = (kernel.flags & ANNEAL_KERNEL_F16) != 0;
  description.takes_bf16 = (kernel.flags & ANNEAL_KERNEL_BF16) != 0;
  description.takes_rounded = (kernel.flags & ANNEAL_KERNEL_ROUNDED) != 0 ||
                              description.takes_f16 || description.takes_bf16;
  return description;
}

std::string name_of(const anneal_kernel& kernel, int32_t index) {
  if (!kernel.op) return fmt::format("kernel {}", index);
  return fmt::format("kernel {} ({})", index,
                     operator_name(kernel.domain ? kernel.domain : "", kernel.op));
}

CustomOperators load(const std::string& path) {
  const bool has_folder = path.find('/') != std::string::npos;
  const Result<Library> library = Library::open(has_folder ? path : "./" + path);
  if (!library) fail(ErrorCode::kIo, library.reason());
  void* const symbol = library->find("anneal_kernel_library");
  if (!symbol)
    refuse_table("it exports no function anneal_kernel_library (docs/custom_kernels.md)");
  const auto table_for =
      reinterpret_cast<const anneal_kernels* (*)(int32_t)>(reinterpret_cast<uintptr_t>(symbol));
  const anneal_kernels* const table = table_for(ANNEAL_KERNELS_VERSION);
  if (!table)
    refuse_table(
        fmt::format("it does not support version {} of the table, which this version of "
                    "Anneal wants: build it with its headers",
                    ANNEAL_KERNELS_VERSION));
  return operators_of(table, path);
}

}  // namespace

CustomOperators operators_of(const void* given, const std::string& path) {
  const auto table = read_struct(static_cast<const anneal_kernels*>(given), "anneal_kernels");
  if (table.count < 0 || table.count > kMostKernels)
    refuse_table(fmt::format("it has {} kernels", table.count));
  if (table.count > 0 && !table.kernels) refuse_table("kernels is null");
  const std::string library = table.name && *table.name != 0 ? table.name : path;
  CustomOperators operators;
  for (int32_t i = 0; i < table.count; ++i) {
    const auto kernel = read_struct(element_of(table.kernels, "anneal_kernel", i), "anneal_kernel");
    with_context(
        [&] { return name_of(kernel, i); },
        [&] {
          auto made = std::make_shared<LibraryOperator>(description_of(kernel, library), kernel);
          for (const auto& other : operators) {
            const CustomOperator::Description &a = other->description(), &b = made->description();
            if (a.domain == b.domain && a.type == b.type && a.since == b.since)
              refuse_table("two kernels for one operator and opset");
          }
          operators.push_back(std::move(made));
        });
  }
  return operators;
}

CustomOperators load_kernel_libraries(std::span<const std::string> paths) {
  CustomOperators all;
  for (const std::string& path : paths) {
    CustomOperators some =
        with_context([&] { return fmt::format("while loading the library of kernels {}", path); },
                     [&] { return load(path); });
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

}  // namespace anneal
