// "cuda.scatter_elements.lines", "cuda.scatter_nd.lines": copies of a tensor with updates at
// positions that indices name, applied in their order. device/scatter.h has the algorithm.
#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "anneal/core/integer.h"
#include "anneal/kernels/cuda/kernels/entries.h"
#include "anneal/kernels/cuda/kernels/function_kernel.h"
#include "anneal/kernels/cuda/text/index_mapping.h"
#include "anneal/kernels/cuda/text/shape_text.h"

namespace anneal::cuda {
namespace {

constexpr int kScatterThreads = 128;
// Fewer leave multiprocessors without work.
constexpr int64_t kFewThreads = 16384;
// Elements that a thread copies at least, if there are more threads than kFewThreads.
constexpr int64_t kLeastCopies = 4;

// The axes of a scatter: the tensor's are of lines or of positions, the updates' are of lines or
// count the updates of a line.
struct ScatterAxes {
  std::vector<int> lines, positions, updates;
};

ScatterAxes axes_of(const IndexMapping& mapping, int updates_rank) {
  ScatterAxes axes;
  axes.positions = mapping.indexed_axes();
  std::vector<bool> of_line(static_cast<size_t>(updates_rank));
  for (int axis = 0; axis < mapping.shared.rank(); ++axis) {
    if (mapping.shared[axis] == IndexMapping::kIndexed) continue;
    axes.lines.push_back(axis);
    of_line[static_cast<size_t>(mapping.shared[axis])] = true;
  }
  for (int axis = 0; axis < updates_rank; ++axis)
    if (!of_line[static_cast<size_t>(axis)]) axes.updates.push_back(axis);
  return axes;
}

int64_t elements_along(const Dims& dims, const std::vector<int>& axes) {
  int64_t product = 1;
  for (const int axis : axes) product *= dims[axis];
  return product;
}

// How many threads share a line, a power of two. Each reads all indices of the line. Lines that are
// few are shared for the sake of parallel work. Others are shared by as many threads as leave each
// at least as many elements to copy as it has indices to read, so that work is not quadratic.
int64_t threads_of_scatter(const ScatterAxes& axes, const Dims& tensor, const Dims& updates) {
  const int64_t lines = std::max<int64_t>(elements_along(tensor, axes.lines), 1);
  const int64_t positions = std::max<int64_t>(elements_along(tensor, axes.positions), 1);
  const int64_t all = elements_along(updates, axes.updates);
  const int64_t wanted = std::max(positions / std::max(all, kLeastCopies),
                                  std::min(ceil_div(kFewThreads, lines), positions));
  return static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(std::max<int64_t>(wanted, 1))));
}

class ScatterWriter {
 public:
  ScatterWriter(const Request& request, Extents& extents, const IndexMapping& mapping,
                const ScatterAxes& axes, ScatterReduction reduction)
      : request_(request),
        extents_(extents),
        mapping_(mapping),
        axes_(axes),
        reduction_(reduction),
        index_(index_type(request)) {}

  // "struct Scatter { ... };", as device/scatter.h wants it.
  std::string definition() {
    const std::string functions = counts() + copy() + updates() + position() + update();
    std::string fields = fmt::format("In<{}> x0; In<{}> x1; In<{}> x2; Out<{}> y0;", type(0),
                                     type(1), type(2), type(0));
    for (size_t i = 0; i < extents_.sources().size(); ++i) fields += fmt::format(" i64 v{};", i);
    return fmt::format(
        "struct Scatter {{\n{}\nusing Index = {};\nenum : bool {{ kPartsFirst = {} }};\n{}}};\n",
        fields, index_, positions_are_innermost(), functions);
  }

