// "cuda.softmax.rows": Softmax and its logarithm. Rows that fit are kept in registers.
#include <fmt/format.h>

#include <vector>

#include "anneal/graph/op/infer.h"
#include "anneal/kernels/cuda/kernels/entries.h"
#include "anneal/kernels/cuda/kernels/rows.h"
#include "anneal/kernels/cuda/text/program_text.h"

namespace anneal::cuda {
namespace {

constexpr int64_t kMostKept = 8;  // elements of a row by one thread

std::string store_text(const Request& request, int axis, const std::string& value) {
  std::string coordinates;
  for (int i = 0; i < request.outputs[0].type.shape.rank(); ++i)
    coordinates += i == axis ? ", r" : fmt::format(", i{}", i);
  return fmt::format("store({}{});\n", value, coordinates);
}

// Three times over the row. An output that is the very view of the input is written last.
std::string read_again_text(const Softmax& op, const Rows& rows, const Request& request,
                            Extents& extents) {
  const std::string store = store_text(request, static_cast<int>(op.axis),
                                       op.log ? "x - most - log_sum" : "op::exp(x - most) / sum");
  return rows.each(request, extents, "most = op::max(most, x);\n", op.map) +
         rows.combined("most", "Largest()") + "T sum = 0;\n" +
         rows.each(request, extents, "sum += op::exp(x - most);\n", op.map) +
         rows.combined("sum", "Add()") + (op.log ? "const T log_sum = op::log(sum);\n" : "") +
         rows.each_alone(request, extents, store, op.map);
}

std::string kept_text(const Softmax& op, const Rows& rows, const Request& request, Extents& extents,
                      int64_t kept) {
  const auto each = [&](const std::string& body) {
    return fmt::format(
        "#pragma unroll\nfor (int k = 0; k < {0}; ++k) {{\nconst {1} r = lane + k * {2};\n"
        "if (r < length) {{\n{3}}}\n}}\n",
        kept, rows.index_type(), rows.threads_per_row(), body);
  };
  return fmt::format(
      "T kept[{}];\n{}{}T sum = 0;\n{}{}{}{}", kept,
      each(rows.element(request, extents, op.map) + "kept[k] = x;\nmost = op::max(most, x);\n"),
      rows.combined("most", "Largest()"),
      each(op.log ? "kept[k] -= most;\nsum += op::exp(kept[k]);\n"
                  : "kept[k] = op::exp(kept[k] - most);\nsum += kept[k];\n"),
      rows.combined("sum", "Add()"), op.log ? "const T log_sum = op::log(sum);\n" : "",
      each(store_text(request, static_cast<int>(op.axis),
                      op.log ? "kept[k] - log_sum" : "kept[k] / sum")));
}

KernelResult make_softmax(const Softmax& op, const Request& original) {
  const DataType dtype = op.map.empty() ? original.inputs[0].type.dtype : op.map.results()[0].dtype;
  const auto inputs = mapped_inputs(original, 1);
  if (!inputs) return refuse(inputs.reason());
  std::vector<bool> in_row(static_cast<size_t>(original.inputs[0].type.shape.rank()));
  in_row[static_cast<size_t>(op.axis)] = true;
  OperandViews seen(original, *inputs);
  const Rows rows(seen, in_row, true, op.map.empty());
  const std::string type = type_text(register_type(dtype));
  const int threads = rows.threads_per_row();
  const auto body = [&](const Request& request, Extents& extents) {
    const int64_t kept = (rows.known_length().value_or(0) + threads - 1) / threads;
    const std::string begin = fmt::format("using T = {};\nT most = T(-op::inf_f32());\n", type);
    return begin + (kept > 0 && kept <= kMostKept ? kept_text(op, rows, request, extents, kept)
                                                  : read_again_text(op, rows, request, extents));
  };
  return rows.make(seen, accumulator(dtype), "softmax", type, body);
}

constexpr KernelEntry kSoftmaxEntries[] = {entry<Softmax, make_softmax>("cuda.softmax.rows")};

}  // namespace

std::span<const KernelEntry> softmax_entries() { return kSoftmaxEntries; }

}  // namespace anneal::cuda
