#include "anneal/kernels/cpu/conv/implicit_plan.h"

#include <limits>
#include <utility>

#include "anneal/core/dtype.h"
#include "anneal/kernels/cpu/base/workspace.h"

namespace anneal::cpu {
namespace {

constexpr int64_t kBlockPixels = 112;      // of a block, whose sums are in the first-level cache
constexpr int64_t kLeastBlockPixels = 16;  // of one that is cut for the sake of threads
constexpr int64_t kNearBytes = 256 << 10;  // of copied input
constexpr int64_t kPagePeriod = 4096;      // rows so far apart push each other out of the cache

// Pieces for each thread, where there are few: enough to help one that is late.
constexpr int64_t kFewPieces = 2, kEnoughPieces = 4, kManyPieces = 16;

// Clipping multiplies row by row and tap by tap, which has to save a twentieth of the work, and
// needs products that are long enough.
constexpr int64_t kLeastSaved = 20, kLeastClippedLanes = 64;

// Where part `i` of `parts` nearly equal parts begins.
int64_t part_begin(int64_t all, int64_t parts, int64_t i) { return all * i / parts; }

}  // namespace

IndexRange WindowAxis::taps_inside(int64_t out) const {
  const int64_t first = out * stride - pad;
  const int64_t begin = std::min(first < 0 ? ceil_div(-first, dilation) : 0, kernel);
  const int64_t end = first < in ? std::min(ceil_div(in - first, dilation), kernel) : 0;
  return {begin, std::max(begin, end)};
}

IndexRange WindowAxis::outputs_inside(int64_t tap, int64_t first, int64_t count) const {
  const int64_t before = pad - tap * dilation;  // inputs from the tap of output 0 to input 0
  const int64_t begin = before > 0 ? ceil_div(before, stride) : 0;
  const int64_t end = before + in > 0 ? ceil_div(before + in, stride) : 0;
  const int64_t inside = std::clamp(begin, first, first + count);
  return {inside, std::clamp(end, inside, first + count)};
}

int64_t WindowAxis::count_inside(int64_t first, int64_t count) const {
  int64_t result = 0;
  for (int64_t tap = 0; tap < kernel; ++tap) result += outputs_inside(tap, first, count).count();
  return result;
}

ImplicitPlan::ImplicitPlan(const ImplicitWeights& weights, const ChannelsLast& x,
                           const Window& window, int threads)
    : weights(&weights), x(x) {
  place_input(window);
  cut(threads);
  place_taps();
}

// Where taps read the input: in place, or from copies.
void ImplicitPlan::place_input(const Window& window) {
  const auto axis = [&](size_t i) {
    return WindowAxis{x.size[i],        window.out[i], window.kernel[i],
                      window.stride[i], window.pad[i], window.dilation[i]};
  };
  z_axis = axis(0), y_axis = axis(1), x_axis = axis(2);
  const auto size = static_cast<int64_t>(size_of(x.element));
  source_plane = x.strides[0] * size;
  plane = z_axis.dilation * source_plane;
  row = source_row = x.strides[1] * size;
  pixel = source_pixel = x.strides[2] * size;
  // Columns of one pixel are a row.
  if (x_axis.in == 1 && x_axis.kernel == 1 && !x_axis.is_padded()) {
    std::swap(y_axis, x_axis);
    pixel = source_pixel = row;
  }
  if (y_axis.is_pointwise() && x_axis.is_pointwise() &&
      (y_axis.in == 1 || row == pixel * x_axis.in)) {
    // No windows: all pixels of a plane are one row.
    x_axis.in = x_axis.out = x_axis.in * y_axis.in;
    y_axis.in = y_axis.out = 1;
  }
  const GemmKernels& kernels = weights->kernels;
  clips = gains_by_clipping();
  const bool joins_row = weights->joins_row && !clips;
  is_copied = !kernels.reads(x.element) ||
              (!clips && (y_axis.is_padded() || x_axis.is_padded() || copies_planes())) ||
              weights->layout.tap % kernels.elements_per_lane != 0 ||
              (joins_row && pixel != weights->channels * size) ||
              pixel * x_axis.stride % kPagePeriod == 0;
  if (!is_copied) return;
  pixel = weights->channels * static_cast<int64_t>(kernels.element_size());
  if (joins_row && weights->pieces == 1) return;
  pixel = align_up(pixel, 4);
  if (joins_row) return;
  if (pixel * x_axis.stride % kPagePeriod == 0) pixel += 64;
}

// Zero points of both operands count in padding, too.
bool ImplicitPlan::gains_by_clipping() const {
  const int64_t lanes = weights->channels / weights->kernels.elements_per_lane;
  if (weights->kernels.kind == GemmKind::kU8S8 || lanes < kLeastClippedLanes ||
      weights->channels % weights->kernels.elements_per_lane != 0)
    return false;
  const int64_t all = y_axis.out * y_axis.kernel * x_axis.out * x_axis.kernel;
  const int64_t inside = y_axis.count_inside(0, y_axis.out) * x_axis.count_inside(0, x_axis.out);
  return (all - inside) * kLeastSaved > all;
}

// All planes of padding are multiplied if the window of an output has no others.
bool ImplicitPlan::copies_planes() const {
  if (!z_axis.is_padded()) return false;
  if (!skips_planes()) return true;
  for (int64_t out = 0; out < z_axis.out; ++out)
    if (z_axis.taps_inside(out).count() == 0) return true;
  return false;
}

void ImplicitPlan::place_taps() {
  const bool joins_row = weights->joins_row && !clips;
  const int64_t columns = joins_row ? 1 : x_axis.kernel;
  taps_of_plane = y_axis.kernel * columns;
  lanes_of_tap = clips ? weights->channels / weights->kernels.elements_per_lane
                       : weights->layout.tap_lanes() * weights->pieces;
  for (int64_t y = 0; y < y_axis.kernel && !clips; ++y)
    for (int64_t x = 0; x < columns; ++x)
      taps.push_back(y * y_axis.dilation * row + x * x_axis.dilation * pixel);
  const int64_t parts = ceil_div(lanes_of_tap, ImplicitWeights::kMostBlockLanes);
  const int64_t at_once = parts > 1 || clips ? 1 : ImplicitWeights::kMostBlockLanes / lanes_of_tap;
  for (int64_t plane = 0; plane < z_axis.kernel; ++plane)
    for (int64_t tap = 0; tap < taps_of_plane; tap += at_once)
      for (int64_t part = 0; part < parts; ++part) {
        const int64_t lane = part_begin(lanes_of_tap, parts, part);
        chunks.push_back({plane, tap, std::min(at_once, taps_of_plane - tap), lane,
                          part_begin(lanes_of_tap, parts, part + 1) - lane});
      }
}

void ImplicitPlan::cut(int threads) {
  grid = share_equally(few_pieces(), threads);
  if (is_copied) {
    row = row_bytes(most_width());
    plane = most_read(y_axis, most_rows()) * row;
  }
  block_rows = std::min(rows_of_block(grid.across), most_rows());
}

int64_t ImplicitPlan::row_bytes(int64_t width) const {
  const int64_t bytes = most_read(x_axis, width) * pixel;
  return static_cast<int64_t>(cache_aligned(static_cast<size_t>(bytes))) + 64;
}

int64_t ImplicitPlan::rows_of_block(int64_t across) const {
  return across > 1 ? 1 : std::max<int64_t>(kBlockPixels / x_axis.out, 1);
}

// As few as the caches allow.
ConvGrid ImplicitPlan::few_pieces() const {
  ConvGrid result{.across = ceil_div(x_axis.out, kBlockPixels)};
  const int64_t width = ceil_div(x_axis.out, result.across);
  const int64_t block = rows_of_block(result.across);
  int64_t rows = block;
  while (rows < y_axis.out && copied_bytes(rows + block, width) < kNearBytes) rows += block;
  result.down = ceil_div(y_axis.out, rows);
  return result;
}

// More than `least`, if that gives threads equal work.
ConvGrid ImplicitPlan::share_equally(const ConvGrid& least, int threads) const {
  const int64_t planes = output_planes(), few = planes * least.pieces();
  if (threads == 1 || few >= kManyPieces * threads) return least;
  const int64_t enough = ceil_div(kFewPieces * threads, planes);
  const int64_t most = std::max(kEnoughPieces * threads, few * 5 / 4) / planes;
  const int64_t fair = largest_share(least, 1) / threads;
  ConvGrid best = least, tried = least;
  auto best_share = std::numeric_limits<int64_t>::max();
  for (; tried.down <= y_axis.out && tried.down <= most; ++tried.down)
    for (tried.across = least.across; tried.down * tried.across <= most; ++tried.across) {
      if (tried.across > least.across && x_axis.out / tried.across < kLeastBlockPixels) break;
      const int64_t columns =
          std::min(weights->layout.panels(), most / (tried.down * tried.across));
      for (tried.columns = 1; tried.columns <= columns; ++tried.columns) {
        if (tried.pieces() < enough) {
          if (best.pieces() < tried.pieces()) best = tried;
          continue;
        }
        const int64_t share = largest_share(tried, threads);
        if (share < best_share) best = tried, best_share = share;
        if (share <= fair + fair / 32) return tried;
      }
    }
  return best;
}

// The most work of a thread.
int64_t ImplicitPlan::largest_share(const ConvGrid& tried, int threads) const {
  const int64_t items = output_planes() * tried.pieces();
  int64_t largest = 0;
  for (int thread = 0; thread < threads; ++thread) {
    int64_t share = 0;
    for (int64_t i = part_begin(items, threads, thread); i < part_begin(items, threads, thread + 1);
         ++i)
      share += work(piece_of(tried, i));
    largest = std::max(largest, share);
  }
  return largest;
}

// In multiplications, or the time of as many. Weights are read for each row of pixels, and tiles of
// registers have to be stored.
int64_t ImplicitPlan::work(const ConvPiece& piece) const {
  constexpr int64_t kPerRow = 4, kPerTile = 2;
  const int64_t lanes = weights->layout.lanes() * piece.planes.count() / z_axis.kernel;
  int64_t pixels = piece.rows * piece.width;
  if (clips)
    pixels = y_axis.count_inside(piece.row, piece.rows) *
             x_axis.count_inside(piece.first, piece.width) / (y_axis.kernel * x_axis.kernel);
  const int64_t beside =
      piece.rows * (kPerRow + kPerTile * ceil_div(piece.width, weights->kernels.tile_rows));
  return (pixels + beside) * piece.columns * lanes + copied_bytes(piece.rows, piece.width);
}

// The piece of any image; images hold the most pieces, and columns the fewest.
ConvPiece ImplicitPlan::piece_of(const ConvGrid& cut, int64_t item) const {
  ConvPiece piece{};
  const auto range = [&](int64_t all, int64_t parts, int64_t unit, int64_t& begin, int64_t& size) {
    const int64_t part = item % parts;
    item /= parts;
    begin = part_begin(all, parts, part) * unit;
    size = part_begin(all, parts, part + 1) * unit - begin;
  };
  const PackLayout& layout = weights->layout;
  range(layout.panels(), cut.columns, layout.tile_columns, piece.column, piece.columns);
  range(x_axis.out, cut.across, 1, piece.first, piece.width);
  range(y_axis.out, cut.down, 1, piece.row, piece.rows);
  piece.plane = item % z_axis.out;
  piece.image = item / z_axis.out;
  piece.planes = {0, z_axis.kernel};
  const IndexRange inside = z_axis.taps_inside(piece.plane);
  if (clips || (skips_planes() && inside.count() > 0)) piece.planes = inside;
  return piece;
}

}  // namespace anneal::cpu
