// MatMul with one constant matrix by oneDNN.
//   cpu.matmul.onednn            gives sums, to which the epilogue is applied
//   cpu.matmul.onednn_post_ops   does the epilogue, too, in place where it adds a residual; chosen
//   by measured times only, because our own products finish in registers
#include <algorithm>

#include "anneal/core/dtype_kinds.h"
#include "anneal/core/new_tensor.h"
#include "anneal/kernels/cpu/base/device.h"
#include "anneal/kernels/cpu/base/entries.h"
#include "anneal/kernels/cpu/conv/im2col_product.h"
#include "anneal/kernels/cpu/onednn/pieces.h"

namespace anneal::cpu {
namespace {

using onednn::MatMulShape;
using onednn::Piece;

class OneDnnMatMul final : public Kernel {
 public:
  explicit OneDnnMatMul(Epilogues epilogues) : epilogues_(std::move(epilogues)) {}

  // a: as it is multiplied; b: one matrix. Empty, or why oneDNN should not do it.
  std::string build(const Request& request, const TensorView& a, const TensorView& b,
                    const TensorView& y, int32_t a_zero,
                    const std::optional<onednn::PostOps>& post_ops) {
    const int last = a.dims.rank() - 1;
    const int64_t k = a.dims[last], n = y.dims[y.dims.rank() - 1];
    onednn::Product product;
    product.rows = pieces_.rows = count(y.dims) / n;
    product.columns = n;
    product.depth = k;
    product.least_rows = kLeastRows;
    product.int8 = is_8bit(a.dtype);
    product.elements = product.rows * n;
    product.operations = 2 * product.elements * k;
    product.weight_bytes = n * k * static_cast<int64_t>(size_of(b.dtype));
    product.ignore_speed_heuristics = request.ignore_speed_heuristics;
    if (post_ops) {
      product.column_grain = 0;
      pieces_.run_epilogue_by_post_ops();
    }
    if (std::string reason = onednn::why_own_product(product); !reason.empty()) return reason;
    const onednn::PieceCut cut = onednn::cut(product);

    const std::optional<int64_t> step = onednn::row_step(a, 0, last);
    is_staged_ =
        !step || (product.int8 && *step != k);  // 8-bit products of rows with gaps are slow
    const int64_t row = is_staged_ ? k : *step;
    pieces_.write_directly(epilogues_.is_copy(), onednn::row_step(y, 0, y.dims.rank() - 1), cut);
    const Dims b_strides{b.strides[b.dims.rank() - 2], b.strides[b.dims.rank() - 1]};
    const auto b_size = size_of(b.dtype);
    std::vector<MatMulShape> seen;
    for (int64_t column = 0; column < n; column += cut.piece_columns) {
      const int64_t columns = std::min(cut.piece_columns, n - column);
      // oneDNN packs no columns out of the middle of longer rows.
      const Dims weights_strides = row_major_strides({k, columns});
      std::optional<NewTensor> copy;
      const auto weights = [&]() -> const std::byte* {
        copy = allocate_tensor(b.dtype, {k, columns});
        CopyPlan(b_size, {k, columns}, b_strides, weights_strides)
            .run(b.data + column * b_strides[1] * static_cast<int64_t>(b_size), copy->data.data());
        return copy->data.data();
      };
      for (int64_t i = 0; i < cut.row_pieces; ++i) {
        Piece piece{.column = column, .columns = columns};
        piece.row = onednn::piece_begin(product.rows, cut.row_pieces, i);
        piece.rows = onednn::piece_begin(product.rows, cut.row_pieces, i + 1) - piece.row;
        piece.x_offset = piece.row * row * static_cast<int64_t>(size_of(a.dtype));
        MatMulShape shape;
        shape.x = {a.dtype, {piece.rows, k}, {row, 1}};
        shape.w = {b.dtype, {k, columns}, weights_strides};
        const DataType sums = product.int8 ? DataType::kI32 : DataType::kF32;
        shape.y = {post_ops ? y.dtype : sums, {piece.rows, columns}, {columns, 1}};
        shape.x_zero = a_zero;
        shape.post_ops = post_ops.value_or(onednn::PostOps{});
        if (std::string reason = pieces_.add(request, seen, shape, piece, weights); !reason.empty())
          return reason;
      }
    }
    return {};
  }

  static TensorView transposed(TensorView view) {
    const int rank = view.dims.rank();
    std::swap(view.dims[rank - 2], view.dims[rank - 1]);
    std::swap(view.strides[rank - 2], view.strides[rank - 1]);
    return view;
  }

  // A row for each vector along the last axis.
  static TapeSpace::Axes axes_of(int rank) {
    TapeSpace::Axes axes{{}, rank - 1};
    for (int axis = 0; axis < rank - 1; ++axis) axes.rows.push_back(axis);
    return axes;
  }

