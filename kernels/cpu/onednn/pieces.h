// A layer's output as a matrix, cut into pieces that one thread each computes by a primitive of
// oneDNN. Conv, matmul and pool on oneDNN share it.
#pragma once
#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "anneal/kernels/cpu/base/copy_plan.h"
#include "anneal/kernels/cpu/onednn/onednn.h"
#include "anneal/kernels/cpu/program/epilogue.h"
#include "anneal/kernels/kernel.h"

namespace anneal::cpu::onednn {

// A product that is cut into pieces. Columns are output channels, rows are pixels or rows of
// pixels.
struct Product {
  int64_t rows = 1, columns = 1;
  int64_t depth = 1;          // products in a sum
  int64_t least_rows = 1;     // of a piece
  int64_t column_grain = 64;  // columns of a piece are a multiple; 0: never cut columns
  int64_t elements = 0;       // of the output
  int64_t operations = 0;     // multiplications and additions
  int64_t weight_bytes = 0;
  bool int8 = false;
  bool ignore_speed_heuristics = false;  // as in Request
};
// Why our own kernel is to multiply, if it is.
std::string why_own_product(const Product& product);

struct PieceCut {
  int64_t row_pieces = 1;
  int64_t piece_columns = 1;
};
// Depends on nothing but the product: so results do not depend on the number of threads.
PieceCut cut(const Product& product);
// Where piece `i` of `pieces` equal ones begins.
inline int64_t piece_begin(int64_t rows, int64_t pieces, int64_t i) { return rows * i / pieces; }

// The distance of rows of a view, if all axes but `columns` from axis `first` on are contiguous
// rows of evenly spaced columns. An axis of unknown stride (kUnknownStride) is not contiguous.
inline constexpr int64_t kUnknownStride = INT64_MIN;
std::optional<int64_t> row_step(const TensorView& view, int first, int columns);

// A view of an operand whose sizes are known but for axis 0, which counts 1 if it is not; nullopt
// if others are unknown. Strides may be kUnknownStride.
std::optional<TensorView> known_view(const anneal::Operand& operand);
bool is_zero(const Tensor& tensor);  // to the bit

// The rows of input that output rows [first, last] of a convolution or pool meet, and the padding
// beyond. reach: rows from a window's first tap to its last, both included.
struct WindowRows {
  WindowRows(int64_t first, int64_t last, int64_t stride, int64_t pad, int64_t reach,
             int64_t x_rows) {
    const int64_t from = first * stride - pad, to = last * stride - pad + reach;
    begin = std::max<int64_t>(from, 0);
    rows = std::min(to, x_rows) - begin;
    pad_begin = begin - from;
    pad_end = std::max<int64_t>(to - x_rows, 0);
  }
  int64_t begin, rows, pad_begin, pad_end;  // rows <= 0: padding alone
};

// A layer's epilogue as oneDNN's post-ops with the same results. Refuses if some part of it cannot
// be one. axes: of the outputs.
Result<PostOps> post_ops_of(const Request& request, const Epilogues& epilogues,
                            const TapeSpace::Axes& axes);

struct Piece {
  int64_t row = 0, rows = 0, column = 0, columns = 0;  // of one image's output
  int64_t x_offset = 0;                                // bytes from the image
  size_t primitive = 0;
  size_t packed = 0;  // which weights, if it has any
};

// How images lie, known when shapes are.
struct PreparedPieces : PreparedKernel {
  Epilogues::Spaces spaces;
  int64_t images = 0;
  int64_t x_image = 0, y_image = 0;  // elements from image to image
  std::optional<CopyPlan> staging;   // of x, to the workspace
  size_t parts_at = 0, part_bytes = 0, scratch_at = 0, tape_at = 0;
  std::vector<std::vector<Call>> calls;  // by thread, by primitive
};

class Pieces {
 public:
  using Weights = std::function<const std::byte*()>;
  // Adds a piece: its primitive is made or found, its weights are packed. weights: of the piece's
  // first column, asked for if they are not packed already; empty for pools. Empty, or why
  // oneDNN has nothing good for it.
  template <class Shape>
  std::string add(const Request& request, std::vector<Shape>& seen, const Shape& shape, Piece piece,
                  const Weights& weights);

  int64_t rows = 0;  // of one image's output

  // Lets primitives write to the output directly if a piece is whole rows of it, there is no
  // epilogue, and the rows are contiguous: oneDNN's fast products write no other memory.
  void write_directly(bool is_copy, std::optional<int64_t> y_step, const PieceCut& cut) {
    is_direct_ = has_post_ops_ || (is_copy && y_step == cut.piece_columns);
  }

  // Lets primitives with post-ops do all of the epilogue. REQUIRES: post_ops_of() has made them,
  // and pieces are whole rows. To be called before write_directly().
  void run_epilogue_by_post_ops() { has_post_ops_ = true; }

  // staged_bytes: of x, if it is staged. spaces, images and the distances are set already.
  void finish(PreparedPieces& prepared, size_t staged_bytes, const Epilogues& epilogues,
              int threads) const;
  // For images [N, C, spatial axes], which are copied with adjacent channels first if is_staged.
  std::unique_ptr<PreparedPieces> prepare_images(std::span<const TensorView> inputs,
                                                 std::span<const TensorView> outputs,
                                                 bool is_staged, const Epilogues& epilogues,
                                                 int threads) const;
  void run(const PreparedPieces& prepared, const Epilogues& epilogues,
           const LaunchArgs& args) const;

 private:
  void add(const Request& request, Piece piece, const Weights& weights, bool& packs);

  struct PackedOperand {
    int64_t column;
    size_t primitive;
    Tensor weights;
  };
  std::vector<std::unique_ptr<const Primitive>> primitives_;
  std::vector<PackedOperand> packed_;
  std::vector<Piece> pieces_;
  int64_t largest_ = 0;  // elements of a piece
  bool is_direct_ = false, has_post_ops_ = false;
};

template <class Shape>
std::string Pieces::add(const Request& request, std::vector<Shape>& seen, const Shape& shape,
                        Piece piece, const Weights& weights) {
  const auto found = std::find(seen.begin(), seen.end(), shape);
  piece.primitive = static_cast<size_t>(found - seen.begin());
  if (found == seen.end()) {
    PrimitiveResult made = refuse("");
    if constexpr (requires { shape.w; }) {
      const auto alike = std::find_if(seen.begin(), seen.end(),
                                      [&](const Shape& other) { return other.w == shape.w; });
      if (alike != seen.end())
        made = Primitive::make(shape, primitives_[static_cast<size_t>(alike - seen.begin())].get());
      if (!made) made = Primitive::make(shape, nullptr);
    } else {
      made = Primitive::make(shape);
    }
    if (!made) return made.reason();
    primitives_.push_back(*std::move(made));
    seen.push_back(shape);
  }
  bool packs = true;
  add(request, piece, weights, packs);
  return packs ? "" : "oneDNN cannot pack these weights";
}

}  // namespace anneal::cpu::onednn
