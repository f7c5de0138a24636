// Conv as a matrix product whose left-hand rows are read in place: "cpu.conv.implicit_gemm".
//
// The windows of neighbouring outputs are evenly spaced in memory, so a register tile walks along
// several of them tap by tap and nothing is gathered. If padding, elements of another type or
// unsuitable distances prevent that, the input of a piece of work is copied first, each element
// once, with padding around it.
//
// The sums of a few columns of a hundred pixels stay in the first-level cache until the epilogue
// has read them. Where weights of 8 bits have a zero point, sums begin with what it contributes:
// the sum of the window times the zero point.
#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "anneal/core/dtype_kinds.h"
#include "anneal/core/integer.h"
#include "anneal/core/new_tensor.h"
#include "anneal/kernels/cpu/base/device.h"
#include "anneal/kernels/cpu/base/entries.h"
#include "anneal/kernels/cpu/base/workspace.h"
#include "anneal/kernels/cpu/conv/window.h"
#include "anneal/kernels/cpu/gemm/gemm.h"
#include "anneal/kernels/cpu/program/epilogue.h"

namespace anneal::cpu {
namespace {

constexpr int64_t kBlockPixels = 112;      // of a block, whose sums are in the first-level cache
constexpr int64_t kLeastBlockPixels = 16;  // of one that is cut for the sake of threads
constexpr int64_t kBlockColumns = 64;      // of it
constexpr int64_t kMostBlockLanes = 768;   // of it along k
constexpr int64_t kNearBytes = 256 << 10;  // of copied input
constexpr int64_t kPagePeriod = 4096;      // rows so far apart push each other out of the cache

// Pieces for each thread, where there are few: enough to help one that is late.
constexpr int64_t kFewPieces = 2, kEnoughPieces = 4, kManyPieces = 16;

// One spatial axis.
struct Axis {
  int64_t in = 1, out = 1, kernel = 1, stride = 1, pad = 0, dilation = 1;
  // The inputs within reach of `outputs` neighbouring outputs, including those between taps.
  int64_t reach(int64_t outputs) const {
    return (outputs - 1) * stride + (kernel - 1) * dilation + 1;
  }
  bool is_padded() const { return pad != 0 || reach(out) > in; }
  // One tap that meets each input once.
  bool is_pointwise() const { return kernel == 1 && stride == 1 && pad == 0 && out == in; }
};

// The part that is multiplied at a time: some lanes of some taps of a plane of the window.
struct Chunk {
  int64_t plane;
  size_t tap;  // of the plane
  int64_t taps, lane, lanes;
};

// Where part `i` of `parts` nearly equal parts begins.
int64_t part_begin(int64_t all, int64_t parts, int64_t i) { return all * i / parts; }

// Into how many pieces of work the outputs are cut: rows of them, each row, and their channels.
struct Grid {
  int64_t down = 1, across = 1, columns = 1;
  int64_t pieces() const { return down * across * columns; }
};

struct PreparedImplicit final : PreparedKernel {
  Epilogues::Spaces spaces;
  ChannelsLast x;
  Axis z_axis, y_axis, x_axis;
  int64_t source_plane = 0, source_row = 0, source_pixel = 0;  // bytes from input to input
  bool is_copied = false;
  int64_t plane = 0, row = 0, pixel = 0;  // the same as taps see it, planes one dilation apart
  std::vector<int64_t> taps;              // of a plane; bytes from its first input of a window
  std::vector<Chunk> chunks;              // as many of each plane
  Grid grid;
  int64_t block_rows = 1;  // of a piece
  // In a thread's part of the workspace, behind the copied input.
  size_t parts_at = 0, part_bytes = 0, starts_at = 0, sums_at = 0, tape_at = 0;

