#include "anneal/kernels/cpu/onednn/pieces.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>

#include "anneal/core/channels_last.h"
#include "anneal/core/dtype_kinds.h"
#include "anneal/core/fail.h"
#include "anneal/core/integer.h"
#include "anneal/kernels/cpu/base/workspace.h"

namespace anneal::cpu::onednn {
namespace {

// About 30 microseconds of work on one core, a hundred times what starting a primitive takes.
constexpr int64_t kPieceOperations = 4'000'000, kPieceOperationsInt8 = 16'000'000;
// A team is worth pieces of a quarter of that, until it is busy.
constexpr int64_t kTeamShare = 4;
constexpr int64_t kMostPieces = 64;
constexpr int64_t kLeastProductRows = 64;
// For fewer or shorter sums, oneDNN is faster by up to a quarter.
constexpr int64_t kNarrow = 24;
// Enough to keep a usual team busy where more pieces would mean reading weights from afar again.
constexpr int64_t kFewPieces = 8;
constexpr int64_t kNearBytes = 512 << 10;  // of weights, that stay in the second-level cache
constexpr int64_t kPieceElements = int64_t{64} << 10;  // of output, that stay there, too
// Pieces of this size are made for threads, so that small teams share them equally.
constexpr int64_t kLeastPieceElements = int64_t{8} << 10;
constexpr int64_t kTeam = 4;

}  // namespace

std::string why_own_product(const Product& product) {
  if (product.ignore_speed_heuristics) return {};
  if (product.depth >= kNarrow && product.columns >= kNarrow)
    return "our own products are no slower";
  if (product.int8) return {};
  if (!has_avx512()) return "our own products are no slower with AVX2";
  if (product.rows < kLeastProductRows) return "our own products of few rows are faster";
  return {};
}

PieceCut cut(const Product& p) {
  const int64_t each = p.int8 ? kPieceOperationsInt8 : kPieceOperations;
  const int64_t small = (p.operations * kTeamShare + each / 2) / each;
  // Small teams share one, two and multiples of four equally.
  const int64_t few = std::min(small < 3 ? small : ceil_div(small, kTeam) * kTeam, kFewPieces);
  const int64_t wanted = std::clamp<int64_t>(p.operations / each, few, kMostPieces);
  int64_t column_pieces = 1, columns = p.columns;
  if (p.column_grain > 0 && p.columns > p.column_grain) {
    column_pieces =
        std::clamp<int64_t>(ceil_div(p.weight_bytes, kNearBytes), 1, p.columns / p.column_grain);
    columns = ceil_div(ceil_div(p.columns, column_pieces), p.column_grain) * p.column_grain;
    columns = std::min(columns, p.columns);
    column_pieces = ceil_div(p.columns, columns);
  }
  const bool near = p.weight_bytes / column_pieces <= kNearBytes;
  const int64_t by_work = ceil_div(near ? wanted : std::min(wanted, kFewPieces), column_pieces);
  const int64_t by_size = ceil_div(p.elements / column_pieces, kPieceElements);
  int64_t row_pieces = std::max(by_work, by_size);
  if (p.elements / column_pieces >= ceil_div(row_pieces, kTeam) * kTeam * kLeastPieceElements)
    row_pieces = ceil_div(row_pieces, kTeam) * kTeam;
  const int64_t most = std::max<int64_t>(p.rows / p.least_rows, 1);
  return {std::clamp<int64_t>(row_pieces, 1, most), columns};
}

std::optional<int64_t> row_step(const TensorView& view, int first, int columns) {
  const int64_t width = view.dims[columns];
  if (width != 1 && view.strides[columns] != 1) return std::nullopt;
  std::optional<int64_t> step;
  int64_t next = 0;
  for (int axis = view.dims.rank() - 1; axis >= first; --axis) {
    if (axis == columns || view.dims[axis] == 1) continue;
    const int64_t stride = view.strides[axis];
    if (stride == kUnknownStride || (step && stride != next)) return std::nullopt;
    if (!step) step = stride;
    if (__builtin_mul_overflow(stride, view.dims[axis], &next)) return std::nullopt;
  }
  if (!step) return width;
  return *step >= width ? step : std::nullopt;
}

std::optional<TensorView> known_view(const anneal::Operand& operand) {
  TensorView view;
  view.dtype = operand.type.dtype;
  const Shape& shape = operand.type.shape;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    if (axis > 0 && !shape[axis].known()) return std::nullopt;
    view.dims.push_back(shape[axis].known() ? shape[axis].value() : 1);
    const Size stride = operand.strides[axis];
    view.strides.push_back(stride.known() ? stride.value() : kUnknownStride);
  }
  return view;
}