 private:
  std::string type(size_t input) const { return type_text(request_.inputs[input].type.dtype); }
  std::vector<std::string> sizes(size_t input, const std::vector<int>& axes) {
    std::vector<std::string> all;
    for (const int axis : axes) {
      const Size size = request_.inputs[input].type.shape[axis];
      all.push_back(divisor_text(size, extents_.input_dim(static_cast<int>(input), axis)));
    }
    return all;
  }
  std::string count(size_t input, const std::vector<int>& axes) {
    std::vector<std::string> all;
    for (const int axis : axes) all.push_back(extents_.input_dim(static_cast<int>(input), axis));
    return product(all);
  }
  // "const i32 l0 = ...;" for each axis of the numbered elements, from their number in row-major
  // order. The names are prefix and name(i).
  std::string coordinates(const std::string& number, const std::vector<std::string>& dims,
                          const std::function<std::string(size_t)>& name) const {
    std::string text = fmt::format("[[maybe_unused]] {} rest_{} = {};\n", index_, number, number);
    for (size_t i = dims.size(); i-- > 0;) {
      const std::string size = fmt::format("{}({})", index_, dims[i]);
      const std::string rest = "rest_" + number;
      if (i == 0)
        text += fmt::format("[[maybe_unused]] const {} {} = {};\n", index_, name(i), rest);
      else
        text += fmt::format("[[maybe_unused]] const {0} {1} = {2} % {3};\n{2} /= {3};\n", index_,
                            name(i), rest, size);
    }
    return text;
  }
  // The tensor's coordinates along axes of lines are l0, l1, ..., by axis.
  std::string of_line() {
    return coordinates("line", sizes(0, axes_.lines),
                       [&](size_t i) { return fmt::format("l{}", axes_.lines[i]); });
  }
  // Those along axes of positions are k0, k1, ..., by their order.
  std::string of_position() {
    return coordinates("position", sizes(0, axes_.positions),
                       [](size_t i) { return fmt::format("k{}", i); });
  }
  // The coordinates of an update are those of its line and, by axis, m0, m1, ...
  std::string of_update() {
    return coordinates("n", sizes(2, axes_.updates),
                       [&](size_t i) { return fmt::format("m{}", axes_.updates[i]); });
  }
  std::string coordinate(int of) const {
    for (const int axis : axes_.lines)
      if (mapping_.shared[axis] == of) return fmt::format("l{}", axis);
    return fmt::format("m{}", of);
  }
  std::string place(OperandAt at) {
    return place_text(mapping_, request_, extents_, at, [&](int of) { return coordinate(of); });
  }
  bool positions_are_innermost() const {
    const int last = mapping_.shared.rank() - 1;
    return mapping_.shared[last] == IndexMapping::kIndexed;
  }

  std::string function(std::string_view result, std::string_view name, std::string_view parameters,
                       const std::string& body) const {
    return fmt::format("__device__ {} {}({}) const {{\n{}}}\n", result, name, parameters, body);
  }
  std::string counts() {
    return function("Index", "lines", "",
                    fmt::format("return Index({});\n", count(0, axes_.lines))) +
           function("Index", "positions", "",
                    fmt::format("return Index({});\n", count(0, axes_.positions)));
  }
  std::string copy() {
    return function("void", "copy", "Index line, Index position",
                    of_line() + of_position() +
                        fmt::format("y0[{}] = x0[{}];\n", place({true, 0}), place({false, 0})));
  }
  // Lines beside the updates have none: indices may be smaller than the tensor.
  std::string updates() {
    std::string within;
    for (const int axis : axes_.lines) {
      for (int of = 0; of < mapping_.indices.rank(); ++of) {
        if (mapping_.indices[of] != mapping_.shared[axis]) continue;
        const Size size = request_.inputs[1].type.shape[of];
        if (size == request_.inputs[0].type.shape[axis]) continue;
        within += fmt::format("{}l{} < {}", within.empty() ? "" : " && ", axis,
                              extents_.input_dim(1, of));
      }
    }
    const std::string all = fmt::format("Index({})", count(2, axes_.updates));
    if (within.empty())
      return function("Index", "updates", "Index", fmt::format("return {};\n", all));
    return function("Index", "updates", "Index line",
                    of_line() + fmt::format("return {} ? {} : Index(0);\n", within, all));
  }
  std::string position() {
    std::string body = of_line() + of_update() + "Index place = 0;\n";
    for (size_t t = 0; t < axes_.positions.size(); ++t) {
      const std::string size = extents_.input_dim(0, axes_.positions[t]);
      const std::string index = index_text(mapping_, request_, extents_, static_cast<int>(t),
                                           [&](int of) { return coordinate(of); });
      body += fmt::format(
          "const i64 k{0} = indexing::position({1}, {2});\nif (k{0} < 0) return Index(-1);\n"
          "place = place * Index({2}) + Index(k{0});\n",
          t, index, size);
    }
    return function("Index", "position", "Index line, Index n", body + "return place;\n");
  }
  std::string update() {
    const DataType dtype = request_.inputs[2].type.dtype;
    const Shape& shape = request_.inputs[2].type.shape;
    const std::string from = fmt::format(
        "x2[{}]",
        offset_text(request_, extents_, {false, 2}, shape, [&](int of) { return coordinate(of); }));
    const std::string value =
        reduction_ == ScatterReduction::kNone
            ? from
            : stored(dtype, fmt::format("op::{}({}, {})", operation(), loaded(dtype, from),
                                        loaded(dtype, "y0[at]")));
    return function("void", "update", "Index line, Index position, Index n",
                    of_line() + of_position() + of_update() +
                        fmt::format("const i64 at = {};\ny0[at] = {};\n", place({true, 0}), value));
  }
  // Of equal numbers min and max return the second, which is the older one: zeros keep their sign.
  std::string_view operation() const {
    switch (reduction_) {
      case ScatterReduction::kAdd:
        return "add";
      case ScatterReduction::kMul:
        return "mul";
      case ScatterReduction::kMax:
        return "max";
      default:
        return "min";
    }
  }