  int64_t most_rows() const { return ceil_div(y_axis.out, grid.down); }  // of a piece
  int64_t most_width() const { return ceil_div(x_axis.out, grid.across); }
  // The bytes of a copied row, followed by bytes that the last lane may reach.
  int64_t row_bytes(int64_t width) const {
    return static_cast<int64_t>(cache_aligned(static_cast<size_t>(x_axis.reach(width) * pixel))) +
           64;
  }
  int64_t copied_bytes(int64_t rows, int64_t width) const {
    return is_copied ? z_axis.kernel * y_axis.reach(rows) * row_bytes(width) : 0;
  }
  int64_t output_planes() const { return x.images * z_axis.out; }
};

// Planes of a window.
struct Planes {
  int64_t begin, end;
  int64_t count() const { return end - begin; }
};

struct Piece {
  int64_t image, plane, row, rows, first, width, column, columns;
  Planes met;  // that are multiplied
};

class ImplicitGemmConv final : public Kernel {
 public:
  ImplicitGemmConv(const Conv& op, const Request& request, Epilogues epilogues)
      : op_(op),
        x_dtype_(request.inputs[0].type.dtype),
        kernels_(gemm_of(x_dtype_, isa_of(request.device))),
        load_(load_block(isa_of(request.device))),
        epilogues_(std::move(epilogues)) {
    const auto constant = [&](int i) {
      const bool has = request.op_input_count > i && request.inputs[i].present;
      return has ? kernel_view(*request.inputs[i].constant) : TensorView{};
    };
    x_zero_ = load_zero_point(constant(2));
    pack(request, constant(1), constant(3));
  }

  bool has_zeros_of_channels() const { return has_zeros_of_channels_; }

  std::unique_ptr<PreparedKernel> prepare(std::span<const TensorView> inputs,
                                          std::span<const TensorView> outputs,
                                          int threads) const override {
    auto made = std::make_unique<PreparedImplicit>();
    PreparedImplicit& p = *made;
    p.spaces = epilogues_.pixel_spaces(inputs, outputs);
    if (count(outputs[0].dims) == 0) return made;
    p.x = ChannelsLast(inputs[0], kernels_.kind == GemmKind::kBf16);
    place_input(p, Window(op_, kernel_, 0, outputs[0].dims));
    cut(p, threads);
    place_taps(p);
    p.starts_at = cache_aligned(static_cast<size_t>(p.copied_bytes(p.most_rows(), p.most_width())));
    const int64_t windows = w_zero_ == 0 ? 0 : p.most_rows() * p.most_width();
    p.sums_at = p.starts_at + cache_aligned(static_cast<size_t>(windows) * 4);
    p.tape_at = p.sums_at + static_cast<size_t>(p.block_rows * p.most_width() * kBlockColumns) * 4;
    p.part_bytes = cache_aligned(p.tape_at + epilogues_.scratch_bytes());
    p.parts_at = p.x.staged_bytes();
    p.workspace_bytes = p.parts_at + p.part_bytes * static_cast<size_t>(threads);
    return made;
  }

  void launch(const LaunchArgs& args) const override {
    const auto& p = static_cast<const PreparedImplicit&>(*args.prepared);
    if (count(args.outputs[0].dims) == 0) return;
    const std::byte* x = args.inputs[0].data;
    if (p.x.staged) {
      p.x.stage(args.inputs[0], args.workspace, load_, args.team);
      x = args.workspace;
    }
    args.team.for_ranges(p.output_planes() * p.grid.pieces(), 1, [&](int64_t begin, int64_t end) {
      std::byte* const part = part_of(args.team, args.workspace + p.parts_at, p.part_bytes);
      for (int64_t item = begin; item < end; ++item) run_piece(p, args, x, item, part);
    });
  }

