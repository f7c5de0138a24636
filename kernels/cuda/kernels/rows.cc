#include "anneal/kernels/cuda/kernels/rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "anneal/core/fail.h"
#include "anneal/kernels/cuda/text/program_text.h"

namespace anneal::cuda {
namespace {

// Elements of a row, and rows, from which another way of sharing rows is worth it.
constexpr int64_t kWorthWarp = 16, kWorthBlock = 1024, kWorthBlockOfFewRows = 256;
constexpr int64_t kManyRows = 2048;
constexpr int64_t kVectorBytes = 16;  // of one load, at most
constexpr int64_t kSectorBytes = 32;  // what memory moves at least

}  // namespace

Result<std::vector<int>> mapped_inputs(const Request& request, int further) {
  std::vector<int> inputs = {0};
  const Shape& x = request.inputs[0].type.shape;
  for (int i = further; i < request.op_input_count; ++i) {
    inputs.push_back(i);
    const Shape& shape = request.inputs[static_cast<size_t>(i)].type.shape;
    const int missing = x.rank() - shape.rank();
    bool fits = missing >= 0;
    for (int axis = 0; fits && axis < shape.rank(); ++axis)
      fits = shape[axis] == Size(1) || shape[axis] == x[missing + axis];
    if (!fits) return refuse("a map that enlarges its first input");
  }
  return inputs;
}

Rows::Rows(OperandViews& seen, const std::vector<bool>& in_row, bool keeps, bool merges) {
  AxisMapping look;
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
  small_ = seen.is_small(request.inputs[0].type.shape);
  choose_threads(request);
}

void Rows::choose_threads(const Request& request) {
  const Operand& x = request.inputs[0];
  const Shape& shape = x.type.shape;
  int64_t length = 1, rows = 1;
  double longest = 1;
  known_length_ = 1;
  int adjacent = -1, axes_in_row = 0;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    const bool in_row = axes_[static_cast<size_t>(axis)].in_row;
    const Bounds range = request.sizes.range(shape[axis]);
    (in_row ? length : rows) *= std::max<int64_t>(range.opt, 1);
    if (in_row) longest *= static_cast<double>(range.max);
    if (in_row && !shape[axis].known()) known_length_.reset();
    if (in_row && known_length_) *known_length_ *= shape[axis].value();
    if (shape[axis] == Size(1)) continue;
    if (in_row) ++axes_in_row;
    if (x.strides[axis] == Size(1)) adjacent = axis;
  }
  // Rows may be far longer than at the opt sizes. One thread would read such a row alone, and its
  // sum would have a large rounding error.
  if (length < kWorthWarp && longest >= kWorthBlockOfFewRows) length = kWorthWarp;
  const auto bytes = static_cast<int64_t>(size_of(x.type.dtype));
  const bool ends = adjacent >= 0 && axes_[static_cast<size_t>(adjacent)].in_row;
  if (ends && axes_in_row == 1) vector_ = static_cast<int>(kVectorBytes / bytes);