  const Request& request_;
  Extents& extents_;
  const IndexMapping& mapping_;
  const ScatterAxes& axes_;
  ScatterReduction reduction_;
  std::string_view index_;
};

KernelResult make_scatter(const IndexMapping& mapping, ScatterReduction reduction,
                          const Request& original, std::string_view family) {
  if (has_epilogue(original)) return refuse("an epilogue");
  OperandViews seen(original);
  if (reduction == ScatterReduction::kNone) seen.as_bits(1);
  const Request request = seen.request();
  const ScatterAxes axes = axes_of(mapping, request.inputs[2].type.shape.rank());
  Extents extents(request);
  ScatterWriter writer(request, extents, mapping, axes, reduction);
  const std::string definition = writer.definition();
  if (request.inputs.size() + extents.sources().size() + 2 > Arguments::kMost)
    return refuse("more operands than a launch takes");
  FunctionText text{std::string(family), {"program.h", "lanes.h", "indexing.h", "scatter.h"}, {}};
  text.text = fmt::format(
      "{}KERNEL($name, {})({}, Out<{}> y0, i64 parts{}) {{\n"
      "const Scatter s = {{x0, x1, x2, y0{}}};\nindexing::scatter(s, parts);\n}}\n",
      definition, kScatterThreads, input_parameters(request, 3),
      type_text(request.outputs[0].type.dtype), extents.parameters(), extents.names());
  FunctionParts parts = parts_of(request, seen, extents, std::move(text));
  parts.extra = [axes](Arguments& arguments, FunctionParts::Views inputs,
                       FunctionParts::Views outputs) {
    arguments.add(threads_of_scatter(axes, outputs[0].dims, inputs[2].dims));
  };
  parts.geometry = [axes, spec = &spec_of(request.device)](FunctionParts::Views inputs,
                                                           FunctionParts::Views outputs) {
    const Dims& dims = outputs[0].dims;
    const int64_t threads =
        anneal::count(dims) == 0
            ? 0
            : elements_along(dims, axes.lines) * threads_of_scatter(axes, dims, inputs[2].dims);
    return Geometry{.grid = {resident_blocks_for(*spec, threads, kScatterThreads), 1, 1},
                    .block = {kScatterThreads, 1, 1}};
  };
  return std::make_unique<FunctionKernel>(std::move(parts));
}

KernelResult make_scatter_elements(const ScatterElements& op, const Request& request) {
  const int rank = request.inputs[0].type.shape.rank();
  return make_scatter(IndexMapping::by_element(static_cast<int>(op.axis), rank), op.reduction,
                      request, "scatter_elements");
}

KernelResult make_scatter_nd(const ScatterND& op, const Request& request) {
  const Shape& indices = request.inputs[1].type.shape;
  const auto length = static_cast<int>(indices[indices.rank() - 1].value());
  return make_scatter(
      IndexMapping::tuples(0, length, request.inputs[0].type.shape.rank(), indices.rank()),
      op.reduction, request, "scatter_nd");
}

constexpr KernelEntry kScatterEntries[] = {
    entry<ScatterElements, make_scatter_elements>("cuda.scatter_elements.lines"),
    entry<ScatterND, make_scatter_nd>("cuda.scatter_nd.lines"),
};

}  // namespace

std::span<const KernelEntry> scatter_entries() { return kScatterEntries; }

}  // namespace anneal::cuda