 private:
  void pack(const Request& request, const TensorView& w, const TensorView& w_zero) {
    outputs_ = w.dims[0];
    channels_ = w.dims[1];
    PackSource source;
    source.dtype = w.dtype;
    source.data = w.data;
    source.column_stride = w.strides[0];
    for (int axis = 2; axis < w.dims.rank(); ++axis) {
      kernel_.push_back(w.dims[axis]);
      source.k_dims.push_back(w.dims[axis]);
      source.k_strides.push_back(w.strides[axis]);
    }
    source.k_dims.push_back(channels_);
    source.k_strides.push_back(w.strides[1]);
    source.zero = w_zero.data;
    if (w_zero.dims.rank() > 0 && count(w_zero.dims) > 1) source.zero_stride = w_zero.strides[0];
    // A row of the window is one tap where few channels would make many short ones.
    const int64_t across = kernel_[kernel_.rank() - 1];
    joins_row_ = op_.dilations.back() == 1 && across > 1 && channels_ * across <= kMostBlockLanes;
    // The value after an odd channel may be NaN, so each pixel of a row keeps its lanes.
    const bool keeps_lanes = kernels_.kind == GemmKind::kBf16 && channels_ % 2 != 0;
    pieces_ = joins_row_ && keeps_lanes ? across : 1;
    layout_ = PackLayout(kernels_, count(source.k_dims), outputs_,
                         joins_row_ && !keeps_lanes ? channels_ * across : channels_);
    packed_ = packed_constant(request, layout_.form(), layout_.bytes(), [&](std::byte* to) {
      for_parts(request, layout_.panels(),
                [&](int64_t panel) { pack_panel(layout_, source, panel, to, PackTo::kMemory); });
    });
    if (kernels_.kind != GemmKind::kU8S8) return;
    const Compensation zero{.a_zero = x_zero_ + moved_by(x_dtype_),
                            .b_dtype = w.dtype,
                            .b_zero = w_zero.data,
                            .b_zero_stride = source.zero_stride};
    initial_.resize(static_cast<size_t>(layout_.padded_columns()));
    std::vector<int32_t> zeros(initial_.size());
    zero.columns(layout_, packed_->bytes().data(), initial_.data(), zeros.data());
    zeros.resize(static_cast<size_t>(outputs_));
    w_zero_ = zeros[0];
    has_zeros_of_channels_ = std::ranges::count(zeros, w_zero_) != outputs_;
  }

  // Where taps read the input: in place, or from copies.
  void place_input(PreparedImplicit& p, const Window& window) const {
    const auto axis = [&](size_t i) {
      return Axis{p.x.size[i],      window.out[i], window.kernel[i],
                  window.stride[i], window.pad[i], window.dilation[i]};
    };
    p.z_axis = axis(0), p.y_axis = axis(1), p.x_axis = axis(2);
    const auto size = static_cast<int64_t>(size_of(p.x.element));
    p.source_plane = p.x.strides[0] * size;
    p.plane = p.z_axis.dilation * p.source_plane;
    p.row = p.source_row = p.x.strides[1] * size;
    p.pixel = p.source_pixel = p.x.strides[2] * size;
    // Columns of one pixel are a row.
    if (p.x_axis.in == 1 && p.x_axis.kernel == 1 && !p.x_axis.is_padded()) {
      std::swap(p.y_axis, p.x_axis);
      p.pixel = p.source_pixel = p.row;
    }
    if (p.y_axis.is_pointwise() && p.x_axis.is_pointwise() &&
        (p.y_axis.in == 1 || p.row == p.pixel * p.x_axis.in)) {
      // No windows: all pixels of a plane are one row.
      p.x_axis.in = p.x_axis.out = p.x_axis.in * p.y_axis.in;
      p.y_axis.in = p.y_axis.out = 1;
    }
    p.is_copied = !kernels_.reads(p.x.element) || p.y_axis.is_padded() || p.x_axis.is_padded() ||
                  copies_planes(p.z_axis) || layout_.tap % kernels_.elements_per_lane != 0 ||
                  (joins_row_ && p.pixel != channels_ * size) ||
                  p.pixel * p.x_axis.stride % kPagePeriod == 0;
    if (!p.is_copied) return;
    p.pixel = channels_ * static_cast<int64_t>(kernels_.element_size());
    if (joins_row_ && pieces_ == 1) return;
    p.pixel = align_up(p.pixel, 4);
    if (joins_row_) return;
    if (p.pixel * p.x_axis.stride % kPagePeriod == 0) p.pixel += 64;
  }

  void cut(PreparedImplicit& p, int threads) const {
    p.grid = share_equally(p, few_pieces(p), threads);
    if (p.is_copied) {
      p.row = p.row_bytes(p.most_width());
      p.plane = p.y_axis.reach(p.most_rows()) * p.row;
    }
    p.block_rows = std::min(rows_of_block(p, p.grid.across), p.most_rows());
  }

  static int64_t rows_of_block(const PreparedImplicit& p, int64_t across) {
    return across > 1 ? 1 : std::max<int64_t>(kBlockPixels / p.x_axis.out, 1);
  }

  // As few as the caches allow.
  static Grid few_pieces(const PreparedImplicit& p) {
    Grid grid{.across = ceil_div(p.x_axis.out, kBlockPixels)};
    const int64_t width = ceil_div(p.x_axis.out, grid.across);
    const int64_t block = rows_of_block(p, grid.across);
    int64_t rows = block;
    while (rows < p.y_axis.out && p.copied_bytes(rows + block, width) < kNearBytes) rows += block;
    grid.down = ceil_div(p.y_axis.out, rows);
    return grid;
  }