  std::unique_ptr<PreparedKernel> prepare(std::span<const TensorView> inputs,
                                          std::span<const TensorView> outputs,
                                          int threads) const override {
    const TensorView a = transpose_a ? transposed(inputs[0]) : inputs[0];
    auto made = std::make_unique<onednn::PreparedPieces>();
    made->spaces = epilogues_.spaces(inputs, outputs, axes_of(outputs[0].dims.rank()));
    made->images = 1;
    size_t staged_bytes = 0;
    if (is_staged_) {
      made->staging = CopyPlan(size_of(a.dtype), a.dims, a.strides, row_major_strides(a.dims));
      staged_bytes = static_cast<size_t>(count(a.dims)) * size_of(a.dtype);
    }
    pieces_.finish(*made, staged_bytes, epilogues_, threads);
    return made;
  }

  void launch(const LaunchArgs& args) const override {
    pieces_.run(static_cast<const onednn::PreparedPieces&>(*args.prepared), epilogues_, args);
  }

  bool transpose_a = false;

 private:
  static constexpr int64_t kLeastRows = 48;  // less would read the weights too often

  Epilogues epilogues_;
  onednn::Pieces pieces_;
  bool is_staged_ = false;
};

template <bool by_post_ops>
KernelResult make_onednn_matmul(const MatMul& op, const Request& request) {
  const auto inputs = request.inputs;
  const DataType a = inputs[0].type.dtype, b = inputs[1].type.dtype;
  const bool int8 = is_8bit(a) && b == DataType::kI8;
  const bool floats = a == b && (a == DataType::kF32 || a == DataType::kBF16);
  if (!int8 && !floats) return refuse("only f32, bf16, and 8-bit activations with signed weights");
  if (inputs[1].constant == nullptr) return refuse("a right side that is no constant");
  const auto has = [&](int i) { return request.op_input_count > i && inputs[i].present; };
  if (has(2) && (inputs[2].constant == nullptr || inputs[2].constant->count() != 1))
    return refuse("a zero point that is not one constant");
  if (has(3) && (inputs[3].constant == nullptr || !onednn::is_zero(*inputs[3].constant)))
    return refuse("weights with a zero point");
  auto a_view = onednn::known_view(inputs[0]);
  auto y_view = onednn::known_view(request.outputs[0]);
  if (!a_view || !y_view || !inputs[0].type.shape[0].known())
    return refuse("sizes that are not known before it runs");
  TensorView b_view = kernel_view(*inputs[1].constant);
  if (op.transpose_a) a_view = OneDnnMatMul::transposed(*a_view);
  if (op.transpose_b) b_view = OneDnnMatMul::transposed(b_view);
  const int rank = b_view.dims.rank();
  if (count(b_view.dims) != b_view.dims[rank - 2] * b_view.dims[rank - 1])
    return refuse("a batch of right sides");
  y_view->dims[y_view->dims.rank() - 1] = b_view.dims[rank - 1];  // all outputs side by side
  if (count(a_view->dims) * count(b_view.dims) == 0) return refuse("nothing to compute");
  if (std::string reason = onednn::why_unavailable(isa_of(request.device)); !reason.empty())
    return refuse(std::move(reason));
  if (int8 && !onednn::has_vnni()) return refuse("8-bit operands need AVX-512 VNNI");
  if (a == DataType::kBF16 && !onednn::has_bf16()) return refuse("bf16 needs AVX512_BF16");
  auto epilogues = Epilogues::make(request, int8 ? DataType::kI32 : DataType::kF32,
                                   std::max<size_t>(op.split.size(), 1));
  if (!epilogues) return refuse(epilogues.reason());
  std::optional<onednn::PostOps> post_ops;
  if (by_post_ops) {
    if (!request.ignore_speed_heuristics) return refuse("chosen by measured times only");
    const auto axes = OneDnnMatMul::axes_of(y_view->dims.rank());
    const auto made = onednn::post_ops_of(request, *epilogues, axes);
    if (!made) return refuse(made.reason());
    post_ops = *made;
  }
  auto kernel = std::make_unique<OneDnnMatMul>(std::move(*epilogues));
  kernel->transpose_a = op.transpose_a;
  std::string reason =
      kernel->build(request, *a_view, b_view, *y_view,
                    has(2) ? load_zero_point(kernel_view(*inputs[2].constant)) : 0, post_ops);
  if (!reason.empty()) return refuse(std::move(reason));
  return kernel;
}

constexpr KernelEntry kMatmulEntries[] = {
    entry<MatMul, make_onednn_matmul<false>>("cpu.matmul.onednn", Layout::kRowMajor),
    entry<MatMul, make_onednn_matmul<true>>("cpu.matmul.onednn_post_ops", Layout::kRowMajor),
};

}  // namespace

std::span<const KernelEntry> onednn_matmul_entries() { return kMatmulEntries; }

}  // namespace anneal::cpu
