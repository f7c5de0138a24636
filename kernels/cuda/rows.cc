#include "anneal/kernels/cuda/rows.h"

#include <fmt/format.h>

#include <algorithm>

#include "anneal/core/error.h"
#include "anneal/kernels/cuda/program_text.h"

namespace anneal::cuda {
namespace {

// Elements of a row, and rows, from which another way of sharing rows is worth it.
constexpr int64_t kWorthWarp = 16, kWorthBlock = 1024, kWorthBlockOfFewRows = 256;
constexpr int64_t kManyRows = 2048;

class RowKernel final : public FunctionKernel {
 public:
  RowKernel(Parts parts, std::vector<bool> in_row, int threads, bool needs_elements)
      : FunctionKernel(std::move(parts)),
        in_row_(std::move(in_row)),
        threads_(threads),
        needs_elements_(needs_elements) {}

 protected:
  Geometry geometry(Views inputs, Views) const override {
    int64_t rows = 1, length = 1;
    for (int axis = 0; axis < inputs[0].dims.rank(); ++axis)
      (in_row_[static_cast<size_t>(axis)] ? length : rows) *= inputs[0].dims[axis];
    if (needs_elements_ && length == 0 && rows > 0)
      fail(anneal::Code::kInvalidArgument, "an empty axis has no largest or smallest element");
    return {.grid = {blocks(rows * threads_, Rows::kThreads), 1, 1},
            .block = {Rows::kThreads, 1, 1}};
  }

 private:
  std::vector<bool> in_row_;
  int threads_;
  bool needs_elements_;
};

}  // namespace

std::vector<int> mapped_inputs(const Request& request, int further, std::string& why_not) {
  std::vector<int> inputs = {0};
  const Shape& x = request.inputs[0].type.shape;
  for (int i = further; i < request.op_input_count; ++i) {
    inputs.push_back(i);
    const Shape& shape = request.inputs[static_cast<size_t>(i)].type.shape;
    const int missing = x.rank() - shape.rank();
    bool fits = missing >= 0;
    for (int axis = 0; fits && axis < shape.rank(); ++axis)
      fits = shape[axis] == Size(1) || shape[axis] == x[missing + axis];
    if (fits) continue;
    why_not = "a map that enlarges its first input";
    return {};
  }
  return inputs;
}

Rows::Rows(Seen& seen, const std::vector<bool>& in_row, bool keeps, bool merges) {
  Look look;
  const Operand x = seen.request().inputs[0];
  for (int axis = 0, output = 0; axis < x.type.shape.rank(); ++axis) {
    const bool reduced = in_row[static_cast<size_t>(axis)];
    if (merges && reduced && !axes_.empty() && axes_.back().in_row &&
        seen.lie_behind(x, axis - 1, axis)) {
      look.axes.back().of.push_back(axis);
    } else {
      look.axes.push_back({.of = {axis}});
      axes_.push_back({reduced, output});
    }
    if (!reduced || keeps) ++output;
  }
  seen.look_at_input(0, look);

  const Request request = seen.request();
  const Operand& rows_of = request.inputs[0];
  const Shape& shape = rows_of.type.shape;
  small_ = seen.is_small(shape);
  int64_t length = 1, rows = 1;
  known_length_ = 1;
  bool columns = false;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    const Axis& own = axes_[static_cast<size_t>(axis)];
    (own.in_row ? length : rows) *= std::max<int64_t>(request.sizes.range(shape[axis]).opt, 1);
    if (own.in_row && !shape[axis].known()) known_length_.reset();
    if (own.in_row && known_length_) *known_length_ *= shape[axis].value();
    if (!own.in_row && rows_of.strides[axis] == Size(1) && !(shape[axis] == Size(1)))
      columns = true;
  }
  if (length < kWorthWarp || (columns && rows >= kManyRows)) {
    threads_ = 1;
  } else if (length >= kWorthBlock || (length >= kWorthBlockOfFewRows && rows < kManyRows)) {
    threads_ = kThreads;
  } else {
    threads_ = 32;
  }
}

std::vector<std::string> Rows::sizes(const Request& request, Extents& extents, bool in_row) const {
  std::vector<std::string> all;
  for (int axis = 0; axis < request.inputs[0].type.shape.rank(); ++axis)
    if (axes_[static_cast<size_t>(axis)].in_row == in_row)
      all.push_back(extents.input_dim(0, axis));
  return all;
}