bool is_zero(const Tensor& tensor) {
  return std::ranges::all_of(tensor.bytes(), [](std::byte b) { return b == std::byte{0}; });
}

Result<PostOps> post_ops_of(const Request& request, const Epilogues& epilogues,
                            const TapeSpace::Axes& axes) {
  const auto views_of = [](std::span<const anneal::Operand> operands) {
    std::optional<std::vector<TensorView>> views(std::in_place);
    for (const anneal::Operand& operand : operands) {
      auto view = operand.present ? known_view(operand) : TensorView{};
      const auto is_unknown = [](int64_t stride) { return stride == kUnknownStride; };
      if (!view || std::any_of(view->strides.begin(), view->strides.end(), is_unknown))
        return std::optional<std::vector<TensorView>>();
      // If the number of images is unknown, two images show their distance.
      const Shape& shape = operand.type.shape;
      if (shape.rank() > 0 && !shape[0].known()) view->dims[0] = 2;
      views->push_back(*view);
    }
    return views;
  };
  const auto inputs = views_of(request.inputs), outputs = views_of(request.outputs);
  if (!inputs || !outputs) return refuse("sizes or strides that are not known before it runs");
  if (epilogues.is_copy()) return refuse("no epilogue");
  const RegisterEpilogueForm* const form =
      epilogues.dense_form(epilogues.spaces(*inputs, *outputs, axes));
  if (form == nullptr) return refuse("an epilogue that is no list of post-ops");
  // Others may lie where the output does, which oneDNN does not know.
  const auto is_constant = [&](int port) {
    return port < 0 ||
           request.inputs[static_cast<size_t>(request.op_input_count + port - 1)].constant;
  };
  if (!is_constant(form->scale) || !is_constant(form->offset))
    return refuse("numbers of columns that are no constants");
  PostOps post_ops{.offset = form->offset >= 0, .addend = form->addend >= 0, .requantize = {}};
  if (is_8bit(form->storage)) {
    post_ops.requantize = {.scale = form->scale >= 0,
                           .factor = form->factor,
                           .low = form->low,
                           .high = form->high,
                           .zero = form->zero};
    return post_ops;
  }
  if (std::isfinite(form->low) || std::isfinite(form->high))
    return refuse("limits, with which oneDNN turns NaN into a number");
  if (form->scale >= 0) return refuse("scales of columns");
  return post_ops;
}

void Pieces::add(const Request& request, Piece piece, const Weights& weights, bool& packs) {
  largest_ = std::max(largest_, piece.rows * piece.columns);
  const Primitive& primitive = *primitives_[piece.primitive];
  if (!weights) return pieces_.push_back(piece);
  const auto found = std::find_if(packed_.begin(), packed_.end(), [&](const PackedOperand& each) {
    return each.column == piece.column && primitives_[each.primitive]->packs_like(primitive);
  });
  piece.packed = static_cast<size_t>(found - packed_.begin());
  if (found == packed_.end()) {
    const std::string form = fmt::format("{}, columns {} to {}", primitive.packed_form(),
                                         piece.column, piece.column + piece.columns);
    packed_.push_back({piece.column, piece.primitive,
                       packed_constant(request, form, primitive.packed_bytes(), [&](std::byte* to) {
                         packs = primitive.pack(weights(), to);
                       })});
  }
  pieces_.push_back(piece);
}