  // More than `least`, if that gives threads equal work.
  Grid share_equally(const PreparedImplicit& p, const Grid& least, int threads) const {
    const int64_t planes = p.output_planes(), few = planes * least.pieces();
    if (threads == 1 || few >= kManyPieces * threads) return least;
    const int64_t enough = ceil_div(kFewPieces * threads, planes);
    const int64_t most = std::max(kEnoughPieces * threads, few * 5 / 4) / planes;
    const int64_t fair = largest_share(p, least, 1) / threads;
    Grid best = least, grid = least;
    auto best_share = std::numeric_limits<int64_t>::max();
    for (; grid.down <= p.y_axis.out && grid.down <= most; ++grid.down)
      for (grid.across = least.across; grid.down * grid.across <= most; ++grid.across) {
        if (grid.across > least.across && p.x_axis.out / grid.across < kLeastBlockPixels) break;
        const int64_t columns = std::min(layout_.panels(), most / (grid.down * grid.across));
        for (grid.columns = 1; grid.columns <= columns; ++grid.columns) {
          if (grid.pieces() < enough) {
            if (best.pieces() < grid.pieces()) best = grid;
            continue;
          }
          const int64_t share = largest_share(p, grid, threads);
          if (share < best_share) best = grid, best_share = share;
          if (share <= fair + fair / 32) return grid;
        }
      }
    return best;
  }

  // The most work of a thread.
  int64_t largest_share(const PreparedImplicit& p, const Grid& grid, int threads) const {
    const int64_t items = p.output_planes() * grid.pieces();
    int64_t largest = 0;
    for (int thread = 0; thread < threads; ++thread) {
      int64_t share = 0;
      for (int64_t i = part_begin(items, threads, thread);
           i < part_begin(items, threads, thread + 1); ++i)
        share += work(p, piece_of(p, grid, i));
      largest = std::max(largest, share);
    }
    return largest;
  }

  // In multiplications, or the time of as many. Weights are read for each row of pixels, and tiles
  // of registers have to be stored.
  int64_t work(const PreparedImplicit& p, const Piece& piece) const {
    constexpr int64_t kPerRow = 4, kPerTile = 2;
    const int64_t row =
        piece.width + kPerRow + kPerTile * ceil_div(piece.width, kernels_.tile_rows);
    return piece.rows * row * piece.columns * layout_.lanes() * piece.met.count() /
               p.z_axis.kernel +
           p.copied_bytes(piece.rows, piece.width);
  }

  // Whether planes of padding are not multiplied. Where operands have a zero point, all taps count.
  bool skips_planes() const { return kernels_.kind != GemmKind::kU8S8; }

  // Of the window of output plane `out` those inside the input.
  static Planes planes_inside(const Axis& z, int64_t out) {
    const int64_t first = out * z.stride - z.pad;
    const int64_t begin = first < 0 ? ceil_div(-first, z.dilation) : 0;
    const int64_t end = first < z.in ? ceil_div(z.in - first, z.dilation) : 0;
    return {begin, std::max(std::min(end, z.kernel), begin)};
  }

  // All planes of padding are multiplied if the window of an output has no others.
  bool copies_planes(const Axis& z) const {
    if (!z.is_padded()) return false;
    if (!skips_planes()) return true;
    for (int64_t out = 0; out < z.out; ++out)
      if (planes_inside(z, out).count() == 0) return true;
    return false;
  }

  // The piece of any image; images hold the most pieces, and columns the fewest.
  Piece piece_of(const PreparedImplicit& p, const Grid& grid, int64_t item) const {
    Piece piece;
    const auto range = [&](int64_t all, int64_t parts, int64_t unit, int64_t& begin,
                           int64_t& size) {
      const int64_t part = item % parts;
      item /= parts;
      begin = part_begin(all, parts, part) * unit;
      size = part_begin(all, parts, part + 1) * unit - begin;
    };
    range(layout_.panels(), grid.columns, layout_.tile_columns, piece.column, piece.columns);
    range(p.x_axis.out, grid.across, 1, piece.first, piece.width);
    range(p.y_axis.out, grid.down, 1, piece.row, piece.rows);
    piece.plane = item % p.z_axis.out;
    piece.image = item / p.z_axis.out;
    piece.met = {0, p.z_axis.kernel};
    const Planes inside = planes_inside(p.z_axis, piece.plane);
    if (skips_planes() && inside.count() > 0) piece.met = inside;
    return piece;
  }

