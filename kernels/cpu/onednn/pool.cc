// Maxima of 8-bit elements by oneDNN: "cpu.pool.onednn". It takes no others: its f32 maxima lose
// NaN and -infinity, and our own averages and maxima of large windows are faster.
#include "anneal/core/channels_last.h"
#include "anneal/core/dtype_kinds.h"
#include "anneal/kernels/cpu/base/device.h"
#include "anneal/kernels/cpu/base/entries.h"
#include "anneal/kernels/cpu/conv/im2col_product.h"
#include "anneal/kernels/cpu/onednn/pieces.h"

namespace anneal::cpu {
namespace {

constexpr int64_t kMostTaps = 25;

class OneDnnPool final : public Kernel {
 public:
  explicit OneDnnPool(Epilogues epilogues) : epilogues_(std::move(epilogues)) {}

  // x, y: of one image. Empty, or why oneDNN should not do it.
  std::string build(const Request& request, const Pool& op, const TensorView& x,
                    const TensorView& y) {
    is_staged_ = onednn::row_step(x, 2, 1) != x.dims[1];
    pieces_.rows = count(y.dims) / y.dims[1];
    const int64_t row_pixels = pieces_.rows / y.dims[2];
    const int64_t pad = std::max(op.pads_begin[0], op.pads_end[0]);
    onednn::Product product;
    product.rows = y.dims[2];
    product.columns = y.dims[1];
    product.column_grain = 0;
    product.least_rows = (pad + op.strides[0] - 1) / op.strides[0] + 1;
    product.elements = count(y.dims);
    const onednn::PieceCut cut = onednn::cut(product);
    pieces_.write_directly(epilogues_.is_copy(), onednn::row_step(y, 2, 1), cut);

    onednn::PoolShape shape;
    shape.kernel = Dims(std::span<const int64_t>(op.kernel));
    shape.strides = Dims(std::span<const int64_t>(op.strides));
    shape.dilations = Dims(std::span<const int64_t>(op.dilations));
    const auto reach = [&](int axis) { return (op.kernel[axis] - 1) * op.dilations[axis] + 1; };
    for (int axis = 0; axis < static_cast<int>(op.strides.size()); ++axis) {
      const onednn::WindowRows window(0, y.dims[axis + 2] - 1, op.strides[axis],
                                      op.pads_begin[axis], reach(axis), x.dims[axis + 2]);
      shape.pads_begin.push_back(window.pad_begin);
      shape.pads_end.push_back(window.pad_end);
    }
    std::vector<onednn::PoolShape> seen;
    for (int64_t i = 0; i < cut.row_pieces; ++i) {
      const int64_t first = onednn::piece_begin(product.rows, cut.row_pieces, i);
      const int64_t end = onednn::piece_begin(product.rows, cut.row_pieces, i + 1);
      const onednn::WindowRows window(first, end - 1, op.strides[0], op.pads_begin[0], reach(0),
                                      x.dims[2]);
      if (window.rows <= 0) return "windows that are padding alone";
      shape.pads_begin[0] = window.pad_begin;
      shape.pads_end[0] = window.pad_end;
      shape.x = {x.dtype, x.dims, {}};
      shape.x.dims[2] = window.rows;
      shape.x.strides = channels_last_strides(shape.x.dims);
      shape.y = {x.dtype, y.dims, {}};
      shape.y.dims[2] = end - first;
      shape.y.strides = channels_last_strides(shape.y.dims);
      const onednn::Piece piece{.row = first * row_pixels,
                                .rows = (end - first) * row_pixels,
                                .column = 0,
                                .columns = y.dims[1],
                                .x_offset = window.begin * (count(x.dims) / x.dims[2])};
      if (std::string reason = pieces_.add(request, seen, shape, piece, {}); !reason.empty())
        return reason;
    }
    return {};
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
  Epilogues epilogues_;
  onednn::Pieces pieces_;
  bool is_staged_ = false;
};

KernelResult make_onednn_pool(const Pool& op, const Request& request) {
  const DataType dtype = request.inputs[0].type.dtype;
  if (op.kind != PoolKind::kMax || op.with_indices || !is_8bit(dtype))
    return refuse("only maxima of 8-bit elements");
  int64_t taps = 1;
  for (size_t axis = 0; axis < op.kernel.size(); ++axis) {
    if (op.pads_begin[axis] < 0 || op.pads_end[axis] < 0) return refuse("negative padding");
    if (op.kernel[axis] > kMostTaps || (taps *= op.kernel[axis]) > kMostTaps)
      return refuse("our own maxima of large windows are faster");
  }
  auto x = onednn::known_view(request.inputs[0]);
  auto y = onednn::known_view(request.outputs[0]);
  if (!x || !y) return refuse("sizes that are not known before it runs");
  if (x->dims.rank() < 3 || x->dims.rank() > 5) return refuse("only one to three spatial axes");
  x->dims[0] = y->dims[0] = 1;
  if (count(x->dims) * count(y->dims) == 0) return refuse("nothing to compute");
  if (std::string reason = onednn::why_unavailable(isa_of(request.device)); !reason.empty())
    return refuse(std::move(reason));
  auto epilogue = Epilogue::make(request, dtype);
  if (!epilogue) return refuse(epilogue.reason());
  auto kernel = std::make_unique<OneDnnPool>(std::move(*epilogue));
  if (std::string reason = kernel->build(request, op, *x, *y); !reason.empty())
    return refuse(std::move(reason));
  return kernel;
}

constexpr KernelEntry kPoolEntries[] = {
    entry<Pool, make_onednn_pool>("cpu.pool.onednn", Layout::kChannelsLast),
};

}  // namespace

std::span<const KernelEntry> onednn_pool_entries() { return kPoolEntries; }

}  // namespace anneal::cpu