void Pieces::finish(PreparedPieces& p, size_t staged_bytes, const Epilogues& epilogues,
                    int threads) const {
  size_t scratch = 0;
  for (const auto& primitive : primitives_) scratch = std::max(scratch, primitive->scratch_bytes());
  p.parts_at = cache_aligned(staged_bytes);
  p.scratch_at = is_direct_ ? 0 : cache_aligned(static_cast<size_t>(largest_) * 4);
  p.tape_at = p.scratch_at + cache_aligned(scratch);
  p.part_bytes = cache_aligned(p.tape_at + epilogues.scratch_bytes());
  const int64_t items = p.images * static_cast<int64_t>(pieces_.size());
  const auto lanes = static_cast<size_t>(std::min<int64_t>(threads, items));
  p.workspace_bytes = p.parts_at + p.part_bytes * lanes;
  p.calls.resize(lanes);
  for (auto& lane : p.calls)
    for (const auto& primitive : primitives_) lane.emplace_back(*primitive);
}

std::unique_ptr<PreparedPieces> Pieces::prepare_images(std::span<const TensorView> inputs,
                                                       std::span<const TensorView> outputs,
                                                       bool is_staged, const Epilogues& epilogues,
                                                       int threads) const {
  const TensorView &x = inputs[0], &y = outputs[0];
  auto made = std::make_unique<PreparedPieces>();
  made->spaces = epilogues.pixel_spaces(inputs, outputs);
  made->images = y.dims[0];
  made->x_image = x.strides[0];
  made->y_image = y.strides[0];
  size_t staged_bytes = 0;
  if (is_staged) {
    const Dims dense = channels_last_strides(x.dims);
    made->staging = CopyPlan(size_of(x.dtype), x.dims, x.strides, dense);
    made->x_image = dense[0];
    staged_bytes = static_cast<size_t>(count(x.dims)) * size_of(x.dtype);
  }
  finish(*made, staged_bytes, epilogues, threads);
  return made;
}

void Pieces::run(const PreparedPieces& p, const Epilogues& epilogues,
                 const LaunchArgs& args) const {
  const std::byte* x = args.inputs[0].data;
  if (p.staging) {
    p.staging->run(x, args.workspace, args.team);
    x = args.workspace;
  }
  const auto x_size = static_cast<int64_t>(size_of(args.inputs[0].dtype));
  const auto y_size = static_cast<int64_t>(size_of(args.outputs[0].dtype));
  const auto pieces = static_cast<int64_t>(pieces_.size());
  args.team.for_ranges(p.images * pieces, 1, [&](int64_t begin, int64_t end) {
    std::byte* const part = part_of(args.team, args.workspace + p.parts_at, p.part_bytes);
    const std::vector<Call>& calls = p.calls[static_cast<size_t>(args.team.thread())];
    for (int64_t item = begin; item < end; ++item) {
      const Piece& piece = pieces_[static_cast<size_t>(item % pieces)];
      const int64_t image = item / pieces;
      Call::Memory memory{.x = x + image * p.x_image * x_size + piece.x_offset,
                          .scratch = part + p.scratch_at};
      memory.y = is_direct_ ? args.outputs[0].data +
                                  (image * p.y_image + piece.row * piece.columns) * y_size
                            : part;
      if (!packed_.empty()) memory.packed = packed_[piece.packed].weights.bytes().data();
      if (has_post_ops_) {
        const auto finish = epilogues.finish([](DataType) { return true; }, p.spaces, args,
                                             image * rows + piece.row, piece.column, piece.columns);
        check(finish.has_value(), "views are those that post_ops_of() was shown");
        memory.column_scales = finish->scale;
        memory.column_offsets = finish->offset;
        // oneDNN adds sums to the contents of y.
        if (finish->addend != nullptr && finish->addend != memory.y)
          std::memcpy(memory.y, finish->addend,
                      static_cast<size_t>(piece.rows * piece.columns * y_size));
      }
      calls[piece.primitive].run(memory);
      if (!is_direct_)
        epilogues.run(p.spaces, args, {memory.y, piece.columns},
                      {image * rows + piece.row, piece.rows, piece.column, piece.columns},
                      part + p.tape_at);
    }
  });
}

}  // namespace anneal::cpu::onednn
