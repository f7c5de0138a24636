// Conv by oneDNN. A convolution of single pixels is a matrix product, whose rows may lie any
// distance apart.
//   cpu.conv.onednn            gives sums, to which the epilogue is applied
//   cpu.conv.onednn_post_ops   does the epilogue, too, in place where it adds a residual
//   cpu.conv.onednn_winograd   gives sums by Winograd's algorithm, reorders included
// The last two are chosen by measured times only: our own kernels finish epilogues in registers,
// and our own Winograd needs no reorders.
#include "anneal/core/channels_last.h"
#include "anneal/core/dtype_kinds.h"
#include "anneal/core/integer.h"
#include "anneal/core/new_tensor.h"
#include "anneal/kernels/cpu/base/device.h"
#include "anneal/kernels/cpu/base/entries.h"
#include "anneal/kernels/cpu/conv/direct.h"
#include "anneal/kernels/cpu/conv/im2col_product.h"
#include "anneal/kernels/cpu/onednn/pieces.h"

namespace anneal::cpu {
namespace {

using onednn::ConvShape;
using onednn::MatMulShape;
using onednn::Piece;
using onednn::Pieces;

enum class Way : uint8_t { kSums, kPostOps, kWinograd };

// Everything about a layer that does not depend on how many images there are.
struct ConvLayer {
  const Conv& op;
  TensorView x, w, y;  // of one image; y: all outputs side by side
  int32_t x_zero = 0;
  bool is_copy = false;  // no epilogue
  bool winograd = false;
  std::optional<onednn::PostOps> post_ops = std::nullopt;  // that do all of the epilogue
  const Request& request;
};

Dims tail(const Dims& dims, int first) {
  Dims result;
  for (int axis = first; axis < dims.rank(); ++axis) result.push_back(dims[axis]);
  return result;
}

class OneDnnConv final : public Kernel {
 public:
  explicit OneDnnConv(Epilogues epilogues) : epilogues_(std::move(epilogues)) {}

  // Empty, or why oneDNN should not do it.
  std::string build(const ConvLayer& layer) {
    const TensorView &x = layer.x, &y = layer.y;
    const std::optional<int64_t> pixel = onednn::row_step(x, 2, 1);
    const int64_t channels = x.dims[1];
    pieces_.rows = count(y.dims) / y.dims[1];
    bool pointwise = layer.op.groups == 1 && count(tail(layer.w.dims, 2)) == 1;
    for (int axis = 2; axis < x.dims.rank(); ++axis)
      pointwise = pointwise && x.dims[axis] == y.dims[axis] && layer.op.strides[axis - 2] == 1 &&
                  layer.op.pads_begin[axis - 2] == 0;
    // 8-bit products of rows with gaps are slow.
    const bool gaps = pointwise && !is_8bit(x.dtype);
    is_staged_ = !pixel || (!gaps && *pixel != channels);
    if (layer.post_ops) pieces_.run_epilogue_by_post_ops();
    return pointwise ? add_products(layer, is_staged_ ? channels : *pixel)
                     : add_convolutions(layer);
  }

  std::unique_ptr<PreparedKernel> prepare(std::span<const TensorView> inputs,
                                          std::span<const TensorView> outputs,
                                          int threads) const override {
    return pieces_.prepare_images(inputs, outputs, is_staged_, epilogues_, threads);
  }

  void launch(const LaunchArgs& args) const override {
    pieces_.run(static_cast<const onednn::PreparedPieces&>(*args.prepared), epilogues_, args);
  }

 private:
  static onednn::Product product_of(const ConvLayer& layer) {
    onednn::Product product;
    product.columns = layer.y.dims[1];
    product.depth = count(tail(layer.w.dims, 1));
    product.int8 = is_8bit(layer.x.dtype);
    product.rows = count(layer.y.dims) / product.columns;
    product.ignore_speed_heuristics = layer.request.ignore_speed_heuristics;
    if (layer.post_ops) product.column_grain = 0;
    product.weight_bytes = count(layer.w.dims) * static_cast<int64_t>(size_of(layer.w.dtype));
    product.elements = count(layer.y.dims);
    product.operations = 2 * product.elements * product.depth;
    return product;
  }