  int64_t tap_lanes() const { return layout_.tap_lanes() * pieces_; }

  void place_taps(PreparedImplicit& p) const {
    for (int64_t y = 0; y < p.y_axis.kernel; ++y)
      for (int64_t x = 0; x < (joins_row_ ? 1 : p.x_axis.kernel); ++x)
        p.taps.push_back(y * p.y_axis.dilation * p.row + x * p.x_axis.dilation * p.pixel);
    const int64_t lanes = tap_lanes();
    const int64_t parts = ceil_div(lanes, kMostBlockLanes);
    const int64_t at_once = parts > 1 ? 1 : kMostBlockLanes / lanes;
    const auto count = static_cast<int64_t>(p.taps.size());
    for (int64_t plane = 0; plane < p.z_axis.kernel; ++plane)
      for (int64_t tap = 0; tap < count; tap += at_once)
        for (int64_t part = 0; part < parts; ++part) {
          const int64_t lane = lanes * part / parts;
          p.chunks.push_back({plane, static_cast<size_t>(tap), std::min(at_once, count - tap), lane,
                              lanes * (part + 1) / parts - lane});
        }
  }

  void run_piece(const PreparedImplicit& p, const LaunchArgs& args, const std::byte* x,
                 int64_t item, std::byte* memory) const {
    Piece piece = piece_of(p, p.grid, item);
    piece.columns = std::min(piece.columns, outputs_ - piece.column);
    x += piece.image * p.x.image_stride * static_cast<int64_t>(size_of(p.x.element));
    if (p.is_copied) {
      copy(p, piece, x, memory);
      x = memory;
    } else {
      x += first_plane(p, piece) * p.source_plane + piece.row * p.y_axis.stride * p.row +
           piece.first * p.x_axis.stride * p.pixel;
    }
    if (w_zero_ != 0) start_windows(p, piece, x, starts_of(p, memory));
    for (int64_t column = 0; column < piece.columns; column += kBlockColumns)
      for (int64_t row = 0; row < piece.rows; row += p.block_rows)
        run_block(p, args, piece, x, row, column, memory);
  }

  // Of the input.
  static int64_t first_plane(const PreparedImplicit& p, const Piece& piece) {
    const Axis& z = p.z_axis;
    return piece.plane * z.stride - z.pad + piece.met.begin * z.dilation;
  }

  static int32_t* starts_of(const PreparedImplicit& p, std::byte* memory) {
    return reinterpret_cast<int32_t*>(memory + p.starts_at);
  }

  // What the sums of each window of a piece begin with, for the zero point of the weights. x: the
  // first input of the piece.
  void start_windows(const PreparedImplicit& p, const Piece& piece, const std::byte* x,
                     int32_t* starts) const {
    const int64_t windows = piece.rows * piece.width;
    std::fill_n(starts, windows, 0);
    GemmBlock block{.a_stride = p.x_axis.stride * p.pixel};
    block.rows = piece.width;
    block.taps = p.taps.data();
    block.tap_count = std::ssize(p.taps);
    for (int64_t plane = 0; plane < piece.met.count(); ++plane)
      for (int64_t row = 0; row < piece.rows; ++row) {
        block.a = x + plane * p.plane + row * p.y_axis.stride * p.row;
        kernels_.row_sums(block, layout_.tap, starts + row * piece.width);
      }
    // Sums wrap, as integer arithmetic does.
    const auto factor = static_cast<uint32_t>(-w_zero_);
    for (int64_t i = 0; i < windows; ++i)
      starts[i] = static_cast<int32_t>(static_cast<uint32_t>(starts[i]) * factor);
  }

