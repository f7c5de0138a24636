// "cuda.normalize.rows".
#include <fmt/format.h>

#include <bit>
#include <vector>

#include "anneal/graph/op/infer.h"
#include "anneal/kernels/cuda/kernels/entries.h"
#include "anneal/kernels/cuda/kernels/rows.h"
#include "anneal/kernels/cuda/text/program_text.h"

namespace anneal::cuda {
namespace {

// Everything is of differences from an element of the row, so that a large mean costs no digits.
// The pivot is read by all threads before any writes, for the output may be the very view of the
// input.
KernelResult make_normalize(const Normalize& op, const Request& original) {
  const DataType dtype = original.inputs[0].type.dtype;
  const int rank = original.inputs[0].type.shape.rank();
  std::vector<bool> in_row(static_cast<size_t>(rank));
  for (const int64_t axis : op.axes) in_row[static_cast<size_t>(axis)] = true;
  OperandViews seen(original);
  const Rows rows(seen, in_row, true, false);
  const std::string type = type_text(register_type(dtype));
  const auto body = [&](const Request& request, Extents& extents) {
    // add: a statement that adds an element to the sum.
    const auto sum_of = [&](const char* name, const char* add) {
      return fmt::format("T {} = 0;\n{}{}", name, rows.each(request, extents, add),
                         rows.combined(name, "Add()"));
    };
    std::string text = fmt::format("using T = {};\n", type);
    if (op.subtract_mean) {
      text += fmt::format("T pivot = 0;\nif (length > 0) pivot = {};\n", loaded(dtype, "x0[base]"));
      text += sum_of("sum", "sum += x - pivot;\n") + "const T mean = sum / T(length);\n";
    } else {
      text += "const T pivot = 0, mean = 0;\n";
    }
    text += sum_of("squares",
                   "const T from_mean = x - pivot - mean;\n"
                   "squares = multiply_add(from_mean, from_mean, squares);\n");
    text += fmt::format("const T deviation = op::sqrt(squares / T(length) + T({}));\n",
                        literal(RegisterType::kF32, std::bit_cast<uint32_t>(op.epsilon)));
    std::string store = "store((x - pivot - mean) / deviation";
    for (int axis = 0; axis < rank; ++axis)
      store += fmt::format(", {}{}", in_row[static_cast<size_t>(axis)] ? 'j' : 'i', axis);
    return text + rows.each_alone(request, extents, store + ");\n");
  };
  return rows.make(seen, accumulator(dtype), "normalize", type, body);
}

constexpr KernelEntry kNormalizeEntries[] = {
    entry<Normalize, make_normalize>("cuda.normalize.rows")};

}  // namespace

std::span<const KernelEntry> normalize_entries() { return kNormalizeEntries; }

}  // namespace anneal::cuda