  // As build().
  std::string add_products(const ConvLayer& layer, int64_t pixel) {
    const TensorView &x = layer.x, &w = layer.w, &y = layer.y;
    onednn::Product product = product_of(layer);
    product.least_rows = kLeastPixels;
    if (std::string reason = onednn::why_own_product(product); !reason.empty()) return reason;
    const onednn::PieceCut cut = onednn::cut(product);
    pieces_.write_directly(layer.is_copy, onednn::row_step(y, 2, 1), cut);
    const int64_t channels = x.dims[1];
    std::vector<MatMulShape> seen;
    for (int64_t column = 0; column < y.dims[1]; column += cut.piece_columns) {
      const int64_t columns = std::min(cut.piece_columns, y.dims[1] - column);
      for (int64_t i = 0; i < cut.row_pieces; ++i) {
        Piece piece{.column = column, .columns = columns};
        piece.row = onednn::piece_begin(product.rows, cut.row_pieces, i);
        piece.rows = onednn::piece_begin(product.rows, cut.row_pieces, i + 1) - piece.row;
        piece.x_offset = piece.row * pixel * static_cast<int64_t>(size_of(x.dtype));
        MatMulShape shape;
        shape.x = {x.dtype, {piece.rows, channels}, {pixel, 1}};
        shape.w = {w.dtype, {channels, columns}, {w.strides[1], w.strides[0]}};
        shape.y = {y_dtype(layer), {piece.rows, columns}, {columns, 1}};
        shape.x_zero = layer.x_zero;
        shape.post_ops = layer.post_ops.value_or(onednn::PostOps{});
        const auto weights = [&] {
          return w.data + column * w.strides[0] * static_cast<int64_t>(size_of(w.dtype));
        };
        if (std::string reason = pieces_.add(layer.request, seen, shape, piece, weights);
            !reason.empty())
          return reason;
      }
    }
    return {};
  }

  // Pieces are rows of the outermost spatial axis, each with the rows of input it meets.
  std::string add_convolutions(const ConvLayer& layer) {
    const Conv& op = layer.op;
    const TensorView &x = layer.x, &w = layer.w, &y = layer.y;
    const int64_t row_pixels = pieces_.rows / y.dims[2];
    onednn::Product product = product_of(layer);
    // With AVX-512; with AVX2, oneDNN's of f32 take a twentieth less than ours.
    if (op.groups == 1 && onednn::has_avx512())
      if (std::string reason = onednn::why_own_product(product); !reason.empty()) return reason;
    product.rows = y.dims[2];
    if (op.groups > 1) product.column_grain = 0;
    const int64_t pad = std::max(op.pads_begin[0], op.pads_end[0]);
    product.least_rows =
        std::max((pad + op.strides[0] - 1) / op.strides[0], ceil_div(kLeastPixels, row_pixels));
    if (layer.winograd) product.least_rows = std::max(product.least_rows, kLeastWinogradRows);
    const onednn::PieceCut cut = onednn::cut(product);
    pieces_.write_directly(layer.is_copy, onednn::row_step(y, 2, 1), cut);

    ConvShape shape;
    shape.groups = op.groups;
    shape.strides = Dims(std::span<const int64_t>(op.strides));
    shape.dilations = Dims(std::span<const int64_t>(op.dilations));
    shape.pads_begin = Dims(std::span<const int64_t>(op.pads_begin));
    shape.x_zero = layer.x_zero;
    shape.winograd = layer.winograd;
    shape.post_ops = layer.post_ops.value_or(onednn::PostOps{});
    const auto reach = [&](int axis) { return (w.dims[axis + 2] - 1) * op.dilations[axis] + 1; };
    // The elements that the last window needs after the input, which may be fewer than the padding.
    for (int axis = 0; axis < static_cast<int>(op.strides.size()); ++axis)
      shape.pads_end.push_back(std::max<int64_t>((y.dims[axis + 2] - 1) * op.strides[axis] +
                                                     reach(axis) - op.pads_begin[axis] -
                                                     x.dims[axis + 2],
                                                 0));
    std::vector<ConvShape> seen;
    for (int64_t column = 0; column < y.dims[1]; column += cut.piece_columns) {
      const int64_t columns = std::min(cut.piece_columns, y.dims[1] - column);
      for (int64_t i = 0; i < cut.row_pieces; ++i) {
        const int64_t first = onednn::piece_begin(product.rows, cut.row_pieces, i);
        const int64_t last = onednn::piece_begin(product.rows, cut.row_pieces, i + 1) - 1;
        const onednn::WindowRows window(first, last, op.strides[0], op.pads_begin[0], reach(0),
                                        x.dims[2]);
        if (window.rows <= 0) return "windows that are padding alone";
        shape.pads_begin[0] = window.pad_begin;
        shape.pads_end[0] = window.pad_end;
        shape.x = {x.dtype, x.dims, {}};
        shape.x.dims[0] = 1, shape.x.dims[2] = window.rows;
        shape.x.strides = channels_last_strides(shape.x.dims);
        shape.w = {w.dtype, w.dims, w.strides};
        shape.w.dims[0] = columns;
        shape.y = {y_dtype(layer), y.dims, {}};
        shape.y.dims[0] = 1, shape.y.dims[1] = columns, shape.y.dims[2] = last + 1 - first;
        shape.y.strides = channels_last_strides(shape.y.dims);
        const int64_t x_row = count(tail(x.dims, 3)) * x.dims[1];
        Piece piece{.row = first * row_pixels,
                    .rows = (last + 1 - first) * row_pixels,
                    .column = column,
                    .columns = columns,
                    .x_offset = window.begin * x_row * static_cast<int64_t>(size_of(x.dtype))};
        const auto weights = [&] {
          return w.data + column * w.strides[0] * static_cast<int64_t>(size_of(w.dtype));
        };
        if (std::string reason = pieces_.add(layer.request, seen, shape, piece, weights);
            !reason.empty())
          return reason;
      }
    }
    return {};
  }