  // Rows of a piece from `row` on, columns from `column` on. x: the first input of the piece.
  void run_block(const PreparedImplicit& p, const LaunchArgs& args, const Piece& piece,
                 const std::byte* x, int64_t row, int64_t column, std::byte* memory) const {
    const int64_t rows = std::min(p.block_rows, piece.rows - row);
    GemmBlock block;
    block.rows = piece.width;
    block.columns = std::min(kBlockColumns, piece.columns - column);
    block.a_stride = p.x_axis.stride * p.pixel;
    block.panel_stride = layout_.panel_bytes();
    block.c_stride = kBlockColumns;
    block.c_is_padded = true;
    column += piece.column;
    if (!initial_.empty())
      block.initial = reinterpret_cast<const std::byte*>(initial_.data() + column);
    const std::byte* const panel =
        packed_->bytes().data() + column / layout_.tile_columns * layout_.panel_bytes();
    std::byte* const sums = memory + p.sums_at;
    const int64_t plane = piece.image * p.z_axis.out + piece.plane;
    const int64_t first = (plane * p.y_axis.out + piece.row + row) * p.x_axis.out + piece.first;
    std::optional<RegisterEpilogue> finish;
    if (block.columns % kRegisterColumns == 0)
      finish = epilogues_.finish(kernels_.finishes, p.spaces, args, first, column, block.columns);
    const std::span<const Chunk> chunks = chunks_of(p, piece.met);
    for (const Chunk& chunk : chunks) {
      block.taps = p.taps.data() + chunk.tap;
      block.tap_count = chunk.taps;
      block.lanes = chunk.lanes;
      const int64_t tap = chunk.plane * std::ssize(p.taps) + static_cast<int64_t>(chunk.tap);
      block.b = panel + (tap * tap_lanes() + chunk.lane) * layout_.tile_columns * 4;
      for (int64_t i = 0; i < rows; ++i) {
        block.a = x + (chunk.plane - piece.met.begin) * p.plane +
                  (row + i) * p.y_axis.stride * p.row + chunk.lane * 4;
        block.c = sums + i * piece.width * kBlockColumns * 4;
        if (w_zero_ != 0) block.row_starts = starts_of(p, memory) + (row + i) * piece.width;
        if (finish && &chunk == &chunks.back()) {
          block.finish = &*finish;
          kernels_.block(block);
          finish->y += piece.width * finish->y_stride;
          if (finish->addend != nullptr) finish->addend += piece.width * finish->addend_stride;
          continue;
        }
        kernels_.block(block);
      }
      block.accumulate = true;
    }
    if (finish) return;
    epilogues_.run(p.spaces, args, {sums, kBlockColumns},
                   {first, rows * piece.width, column, block.columns}, memory + p.tape_at);
  }

  static std::span<const Chunk> chunks_of(const PreparedImplicit& p, Planes planes) {
    const size_t each = p.chunks.size() / static_cast<size_t>(p.z_axis.kernel);
    return std::span(p.chunks).subspan(static_cast<size_t>(planes.begin) * each,
                                       static_cast<size_t>(planes.count()) * each);
  }

  // The input that a piece meets, as a left-hand side, padded. x: of the image.
  void copy(const PreparedImplicit& p, const Piece& piece, const std::byte* x,
            std::byte* to) const {
    const int64_t first_row = piece.row * p.y_axis.stride - p.y_axis.pad;
    const int64_t first = piece.first * p.x_axis.stride - p.x_axis.pad;
    const int64_t width = p.x_axis.reach(piece.width);
    const int64_t left = std::clamp<int64_t>(-first, 0, width);
    const int64_t right = std::clamp<int64_t>(p.x_axis.in - first, left, width);
    const int padding =
        kernels_.kind == GemmKind::kU8S8 ? x_zero_ + static_cast<int>(moved_by(x_dtype_)) : 0;
    const int64_t rows = p.y_axis.reach(piece.rows);
    for (int64_t i = 0; i < piece.met.count() * rows; ++i) {
      std::byte* const out = to + i / rows * p.plane + i % rows * p.row;
      const int64_t plane = first_plane(p, piece) + i / rows * p.z_axis.dilation;
      const int64_t row = first_row + i % rows;
      const bool is_inside = plane >= 0 && plane < p.z_axis.in && row >= 0 && row < p.y_axis.in;
      const int64_t begin = is_inside ? left : width, end = is_inside ? right : width;
      std::memset(out, padding, static_cast<size_t>(begin * p.pixel));
      if (begin < end)
        copy_pixels(
            p, x + plane * p.source_plane + row * p.source_row + (first + begin) * p.source_pixel,
            end - begin, out + begin * p.pixel);
      std::memset(out + end * p.pixel, padding, static_cast<size_t>((width - end) * p.pixel));
    }
  }