// The coordinates that `number` of a row, or of an element of one, has: j0, j1, ... for the axes of
// the input as seen. Elements of a row are numbered along the axis that is adjacent in memory
// first.
std::string Rows::coordinates(const Request& request, Extents& extents, bool in_row,
                              std::string_view number) const {
  std::vector<int> axes;
  for (int axis = 0; axis < request.inputs[0].type.shape.rank(); ++axis)
    if (axes_[static_cast<size_t>(axis)].in_row == in_row) axes.push_back(axis);
  if (axes.empty()) return {};
  const Operand& x = request.inputs[0];
  if (in_row)
    std::ranges::stable_partition(axes, [&](int axis) {
      return x.strides[axis] != Size(1) || x.type.shape[axis] == Size(1);
    });
  const std::string rest = in_row ? "rest_of_row" : "rest";
  std::string text;
  if (axes.size() > 1) text += fmt::format("{0} {1} = {0}({2});\n", index_type(), rest, number);
  for (size_t i = axes.size(); i-- > 1;)
    text += fmt::format("const {0} j{1} = {2} % {0}({3});\n{2} /= {0}({3});\n", index_type(),
                        axes[i], rest, extents.input_dim(0, axes[i]));
  return text + fmt::format("const {0} j{1} = {0}({2});\n", index_type(), axes[0],
                            axes.size() > 1 ? rest : std::string(number));
}

std::string Rows::offset(const Request& request, Extents& extents, bool in_row) const {
  const Shape& shape = request.inputs[0].type.shape;
  std::string sum;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    if (axes_[static_cast<size_t>(axis)].in_row != in_row || shape[axis] == Size(1)) continue;
    sum += fmt::format("{}j{} * {}", sum.empty() ? "" : " + ", axis, extents.input_stride(0, axis));
  }
  return sum.empty() ? "0" : sum;
}

std::string Rows::element(const Request& request, Extents& extents, const Program& map) const {
  const DataType dtype = request.inputs[0].type.dtype;
  if (!map.empty()) {
    const auto coordinate = [](int axis) { return fmt::format("i64(j{})", axis); };
    const auto input = [&](int i) {
      return loaded(request.inputs[static_cast<size_t>(i)].type.dtype,
                    fmt::format("x{}[{}]", i,
                                offset_text(request, extents, {false, i},
                                            request.inputs[0].type.shape, coordinate)));
    };
    const ProgramText program = text_of(map, input, coordinate, "m");
    return coordinates(request, extents, true, "r") + program.statements +
           fmt::format("const {} x = {};\n", type_text(register_type(map.results()[0].dtype)),
                       program.registers[0]);
  }
  return coordinates(request, extents, true, "r") +
         fmt::format("const {} x = {};\n", type_text(register_type(dtype)),
                     loaded(dtype, "x0[base + " + offset(request, extents, true) + "]"));
}

std::string Rows::each(const std::string& body) const {
  return fmt::format("for ({} r = lane; r < length; r += {}) {{\n{}}}\n", index_type(), threads_,
                     body);
}

Made Rows::make(const Seen& seen, DataType accumulator, std::string_view family,
                const std::string& partial_type,
                const std::function<std::string(const Request&, Extents&)>& body,
                bool needs_elements) const {
  const Request request = seen.request();
  Extents extents(request);
  std::string why_not;
  const auto store = StoreText::make(request, accumulator, extents, why_not);
  if (!store) return refuse(std::move(why_not));
  std::string row = coordinates(request, extents, false, "row");
  for (size_t axis = 0; axis < axes_.size(); ++axis)
    if (!axes_[axis].in_row) row += fmt::format("const i64 i{} = j{};\n", axes_[axis].output, axis);
  row += fmt::format("const i64 base = {};\n", offset(request, extents, false));
  row += body(request, extents);
  const std::string length = product(sizes(request, extents, true));
  const std::string rows = product(sizes(request, extents, false));
  std::string text = fmt::format(
      R"({definition}
KERNEL($name, {block})({inputs}{stores}{extents}) {{
SHARED({partial}, partial, {warps});
const Store store = {construction};
const {index} length = {index}({length});
const i64 rows = {rows};
const {index} lane = threadIdx.x % {threads};
for (i64 row = i64(blockIdx.x) * {per_block} + threadIdx.x / {threads}; row < rows;
     row += i64(gridDim.x) * {per_block}) {{
{row}}}
}}
)",
      fmt::arg("definition", store->definition()), fmt::arg("block", kThreads),
      fmt::arg("inputs", input_parameters(request, request.op_input_count)),
      fmt::arg("stores", store->parameters()), fmt::arg("extents", extents.parameters()),
      fmt::arg("partial", partial_type), fmt::arg("warps", kThreads / 32),
      fmt::arg("construction", store->construction()), fmt::arg("index", index_type()),
      fmt::arg("length", length), fmt::arg("rows", rows), fmt::arg("threads", threads_),
      fmt::arg("per_block", kThreads / threads_), fmt::arg("row", row));
  std::vector<bool> in_row;
  for (const Axis& axis : axes_) in_row.push_back(axis.in_row);
  FunctionText function{std::string(family), {"program.h", "rows.h"}, std::move(text)};
  return {std::make_unique<RowKernel>(parts_of(request, seen, extents, std::move(function)),
                                      std::move(in_row), threads_, needs_elements),
          {}};
}

}  // namespace anneal::cuda
