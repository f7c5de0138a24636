// NonZero: "cuda.nonzero.groups". A group is a run of elements in row-major order.
#include <fmt/format.h>

#include "anneal/kernels/cuda/kernels/entries.h"
#include "anneal/kernels/cuda/kernels/function_kernel.h"
#include "anneal/kernels/cuda/kernels/selecting_kernel.h"

namespace anneal::cuda {
namespace {

constexpr int kTakenAtOnce = 4;  // elements of a thread

// "takes(n)" for elements of the input, and the run [begin, end) of a group.
struct NonZeroText {
  const Request& request;
  const char* index;

  std::string statements(Extents& extents) const {
    const Operand& x = request.inputs[0];
    const int rank = x.type.shape.rank();
    const std::string element = loaded(
        x.type.dtype,
        fmt::format("x0[{}]", offset_text(request, extents, {false, 0}, x.type.shape,
                                          [](int axis) { return fmt::format("i{}", axis); })));
    std::vector<std::string> dims;
    for (int axis = 0; axis < rank; ++axis) dims.push_back(extents.input_dim(0, axis));
    return fmt::format(
        "const i64 count = {count}, each = (count + groups - 1) / groups;\n"
        "const auto takes = [&]([[maybe_unused]] {index} n) {{\n{coordinates}"
        "return {element} != {type}(0);\n}};\n",
        fmt::arg("count", product(dims)), fmt::arg("index", index),
        fmt::arg("coordinates", coordinates(extents)), fmt::arg("element", element),
        fmt::arg("type", type_text(register_type(x.type.dtype))));
  }
  std::string coordinates(Extents& extents) const {
    std::vector<std::string> dims;
    for (int axis = 0; axis < request.inputs[0].type.shape.rank(); ++axis)
      dims.push_back(extents.input_dim(0, axis));
    return element_coordinates(dims, index);
  }
  std::string run() const {
    return fmt::format(
        "const {0} begin = {0}(op::min(group * each, count));\n"
        "const {0} end = {0}(op::min((group + 1) * each, count));\n",
        index);
  }
};

KernelResult make_nonzero(const NonZero&, const Request& request) {
  Extents of_count(request), of_write(request);
  const auto store = StoreText::make(request, DataType::kI64, of_write);
  if (!store) return refuse(store.reason());
  const OperandViews seen(request, {0});
  const int rank = request.inputs[0].type.shape.rank();
  const NonZeroText text{request, seen.is_small(request.inputs[0].type.shape) ? "i32" : "i64"};
  const std::vector<std::string_view> headers = {"program.h", "lanes.h", "rows.h", "scan.h",
                                                 "select.h"};
  SelectParts parts{.inputs = 1, .op_inputs = 1};
  parts.groups = [](SelectParts::Views inputs) { return groups_for(count(inputs[0].dims)); };
  const std::string counting = text.statements(of_count);
  parts.count = code_of(request.device)
                    .add(select_text(
                        {"nonzero_count", headers, "", input_parameters(request, 1),
                         ", Out<i64> counts, i64 groups" + of_count.parameters(), counting,
                         text.run() + "const i64 taken = select::sum(begin, end, partial, takes);\n"
                                      "if (threadIdx.x == 0) counts[group] = taken;\n"}));
  std::string writes = text.coordinates(of_write);
  for (int axis = 0; axis < rank; ++axis)
    writes += fmt::format("store(i64(i{0}), i64({0}), place);\n", axis);
  const std::string writing = text.statements(of_write);
  parts.write =
      code_of(request.device)
          .add(select_text(
              {"nonzero_write", headers, store->definition(), input_parameters(request, 1),
               store->parameters() + ", In<i64> counts, i64 groups" + of_write.parameters(),
               fmt::format("const Store store = {};\n", store->construction()) + writing,
               text.run() +
                   fmt::format(
                       "const i64 first = select::sum(i64(0), group, partial, [&](i64 i) "
                       "{{ return counts[i]; }});\n"
                       "select::write_taken<{}>(begin, end, first, partial, takes,\n"
                       "    [&]([[maybe_unused]] i64 place, [[maybe_unused]] {} n) {{\n{}}});\n",
                       kTakenAtOnce, text.index, writes)}));
  parts.count_sources = of_count.sources(), parts.write_sources = of_write.sources();
  parts.dims = [](SelectParts::Views inputs, int64_t selected) {
    return Dims{inputs[0].dims.rank(), selected};
  };
  return make_selecting_kernel(std::move(parts), request);
}

constexpr KernelEntry kSelectEntries[] = {entry<NonZero, make_nonzero>("cuda.nonzero.groups")};

}  // namespace

std::span<const KernelEntry> select_entries() { return kSelectEntries; }

}  // namespace anneal::cuda