  void copy_pixels(const PreparedImplicit& p, const std::byte* from, int64_t pixels,
                   std::byte* to) const {
    const DataType element = p.x.element;
    if (p.source_pixel == channels_ * static_cast<int64_t>(size_of(element)) &&
        p.pixel == channels_ * static_cast<int64_t>(kernels_.element_size()))
      return kernels_.fetch(element, from, pixels * channels_, x_zero_, to);
    const bool is_odd = kernels_.kind == GemmKind::kBf16 && channels_ % 2 != 0;
    if (is_odd && channels_ <= 3) return copy_few(p, from, pixels, to);
    for (int64_t i = 0; i < pixels; ++i, from += p.source_pixel, to += p.pixel) {
      kernels_.fetch(element, from, channels_, x_zero_, to);
      if (is_odd) std::memset(to + channels_ * 2, 0, 2);
    }
  }

  // One or three channels of bf16, and a zero. Each pixel may write beyond itself, where the next
  // one or the end of the row is.
  void copy_few(const PreparedImplicit& p, const std::byte* from, int64_t pixels,
                std::byte* to) const {
    const auto bytes = static_cast<size_t>(channels_ * 2);
    const uint64_t mask = (uint64_t{1} << bytes * 8) - 1;
    const auto copy_one = [&](int64_t i, size_t size) {
      uint64_t pixel = 0;
      std::memcpy(&pixel, from + i * p.source_pixel, size);
      pixel &= mask;
      std::memcpy(to + i * p.pixel, &pixel, sizeof(pixel));
    };
    // Behind the last one nothing may be read.
    const int64_t whole = std::max<int64_t>(pixels - 4, 0);
    for (int64_t i = 0; i < whole; ++i) copy_one(i, sizeof(uint64_t));
    for (int64_t i = whole; i < pixels; ++i) copy_one(i, bytes);
  }

  Conv op_;
  DataType x_dtype_;
  GemmKernels kernels_;
  LoadBlock load_;
  Epilogues epilogues_;
  int32_t x_zero_ = 0;
  int64_t outputs_ = 0, channels_ = 0;
  Dims kernel_;
  bool joins_row_ = false;  // taps are rows of the window
  int64_t pieces_ = 1;      // of k that make a tap
  PackLayout layout_;
  std::optional<Tensor> packed_;
  std::vector<int32_t> initial_;  // kU8S8: what the columns' sums start at
  int32_t w_zero_ = 0;            // of the weights as packed
  bool has_zeros_of_channels_ = false;
};

KernelResult make_implicit(const Conv& op, const Request& request) {
  const auto inputs = request.inputs;
  const DataType x = inputs[0].type.dtype, w = inputs[1].type.dtype;
  const bool int8 = is_8bit(x) && is_8bit(w);
  const bool f32 = x == w && (x == DataType::kF32 || is_half(x));
  if (!int8 && !f32) return refuse("only f32, f16, bf16 and 8-bit operands");
  if (op.groups != 1) return refuse("groups");
  for (int i = 1; i < request.op_input_count; ++i)
    if (inputs[i].present && inputs[i].constant == nullptr)
      return refuse("weights or zero points that are no constants");
  const int rank = inputs[0].type.shape.rank();
  if (rank < 3 || rank > 5) return refuse("only one to three spatial axes");
  for (size_t axis = 0; axis < op.strides.size(); ++axis)
    if (op.pads_begin[axis] < 0 || op.pads_end[axis] < 0) return refuse("negative padding");
  if (inputs[1].constant->count() == 0) return refuse("nothing to compute");
  auto epilogues = Epilogues::make(request, int8 ? DataType::kI32 : DataType::kF32,
                                   std::max<size_t>(op.split.size(), 1));
  if (!epilogues) return refuse(epilogues.reason());
  auto kernel = std::make_unique<ImplicitGemmConv>(op, request, std::move(*epilogues));
  if (kernel->has_zeros_of_channels())
    return refuse("a zero point for each channel of the weights");
  return kernel;
}

constexpr KernelEntry kImplicitEntries[] = {
    entry<Conv, make_implicit>("cpu.conv.implicit_gemm", Layout::kChannelsLast),
};

}  // namespace

std::span<const KernelEntry> implicit_conv_entries() { return kImplicitEntries; }

}  // namespace anneal::cpu