  // Rows beside each other: an element's neighbour in memory, or that of a short run, is another's.
  Size run = 1;
  if (ends) run = shape[adjacent];
  for (int axis = 0; axis < shape.rank() && adjacent >= 0; ++axis)
    if (!axes_[static_cast<size_t>(axis)].in_row && !(shape[axis] == Size(1)) && run.known() &&
        x.strides[axis] == run)
      neighbour_ = axis;
  const bool columns = neighbour_ >= 0 && !ends;
  if (length < kWorthWarp || (columns && rows >= kManyRows)) {
    threads_ = 1;
  } else if (neighbour_ >= 0 && std::has_single_bit(static_cast<uint64_t>(run.value())) &&
             run.value() * bytes < kSectorBytes && (columns || axes_in_row > 1)) {
    run_ = static_cast<int>(run.value());
    columns_ = static_cast<int>(kSectorBytes / bytes) / run_;
    threads_ = kThreads / columns_;
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
// the input as seen. Elements of a row, and rows, are numbered along the axis first on which they
// are neighbours in memory.
std::string Rows::coordinates(const Request& request, Extents& extents, bool in_row,
                              std::string_view number) const {
  std::vector<int> axes;
  for (int axis = 0; axis < request.inputs[0].type.shape.rank(); ++axis)
    if (axes_[static_cast<size_t>(axis)].in_row == in_row) axes.push_back(axis);
  if (axes.empty()) return {};
  const Operand& x = request.inputs[0];
  std::stable_partition(axes.begin(), axes.end(), [&](int axis) {
    return in_row ? x.strides[axis] != Size(1) || x.type.shape[axis] == Size(1)
                  : axis != neighbour_;
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
  return element(request, extents, map, {});
}

// own: the first input's element, where it has been read.
std::string Rows::element(const Request& request, Extents& extents, const Program& map,
                          const std::string& own) const {
  const auto x_is = [](RegisterType type, const std::string& value) {
    return fmt::format("const {} x = {};\n", type_text(type), value);
  };
  const DataType dtype = request.inputs[0].type.dtype;
  if (map.empty() && !own.empty()) return x_is(register_type(dtype), loaded(dtype, own));
  const std::string place = coordinates(request, extents, true, "r");
  if (map.empty())
    return place + x_is(register_type(dtype),
                        loaded(dtype, "x0[base + " + offset(request, extents, true) + "]"));
  const auto coordinate = [](int axis) { return fmt::format("i64(j{})", axis); };
  const auto input = [&](int i) {
    const auto from = [&] {
      return fmt::format(
          "x{}[{}]", i,
          offset_text(request, extents, {false, i}, request.inputs[0].type.shape, coordinate));
    };
    return loaded(request.inputs[static_cast<size_t>(i)].type.dtype,
                  i == 0 && !own.empty() ? own : from());
  };
  const ProgramText program = text_of(map, input, coordinate, "m");
  return place + program.statements +
         x_is(register_type(map.results()[0].dtype), program.registers[0]);
}

std::string Rows::scalar_loop(const Request& request, Extents& extents, std::string_view first,
                              const std::string& body, const Program& map) const {
  return fmt::format("for ({} r = {}; r < length; r += {}) {{\n{}{}}}\n", index_type(), first,
                     threads_, element(request, extents, map, {}), body);
}

std::string Rows::each_alone(const Request& request, Extents& extents, const std::string& body,
                             const Program& map) const {
  return scalar_loop(request, extents, "lane", body, map);
}

std::string Rows::each(const Request& request, Extents& extents, const std::string& body,
                       const Program& map) const {
  if (vector_ == 1) return each_alone(request, extents, body, map);
  return fmt::format(
             "for ({index} v = lane; v < vectors; v += {threads}) {{\n"
             "const Vec<{storage}, {count}> all = load<{count}>(x0, base + v * {count});\n"
             "UNROLL\nfor (int k = 0; k < {count}; ++k) {{\n"
             "[[maybe_unused]] const {index} r = v * {count} + k;\n{element}{body}}}\n}}\n",
             fmt::arg("index", index_type()), fmt::arg("threads", threads_),
             fmt::arg("storage", type_text(request.inputs[0].type.dtype)),
             fmt::arg("count", vector_),
             fmt::arg("element", element(request, extents, map, "all[k]")),
             fmt::arg("body", body)) +
         scalar_loop(request, extents, fmt::format("vectors * {} + lane", vector_), body, map);
}

std::string Rows::combined(std::string_view value, std::string_view combine) const {
  const std::string over = columns_ > 1 || run_ > 1
                               ? fmt::format("over_columns<{}, {}>", run_, columns_)
                               : fmt::format("over_row<{}>", threads_);
  return fmt::format("{0} = {1}({0}, partial, {2});\n", value, over, combine);
}

KernelResult Rows::make(const OperandViews& seen, DataType accumulator, std::string_view family,
                        const std::string& partial_type,
                        const std::function<std::string(const Request&, Extents&)>& body,
                        bool needs_elements) const {
  const Request request = seen.request();
  Extents extents(request);
  const auto store = StoreText::make(request, accumulator, extents);
  if (!store) return refuse(store.reason());
  std::string row = coordinates(request, extents, false, "row");
  for (size_t axis = 0; axis < axes_.size(); ++axis)
    if (!axes_[axis].in_row) row += fmt::format("const i64 i{} = j{};\n", axes_[axis].output, axis);
  row += fmt::format("const i64 base = {};\n", offset(request, extents, false));
  if (vector_ > 1)
    row += fmt::format("const {0} vectors = begins_at<{1}>(x0, base) ? length / {2} : 0;\n",
                       index_type(), kVectorBytes, vector_);
  row += body(request, extents);
  const std::string length = product(sizes(request, extents, true));
  const std::string rows = product(sizes(request, extents, false));
  const bool beside = columns_ > 1 || run_ > 1;
  // Threads of a block without a row help to combine, with no element.
  const std::string loop =
      beside ? fmt::format(
                   R"(const {index} lane = threadIdx.x % {run} + threadIdx.x / {both} * {run};
for (i64 first = i64(blockIdx.x) * {columns}; first < rows; first += i64(gridDim.x) * {columns}) {{
const i64 own = first + threadIdx.x / {run} % {columns};
const i64 row = own < rows ? own : rows - 1;
const {index} length = own < rows ? row_length : 0;
const bool is_first = lane == 0 && own < rows;
)",
                   fmt::arg("index", index_type()), fmt::arg("run", run_),
                   fmt::arg("both", run_ * columns_), fmt::arg("columns", columns_))
             : fmt::format(
                   R"(const {index} lane = threadIdx.x % {threads};
const {index} length = row_length;
[[maybe_unused]] const bool is_first = lane == 0;
for (i64 row = i64(blockIdx.x) * {per_block} + threadIdx.x / {threads}; row < rows;
     row += i64(gridDim.x) * {per_block}) {{
)",
                   fmt::arg("index", index_type()), fmt::arg("threads", threads_),
                   fmt::arg("per_block", kThreads / threads_));
  std::string text = fmt::format(
      R"({definition}
KERNEL($name, {block})({inputs}{stores}{extents}) {{
SHARED({partial}, partial, {partials});
const Store store = {construction};
const {index} row_length = {index}({length});
const i64 rows = {rows};
{loop}{row}}}
}}
)",
      fmt::arg("definition", store->definition()), fmt::arg("block", kThreads),
      fmt::arg("inputs", input_parameters(request, request.op_input_count)),
      fmt::arg("stores", store->parameters()), fmt::arg("extents", extents.parameters()),
      fmt::arg("partial", partial_type), fmt::arg("partials", beside ? kThreads : kThreads / 32),
      fmt::arg("construction", store->construction()), fmt::arg("index", index_type()),
      fmt::arg("length", length), fmt::arg("rows", rows), fmt::arg("loop", loop),
      fmt::arg("row", row));
  std::vector<bool> in_row;
  for (const Axis& axis : axes_) in_row.push_back(axis.in_row);
  FunctionText function{std::string(family), {"program.h", "lanes.h", "rows.h"}, std::move(text)};
  FunctionParts parts = parts_of(request, seen, extents, std::move(function));
  parts.geometry = [in_row = std::move(in_row), threads = threads_, needs_elements,
                    spec = &spec_of(request.device)](FunctionParts::Views inputs,
                                                     FunctionParts::Views) {
    int64_t count = 1, elements = 1;
    for (int axis = 0; axis < inputs[0].dims.rank(); ++axis)
      (in_row[static_cast<size_t>(axis)] ? elements : count) *= inputs[0].dims[axis];
    if (needs_elements && elements == 0 && count > 0)
      fail(ErrorCode::kInvalidArgument, "an empty axis has no largest or smallest element");
    return Geometry{.grid = {resident_blocks_for(*spec, count * threads, kThreads), 1, 1},
                    .block = {kThreads, 1, 1}};
  };
  return std::make_unique<FunctionKernel>(std::move(parts));
}

}  // namespace anneal::cuda