  static DataType y_dtype(const ConvLayer& layer) {
    if (layer.post_ops) return layer.y.dtype;
    return is_8bit(layer.x.dtype) ? DataType::kI32 : DataType::kF32;
  }

  // Less would read the weights too often, which Winograd's algorithm makes four times as many.
  static constexpr int64_t kLeastPixels = 48, kLeastWinogradRows = 14;

  Epilogues epilogues_;
  Pieces pieces_;
  bool is_staged_ = false;
};

constexpr int64_t kMostTapsWithAvx2 = 1024;

// Groups whose few channels make our own kernel faster. oneDNN has good kernels for groups of one
// channel, and of four with AVX-512.
bool is_own_grouped(const Conv& op, const Dims& w) {
  const int64_t products = w[1] * (w[0] / op.groups);
  return op.groups > 1 && products > 1 && products < (onednn::has_avx512() ? 16 : 32);
}

// Depthwise channels that fill a vector. With bytes, oneDNN takes up to 1.5 times as long as we;
// with f32, its pieces of images with few pixels are too large to be shared equally by threads, and
// windows along one axis (speech) take 2 to 10 times our time if they are long or have gaps.
bool is_own_depthwise(const ConvLayer& layer) {
  constexpr int64_t kFewPixels = 512, kMostPaddingOfDilated = 6;
  const Dims& w = layer.w.dims;
  if (w[0] != layer.op.groups || w[1] != 1 || w[0] < 16) return false;
  if (count(w) / w[0] > kMostDirectTaps) return false;
  // oneDNN's generated kernel takes no dilated windows with wide padding, and its general one is
  // many times slower.
  for (size_t axis = 0; axis < layer.op.dilations.size(); ++axis)
    if (layer.op.dilations[axis] > 1 &&
        std::max(layer.op.pads_begin[axis], layer.op.pads_end[axis]) > kMostPaddingOfDilated)
      return true;
  return is_8bit(layer.x.dtype) || w.rank() == 3 || count(tail(layer.y.dims, 2)) < kFewPixels;
}

// Epilogues that our own convolutions finish in registers, which gains more than oneDNN's products
// do.
bool runs_in_own_registers(const ConvLayer& layer, const Epilogues& epilogues) {
  const Dims& w = layer.w.dims;
  const int64_t columns = w[w.rank() - 1];
  const bool slides = w[1] == 1 && columns >= 3 && columns <= 7 && layer.op.dilations.back() == 1;
  return onednn::has_avx512() && !layer.is_copy && w[0] % kRegisterColumns == 0 &&
         (layer.op.groups == 1 || (layer.op.groups == w[0] && slides)) &&
         epilogues.can_run_in_registers([](DataType storage) { return storage == DataType::kF32; });
}

// Groups of one input channel and several output channels.
bool repeats_channels(const ConvLayer& layer) {
  const int64_t groups = layer.op.groups, outputs = layer.w.dims[0];
  return layer.w.dims[1] == 1 && groups > 1 && outputs > groups && outputs <= kMostRepeats * groups;
}

// Only where it may be faster, but for the epilogue. Empty, or why not.
std::string why_too_slow(const ConvLayer& layer, Way way) {
  if (layer.request.ignore_speed_heuristics) return {};
  if (way != Way::kSums) return "chosen by measured times only";
  if (is_8bit(layer.x.dtype) && repeats_channels(layer))
    return "our own convolutions of repeated channels are faster";
  if (layer.x.dtype == DataType::kF32 && is_own_grouped(layer.op, layer.w.dims))
    return "our own convolutions of small groups are faster";
  if (layer.x.dtype == DataType::kBF16) return "our own convolutions of bf16 are no slower";
  if (is_own_depthwise(layer))
    return "our own depthwise convolutions of bytes, of one axis, of few pixels or of dilated "
           "windows with wide padding are faster";
  return {};
}

KernelResult make_onednn_conv(const Conv& op, const Request& request, Way way) {
  const auto inputs = request.inputs;
  const DataType x = inputs[0].type.dtype, w = inputs[1].type.dtype;
  const bool int8 = is_8bit(x) && w == DataType::kI8;
  const bool floats = x == w && (x == DataType::kF32 || x == DataType::kBF16);
  if (!int8 && !floats) return refuse("only f32, bf16, and 8-bit activations with signed weights");
  if (inputs[1].constant == nullptr) return refuse("weights that are no constants");
  const auto has = [&](int i) { return request.op_input_count > i && inputs[i].present; };
  if (has(2) && inputs[2].constant == nullptr) return refuse("a zero point that is no constant");
  if (has(3) && (inputs[3].constant == nullptr || !onednn::is_zero(*inputs[3].constant)))
    return refuse("weights with a zero point");
  const auto x_view = onednn::known_view(inputs[0]);
  const auto y_view = onednn::known_view(request.outputs[0]);
  if (!x_view || !y_view) return refuse("sizes that are not known before it runs");
  if (x_view->dims.rank() < 3 || x_view->dims.rank() > 5)
    return refuse("only one to three spatial axes");
  ConvLayer layer{.op = op,
                  .x = *x_view,
                  .w = kernel_view(*inputs[1].constant),
                  .y = *y_view,
                  .request = request};
  layer.x.dims[0] = layer.y.dims[0] = 1;
  layer.y.dims[1] = layer.w.dims[0];
  if (count(layer.y.dims) * count(layer.w.dims) * count(layer.x.dims) == 0)
    return refuse("nothing to compute");
  for (size_t axis = 0; axis < op.strides.size(); ++axis)
    if (op.pads_begin[axis] < 0 || op.pads_end[axis] < 0) return refuse("negative padding");
  if (std::string reason = onednn::why_unavailable(isa_of(request.device)); !reason.empty())
    return refuse(std::move(reason));
  if (int8 && !onednn::has_vnni()) return refuse("8-bit operands need AVX-512 VNNI");
  if (way == Way::kWinograd && (x != DataType::kF32 || count(tail(layer.w.dims, 2)) == 1))
    return refuse("only f32, and windows of several pixels");
  if (way == Way::kWinograd && op.exact_sums)
    return refuse("results are rounded to whole numbers or compared");
  if (x == DataType::kBF16 && !onednn::has_bf16()) return refuse("bf16 needs AVX512_BF16");
  if (std::string reason = why_too_slow(layer, way); !reason.empty())
    return refuse(std::move(reason));
  // Up to 11 times slower than ours.
  if (!onednn::has_avx512() && count(tail(layer.w.dims, 2)) > kMostTapsWithAvx2)
    return refuse("windows of more than 1024 taps with AVX2");
  if (has(2)) layer.x_zero = load_zero_point(kernel_view(*inputs[2].constant));
  auto epilogues = Epilogues::make(request, int8 ? DataType::kI32 : DataType::kF32,
                                   std::max<size_t>(op.split.size(), 1));
  if (!epilogues) return refuse(epilogues.reason());
  layer.is_copy = epilogues->is_copy();
  layer.winograd = way == Way::kWinograd;
  if (way == Way::kPostOps) {
    const auto axes = TapeSpace::Axes::of_pixels(layer.y.dims.rank());
    const auto post_ops = onednn::post_ops_of(request, *epilogues, axes);
    if (!post_ops) return refuse(post_ops.reason());
    layer.post_ops = *post_ops;
  }
  if (!request.ignore_speed_heuristics && !int8 && runs_in_own_registers(layer, *epilogues))
    return refuse("our own convolutions finish this epilogue in registers");
  auto kernel = std::make_unique<OneDnnConv>(std::move(*epilogues));
  if (std::string reason = kernel->build(layer); !reason.empty()) return refuse(std::move(reason));
  return kernel;
}

template <Way way>
KernelResult make_one(const Conv& op, const Request& request) {
  return make_onednn_conv(op, request, way);
}

constexpr bool kInexact = false;

constexpr KernelEntry kConvEntries[] = {
    entry<Conv, make_one<Way::kSums>>("cpu.conv.onednn", Layout::kChannelsLast),
    entry<Conv, make_one<Way::kPostOps>>("cpu.conv.onednn_post_ops", Layout::kChannelsLast),
    entry<Conv, make_one<Way::kWinograd>>("cpu.conv.onednn_winograd", Layout::kChannelsLast,
                                          kInexact),
};

}  // namespace

std::span<const KernelEntry> onednn_conv_entries() { return kConvEntries; }

}  // namespace anneal::cpu
