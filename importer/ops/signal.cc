// Fourier transforms as products with matrices, and the windows around them.
#include <fmt/format.h>

#include <cmath>
#include <numbers>
#include <numeric>

#include "anneal/importer/onnx/tensor_data.h"
#include "anneal/importer/onnx/tensor_proto.h"
#include "anneal/importer/ops/expression.h"
#include "anneal/importer/ops/rows.h"

namespace anneal {
namespace {

constexpr double kTurn = 2 * std::numbers::pi;
constexpr int64_t kMaxCoefficients = 1 << 25;

// 0, 1, ... count - 1.
ValueId counting(Node& node, ValueId count, const std::string& suffix) {
  return node.layer(Range{},
                    {scalar_value(node, 0, (suffix + "/zero").c_str()), count,
                     scalar_value(node, 1, (suffix + "/one").c_str())},
                    suffix);
}

ValueId scalar_input(Node& node, int index, const char* suffix) {
  return reshape(node, node.input(index), {}, suffix);
}

DataType output_datatype(Node& node) {
  const auto type = node.integer("output_datatype", 1);
  const DataType dtype = require_dtype(static_cast<int32_t>(type));
  if (!kNumbers.contains(dtype)) node.invalid("attribute \"output_datatype\" is no number type");
  return dtype;
}

// a0 - a1 cos(t) + a2 cos(2t), t from 0 to a whole turn.
Outputs cosine_window(Node& node, double a0, double a1, double a2) {
  node.expect_inputs(1, 1);
  node.dtype(0, kIndices);
  const DataType dtype = output_datatype(node);
  const bool periodic = node.flag("periodic", true);
  const ValueId size = as_i64(node, scalar_input(node, 0, "scalar"), "size");
  return pointwise_result(
      node, {counting(node, size, "positions"), size}, dtype, [&](Expressions in) {
        const Expression steps = in[1].cast(RegisterType::kF64) - (periodic ? 0 : 1);
        const Expression angle = in[0].cast(RegisterType::kF64) * kTurn / steps;
        return a0 - angle.apply(Opcode::kCos) * a1 + (angle * 2).apply(Opcode::kCos) * a2;
      });
}
Outputs import_hann_window(Node& node) { return cosine_window(node, 0.5, 0.5, 0); }
Outputs import_hamming_window(Node& node) { return cosine_window(node, 25.0 / 46, 21.0 / 46, 0); }
Outputs import_blackman_window(Node& node) { return cosine_window(node, 0.42, 0.5, 0.08); }

// Triangles between neighbouring ones of mel_bins + 2 frequencies that are evenly spaced on the mel
// scale, in whole bins of the transform.
Outputs import_mel_weight_matrix(Node& node) {
  node.expect_inputs(5, 5);
  const DataType dtype = output_datatype(node);
  for (int i = 0; i < 3; ++i) node.dtype(i, kIndices);
  for (int i = 3; i < 5; ++i) node.dtype(i, kNumbers);
  const ValueId mels = as_i64(node, scalar_input(node, 0, "mels"), "mel_count");
  const ValueId length = as_i64(node, scalar_input(node, 1, "length"), "dft_length");
  const ValueId bins = pointwise(node, "bins", {length}, DataType::kI64, [](Expressions in) {
    return in[0].apply(Opcode::kShiftRight, in[0].number(1)) + 1;
  });
  const ValueId row = counting(node, bins, "rows");
  const ValueId rows =
      reshape(node, row, {node.graph().value(row).type().shape[0], Size(1)}, "row_indices");
  const std::vector<ValueId> inputs = {rows,
                                       counting(node, mels, "columns"),
                                       mels,
                                       length,
                                       scalar_input(node, 2, "rate"),
                                       scalar_input(node, 3, "lower"),
                                       scalar_input(node, 4, "upper")};
  return pointwise_result(node, inputs, dtype, [](Expressions raw) {
    std::vector<Expression> in;
    for (const Expression& each : raw) in.push_back(each.cast(RegisterType::kF64));
    const double log_10 = std::log(10.0);
    const auto mel = [&](Expression hertz) {
      return (hertz / 700).apply(Opcode::kLog1p) * 2595 / log_10;
    };
    const Expression lowest = mel(in[5]);
    const Expression step = (mel(in[6]) - lowest) / (in[2] + 2);
    const auto bin = [&](double offset) {
      const Expression mels_up = (in[1] + offset) * step + lowest;
      const Expression hertz = (mels_up / 2595 * log_10).apply(Opcode::kExpm1) * 700;
      return ((in[3] + 1) * hertz / in[4]).apply(Opcode::kFloor);
    };
    const Expression left = bin(0), centre = bin(1), right = bin(2), at = in[0];
    const Expression zero = at.number(0), one = at.number(1);
    const Expression rising =
        select(left <= at && at <= centre, (at - left) / (centre - left), zero);
    const Expression peak = select(at == centre, one, zero);
    const Expression falls = centre <= at && at < right;
    return select(falls, (right - at) / (right - centre), select(left == centre, peak, rising));
  });
}

// A transform of `length` points from `points` numbers of `parts` (2: complex) to `bins` of
// `results`. Points beyond the length do not count, and missing ones are zeros.
struct Transform {
  int64_t length = 0, points = 0, parts = 1, bins = 0, results = 2;
  bool inverse = false;
};

// cos of a part of a whole turn, exact at quarters.
double cosine(int64_t part, int64_t turn) {
  if (4 * part % turn == 0) {
    constexpr double kQuarters[] = {1, 0, -1, 0};
    return kQuarters[4 * part / turn % 4];
  }
  return std::cos(kTurn * static_cast<double>(part) / static_cast<double>(turn));
}
double sine(int64_t part, int64_t turn) {
  if (4 * part % turn == 0) {
    constexpr double kQuarters[] = {0, 1, 0, -1};
    return kQuarters[4 * part / turn % 4];
  }
  return std::sin(kTurn * static_cast<double>(part) / static_cast<double>(turn));
}

// f(point, part, bin, result) gets each coefficient.
template <class F>
void for_coefficients(const Transform& t, F f) {
  const double scale = t.inverse ? 1 / static_cast<double>(t.length) : 1;
  // A real result is the inverse of one half of a spectrum; the other half mirrors it.
  const bool halved = t.results == 1;
  const int64_t used = std::min(t.points, halved ? t.length / 2 + 1 : t.length);
  for (int64_t point = 0; point < used; ++point) {
    const bool twice = halved && point > 0 && 2 * point != t.length;
    for (int64_t bin = 0; bin < t.bins; ++bin) {
      const int64_t turns = point * bin % t.length;
      const double re = scale * (twice ? 2 : 1) * cosine(turns, t.length);
      const double im =
          scale * (twice ? 2 : 1) * (t.inverse ? sine(turns, t.length) : -sine(turns, t.length));
      f(point, 0, bin, 0, re);
      if (t.results == 2) f(point, 0, bin, 1, im);
      if (t.parts == 1) continue;
      f(point, 1, bin, 0, -im);
      if (t.results == 2) f(point, 1, bin, 1, re);
    }
  }
}

void check_size(Node& node, const Transform& t) {
  if (t.length < 1) node.invalid(fmt::format("a transform of {} points", t.length));
  if (t.points > kMaxCoefficients || t.bins > kMaxCoefficients ||
      t.points * t.parts > kMaxCoefficients / (t.bins * t.results))
    node.unsupported(fmt::format("a transform of {} points", t.length));
}

int64_t known_scalar(Node& node, int index, std::string_view what) {
  const auto values = node.integers_of_input(index, what);
  if (values.size() != 1) node.invalid(fmt::format("{} is not a scalar", what));
  return values[0];
}

int64_t parts_of(Node& node) {
  const Size parts = node.shape(0)[node.rank(0) - 1];
  if (!parts.known())
    node.unsupported("a last axis of an open size (--shapes gives it one: 1 real or 2 complex)");
  if (parts.value() < 1 || parts.value() > 2)
    node.invalid(fmt::format("a last axis of {} elements, not 1 or 2", parts.value()));
  return parts.value();
}

// The matrix of a transform by [points * parts, bins * results] coefficients.
struct TransformMatrix {
  Size points, bins;
  int64_t parts = 1, results = 2;
  ValueId coefficients = ValueId::kNone;
};

TransformMatrix constant_matrix(Node& node, const Transform& t, DataType dtype) {
  const int64_t columns = t.bins * t.results;
  std::vector<double> matrix(static_cast<size_t>(t.points * t.parts * columns));
  for_coefficients(t, [&](int64_t point, int64_t part, int64_t bin, int64_t result, double value) {
    const int64_t row = point * t.parts + part;
    matrix[static_cast<size_t>(row * columns + bin * t.results + result)] = value;
  });
  return {
      Size(t.points), Size(t.bins), t.parts, t.results,
      node.constant_value(tensor_of(dtype, {t.points * t.parts, columns}, matrix), "coefficients")};
}

// Of complex results: as many bins as points, or the first half if onesided. Each run computes it.
TransformMatrix matrix_of_open_size(Node& node, Size points, int64_t parts, bool inverse,
                                    bool onesided, DataType dtype) {
  SizeTable& sizes = node.sizes();
  const Size bins = onesided ? sizes.add(sizes.floor_div(points, 2), 1) : points;
  const auto line = [&](Size count, std::vector<Size> shape, const std::string& suffix) {
    const ValueId size =
        reshape(node, node.sizes_value({count}, suffix + "/count"), {}, suffix + "/scalar");
    return reshape(node, counting(node, size, suffix), shape, suffix + "/line");
  };
  const auto numbers = [&](const Dims& dims, int64_t count, const char* suffix) {
    std::vector<int64_t> all(static_cast<size_t>(count));
    std::iota(all.begin(), all.end(), 0);
    return node.constant_value(Tensor::of<int64_t>(DataType::kI64, dims, all), suffix);
  };
  const std::vector<ValueId> inputs = {
      line(points, {points, 1, 1, 1}, "points"), line(bins, {1, 1, bins, 1}, "bins"),
      numbers({1, parts, 1, 1}, parts, "parts"), numbers({1, 1, 1, 2}, 2, "results"),
      node.sizes_value({points}, "length")};
  const RegisterType real = dtype == DataType::kF64 ? RegisterType::kF64 : RegisterType::kF32;
  const ValueId coefficients = pointwise(node, "coefficients", inputs, dtype, [&](Expressions in) {
    const Expression length = in[4].cast(real);
    const Expression turns = (in[0] * in[1]).apply(Opcode::kMod, in[4]).cast(real);
    const Expression angle = turns * kTurn / length;
    const Expression re = angle.apply(Opcode::kCos), sine = angle.apply(Opcode::kSin);
    const Expression im = inverse ? sine : -sine;
    const Expression value = select(in[2] == in[3], re, select(in[2] == 0, im, -im));
    return inverse ? value / length : value;
  });
  const std::vector<Size> dims = {sizes.mul(points, parts), sizes.mul(bins, 2)};
  return {points, bins, parts, 2, reshape(node, coefficients, dims, "matrix")};
}

Outputs transformed(Node& node, int64_t axis, const TransformMatrix& matrix) {
  // The signal's axis goes beside the parts, and back.
  const int rank = node.rank(0);
  std::vector<int64_t> order(static_cast<size_t>(rank));
  std::iota(order.begin(), order.end(), 0);
  std::swap(order[static_cast<size_t>(axis)], order[static_cast<size_t>(rank - 2)]);
  const bool moves = axis != rank - 2;
  const ValueId x = moves ? node.layer(Transpose{order}, {node.input(0)}, "moved") : node.input(0);
  const Shape& shape = node.graph().value(x).type().shape;
  std::vector<Size> result(shape.begin(), shape.end() - 2);
  const Size signals = product(Shape(std::span<const Size>(result)), node.sizes());
  result.insert(result.end(), {matrix.bins, Size(matrix.results)});
  const Size summands = node.sizes().mul(matrix.points, matrix.parts);
  const ValueId rows = reshape(node, x, {signals, summands}, "rows");
  const ValueId product = node.layer(MatMul{}, {rows, matrix.coefficients}, "product");
  const ValueId target = node.sizes_value(result, "shape");
  const Reshape op{.allow_zero = true};
  if (!moves) return node.result(op, {product, target}, "apart");
  return node.result(Transpose{order}, {node.layer(op, {product, target}, "apart")});
}

Outputs dft(Node& node, int64_t axis) {
  const DataType dtype = node.dtype(0, kFloats);
  const int rank = node.rank(0);
  if (rank < 2) node.invalid("a signal axis and an axis of parts are expected");
  axis = node.resolve_axis(axis, rank);
  if (axis == rank - 1) node.invalid("the axis of parts is not one of the signal");
  const bool onesided = node.flag("onesided", false);
  Transform t;
  t.inverse = node.flag("inverse", false);
  t.parts = parts_of(node);
  const Size points = node.shape(0)[static_cast<int>(axis)];
  const bool real_result = t.inverse && onesided;
  if (!points.known()) {
    if (node.has_input(1) || real_result)
      node.unsupported(
          "a signal of open length that has another length than its transform (--shapes gives it "
          "one)");
    return transformed(node, axis,
                       matrix_of_open_size(node, points, t.parts, t.inverse, onesided, dtype));
  }
  t.points = points.value();
  t.length = node.has_input(1) ? known_scalar(node, 1, "the length")
             : real_result     ? 2 * (t.points - 1)
                               : t.points;
  t.bins = onesided && !t.inverse ? t.length / 2 + 1 : t.length;
  t.results = real_result ? 1 : 2;
  check_size(node, t);
  return transformed(node, axis, constant_matrix(node, t, dtype));
}

Outputs import_dft_axis_attribute(Node& node) {
  node.expect_inputs(1, 2);
  return dft(node, node.integer("axis", 1));
}
Outputs import_dft(Node& node) {
  node.expect_inputs(1, 3);
  return dft(node, node.has_input(2) ? known_scalar(node, 2, "the axis") : -2);
}

int64_t frame_length(Node& node, Size signal) {
  Size length = signal;
  if (node.has_input(3)) {
    length = known_scalar(node, 3, "the frame's length");
  } else if (node.has_input(2)) {
    length = node.shape(2)[0];
  }
  if (!length.known()) node.unsupported("frames whose length is known only at run time");
  return length.value();
}

// A convolution: its kernels are the waves, each times the window, and its strides the step. The
// older exporter of torch leaves out the axis of parts of a real signal, as ONNX Runtime allows.
Outputs import_stft(Node& node) {
  node.expect_inputs(2, 4);
  const DataType dtype = node.dtype(0, kFloats);
  const Shape signal_shape = node.shape(0);
  const bool has_parts = signal_shape.rank() == 3;
  if (!has_parts && signal_shape.rank() != 2)
    node.invalid("input 0 has not 3 axes, or 2 of a real signal");
  if (node.has_input(2) && node.rank(2) != 1) node.invalid("the window has not 1 axis");
  node.expect_same_dtype({0, 2});
  const bool onesided = node.flag("onesided", true);
  const int64_t step = known_scalar(node, 1, "the step");
  if (step < 1) node.invalid(fmt::format("a step of {}", step));
  Transform t;
  t.parts = has_parts ? parts_of(node) : 1;
  t.length = t.points = frame_length(node, signal_shape[1]);
  if (onesided && t.parts == 2) node.invalid("one side of the spectrum of a complex signal");
  t.bins = onesided ? t.length / 2 + 1 : t.length;
  check_size(node, t);

  std::vector<double> waves(static_cast<size_t>(t.bins * 2 * t.parts * t.length));
  for_coefficients(t, [&](int64_t point, int64_t part, int64_t bin, int64_t result, double value) {
    const int64_t kernel = bin * 2 + result;
    waves[static_cast<size_t>((kernel * t.parts + part) * t.length + point)] = value;
  });
  ValueId kernels =
      node.constant_value(tensor_of(dtype, {t.bins * 2, t.parts, t.length}, waves), "waves");
  if (node.has_input(2))
    kernels = pointwise(node, "windowed", {kernels, node.input(2)}, dtype,
                        [](Expressions in) { return in[0] * in[1]; });
  const ValueId signal = has_parts
                             ? node.layer(Transpose{{0, 2, 1}}, {node.input(0)}, "parts_first")
                             : reshape(node, node.input(0),
                                       {signal_shape[0], Size(1), signal_shape[1]}, "parts_first");
  const Conv conv{
      .strides = {step}, .pads_begin = {0}, .pads_end = {0}, .dilations = {1}, .groups = 1};
  const ValueId spectra = node.layer(conv, {signal, kernels}, "spectra");
  const ValueId frames = node.layer(Transpose{{0, 2, 1}}, {spectra}, "frames_first");
  const Shape& shape = node.graph().value(frames).type().shape;
  const ValueId target = node.sizes_value({shape[0], shape[1], Size(t.bins), Size(2)}, "shape");
  return node.result(Reshape{.allow_zero = true}, {frames, target}, "apart");
}

constexpr OpRow kSignalRows[] = {
    {"", "BlackmanWindow", 17, kLatest, import_blackman_window},
    {"", "DFT", 17, 19, import_dft_axis_attribute},
    {"", "DFT", 20, kLatest, import_dft},
    {"", "HammingWindow", 17, kLatest, import_hamming_window},
    {"", "HannWindow", 17, kLatest, import_hann_window},
    {"", "MelWeightMatrix", 17, kLatest, import_mel_weight_matrix},
    {"", "STFT", 17, kLatest, import_stft},
};

}  // namespace

std::span<const OpRow> signal_rows() { return kSignalRows; }

}  // namespace anneal
