#include "anneal/kernels/cuda/text/window_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>

namespace anneal::cuda {
namespace {

constexpr const char* kAxes[] = {"z", "y", "x"};

}  // namespace

int axis_of(int zyx, int rank) { return zyx + rank - 3 < 2 ? -1 : zyx + rank - 3; }

void add_window(ShapeText& shape, Extents& extents, const Request& request, const WindowOp& op,
                bool windows_stick_out) {
  const int rank = request.inputs[0].type.shape.rank();
  const Operand& y = request.outputs[0];
  bool padded = windows_stick_out;
  for (int i = 0; i < 3; ++i) {
    const int axis = axis_of(i, rank);
    const auto add = [&](const char* name, const std::string& value) {
      shape.number(fmt::format("{}_{}", name, kAxes[i]), value);
    };
    const auto attribute = [&](const std::vector<int64_t>& values, int64_t absent) {
      return fmt::format("{}", axis < 0 ? absent : values[static_cast<size_t>(axis - 2)]);
    };
    add("in", axis < 0 ? "1" : extents.input_dim(0, axis));
    add("out", axis < 0 ? "1" : divisor_text(y.type.shape[axis], extents.output_dim(0, axis)));
    add("stride", attribute(op.strides, 1));
    add("pad", attribute(op.pads_begin, 0));
    add("pad_end", attribute(op.pads_end, 0));
    add("dilation", attribute(op.dilations, 1));
    add("x", axis < 0 ? "0" : extents.input_stride(0, axis));
  }
  for (const auto* pads : {&op.pads_begin, &op.pads_end})
    padded = padded || std::any_of(pads->begin(), pads->end(), [](int64_t p) { return p != 0; });
  shape.number("x_n", extents.input_stride(0, 0));
  shape.number("x_c", extents.input_stride(0, 1));
  shape.flag("kPadded", padded);
}

std::string coordinates_text(int rank, std::string_view channel, std::string_view prefix) {
  std::string text = fmt::format("{}n, {}", prefix, channel);
  for (int i = 0; i < 3; ++i)
    if (axis_of(i, rank) >= 0) text += fmt::format(", {}{}", prefix, kAxes[i]);
  return text;
}

std::string result_definition(int rank, std::string_view accumulator) {
  return fmt::format(
      "struct Result {{\n  enum : int {{ kLanes = Store::kLanes }};\n  Store store;\n"
      "  __device__ Store::Columns columns(i64 c) const {{ return store.columns(c); }}\n"
      "  __device__ void operator()(const Vec<{0}, kLanes>& sums, const Store::Columns& columns,\n"
      "                             i64 n, i64 c, i64 z, i64 y, i64 x) const {{\n"
      "    store(sums, columns, store.inputs(0, {1}), 0, {1});\n  }}\n}};\n",
      accumulator, coordinates_text(rank, "c"));
}

void add_thread_outputs(ShapeText& shape, Extents& extents, const Request& request,
                        ThreadShare share, std::string_view input_channel) {
  const Operand& y = request.outputs[0];
  const int rank = y.type.shape.rank();
  const auto name_of = [&](int axis) {
    return axis == 0 ? "n" : axis == 1 ? "c" : kAxes[axis - rank + 3];
  };
  std::string threads = "1", decode;
  for (const int axis : memory_order(y)) {
    const int each = axis == 1 ? share.channels : axis == rank - 1 ? share.columns : 1;
    const std::string parts = fmt::format("({})", ceil_div_text(extents.output_dim(0, axis), each));
    const std::string name = fmt::format("parts_{}", name_of(axis));
    shape.number(name, parts);
    threads += fmt::format(" * {}", parts);
    decode +=
        fmt::format("    at.{} = rest % {} * {}, rest /= {};\n", name_of(axis), name, each, name);
  }
  // Counted in 64 bits.
  shape.number("threads", threads);
  shape.add(fmt::format(
      "  struct At {{\n    i64 n, c, channel, z, y, x;\n  }};\n"
      "  __device__ At at(i64 i) const {{\n    At at{{}};\n    Index rest = Index(i);\n{}"
      "    const i64 c = at.c;\n    at.channel = {};\n    return at;\n  }}\n",
      decode, input_channel));
}

StoreLanes store_lanes(ThreadShare share) {
  return {.axis = 1, .most = share.channels, .multiple = share.channels};
}

int64_t thread_count(const Dims& y, ThreadShare share) {
  int64_t threads = 1;
  for (int axis = 0; axis < y.rank(); ++axis) {
    const int each = axis == 1 ? share.channels : axis == y.rank() - 1 ? share.columns : 1;
    threads *= (y[axis] + each - 1) / each;
  }
  return threads;
}

bool is_channels_first_in_memory(const Operand& operand) {
  const Shape& strides = operand.strides;
  const int last = strides.rank() - 1;
  if (strides[1].known() && strides[last].known())
    return std::abs(strides[1].value()) < std::abs(strides[last].value());
  return strides[1].known() && std::abs(strides[1].value()) == 1;
}

std::vector<int> memory_order(const Operand& operand) {
  const int rank = operand.strides.rank();
  std::vector<int> order(static_cast<size_t>(rank));
  std::iota(order.rbegin(), order.rend(), 0);
  if (known(operand.strides)) {
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
      return std::abs(operand.strides[a].value()) < std::abs(operand.strides[b].value());
    });
  } else if (is_channels_first_in_memory(operand)) {
    order.erase(std::find(order.begin(), order.end(), 1));
    order.insert(order.begin(), 1);
  }
  return order;
}

}  // namespace anneal::cuda
