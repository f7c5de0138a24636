// "cpu.conv.winograd": convolutions of 3 x 3 windows, tile by tile. The taps of dilated windows are
// several pixels apart, and the pixels between them belong to other tiles. Such tiles, which cover
// the same part of the image, are a cell.
#include "anneal/kernels/cpu/conv/winograd.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "anneal/core/integer.h"
#include "anneal/core/new_tensor.h"
#include "anneal/kernels/cpu/base/device.h"
#include "anneal/kernels/cpu/base/entries.h"
#include "anneal/kernels/cpu/base/workspace.h"
#include "anneal/kernels/cpu/conv/channels_last.h"
#include "anneal/kernels/cpu/program/epilogue.h"

namespace anneal::cpu {
namespace {

constexpr int64_t kOut = WinogradTile::kOutputs, kIn = WinogradTile::kInputs;
constexpr int64_t kProducts = WinogradTile::kProducts;

// Tiles of a block: what is multiplied, and the products of a chunk of output channels, stay in the
// second-level cache beside weights that stream through it. Fewer tiles read the weights more
// often.
constexpr int64_t kBlockTiles = 28;

// Measured on an EPYC Zen 5 on one thread, Winograd's time is 0.3 (64 to 128 channels, images from
// 28 x 28) to 0.85 (16 channels) of the best other kernel's: with fewer channels the transforms
// cost as much as is saved. Weights are four times as many, and are read once per block: with 256
// channels and 14 x 14 (16 tiles) it takes 0.49 of the time inside ResNet-50, where they come from
// memory, but with 512 channels and 7 x 7 (4 tiles) 1.1. With bf16, which it multiplies as f32, it
// takes 0.6 (64 channels and more) to 1.0 (32), and 1.15 with 16 channels.
constexpr int64_t kLeastChannels = 16, kLeastChannelsBf16 = 32, kLeastTiles = 9;

constexpr int64_t kMostDilation = 16;

int64_t cut(int64_t whole, int64_t parts, int64_t i) { return whole * i / parts; }

// Cells of tiles. Their rows are numbered through all images, so that blocks of whole rows are runs
// of output pixels.
struct Cells {
  int64_t height = 0, width = 0;   // of an output image
  int64_t step_y = 1, step_x = 1;  // of the windows; tiles of a cell, down and across
  int64_t rows_per_image = 0, rows = 0, columns = 0;

  Cells() = default;
  Cells(int64_t images, int64_t image_height, int64_t image_width, const Conv& op)
      : height(image_height),
        width(image_width),
        step_y(op.dilations[0]),
        step_x(op.dilations[1]),
        rows_per_image(ceil_div(height, pixels_down())),
        rows(images * rows_per_image),
        columns(ceil_div(width, pixels_across())) {}
  int64_t tiles() const { return step_y * step_x; }  // of a cell
  int64_t pixels_down() const { return kOut * step_y; }
  int64_t pixels_across() const { return kOut * step_x; }
  int64_t image(int64_t row) const { return row / rows_per_image; }
  int64_t y(int64_t row) const { return row % rows_per_image * pixels_down(); }
  // The first row of output pixels of a row of cells, through all images, and how many it has.
  int64_t pixel_row(int64_t row) const { return image(row) * height + y(row); }
  int64_t pixel_rows(int64_t row) const { return std::min(pixels_down(), height - y(row)); }
};

// Cells, and chunks of output channels.
struct Block {
  int64_t row_begin, row_end;
  int64_t column_begin, column_end;
  int64_t chunk_begin, chunk_end;
  int64_t cells() const { return (row_end - row_begin) * (column_end - column_begin); }
};

struct PreparedWinograd final : PreparedKernel {
  Epilogues::Spaces spaces;
  ChannelsLast x;
  Cells cells;
  int64_t row_blocks = 1, column_blocks = 1, chunk_blocks = 1;
  // In floats: for the transformed input, the distance of tiles and of positions; for products, the
  // distance of positions.
  int64_t left_pitch = 0, left_step = 0, product_step = 0;
  size_t zeros_at = 0, parts_at = 0, part_bytes = 0;
  size_t products_at = 0, out_at = 0, tape_at = 0;  // in a part

  // The inputs of the tile whose first one is at (top, left) of an image, a step apart; `zeros` for
  // padding.
  void find_pixels(const std::byte* image, int64_t top, int64_t left, const std::byte* zeros,
                   const std::byte* (&pixels)[kProducts]) const {
    const auto size_of_element = static_cast<int64_t>(size_of(x.element));
    const int64_t row = x.strides[1] * size_of_element, column = x.strides[2] * size_of_element;
    const auto is_inside = [](int64_t at, int64_t size) { return at >= 0 && at < size; };
    const auto all_inside = [&](int64_t begin, int64_t step, int64_t size) {
      return is_inside(begin, size) && is_inside(begin + (kIn - 1) * step, size);
    };
    const bool is_whole =
        all_inside(top, cells.step_y, x.size[1]) && all_inside(left, cells.step_x, x.size[2]);
    for (int64_t i = 0; i < kIn; ++i)
      for (int64_t j = 0; j < kIn; ++j) {
        const int64_t at_y = top + i * cells.step_y, at_x = left + j * cells.step_x;
        const bool is_read = is_whole || (is_inside(at_y, x.size[1]) && is_inside(at_x, x.size[2]));
        pixels[i * kIn + j] = is_read ? image + at_y * row + at_x * column : zeros;
      }
  }

  int64_t blocks() const { return row_blocks * column_blocks * chunk_blocks; }
  Block block(int64_t i, int64_t chunks) const {
    const int64_t chunk = i % chunk_blocks;
    const int64_t column = i / chunk_blocks % column_blocks;
    const int64_t row = i / chunk_blocks / column_blocks;
    return {.row_begin = cut(cells.rows, row_blocks, row),
            .row_end = cut(cells.rows, row_blocks, row + 1),
            .column_begin = cut(cells.columns, column_blocks, column),
            .column_end = cut(cells.columns, column_blocks, column + 1),
            .chunk_begin = cut(chunks, chunk_blocks, chunk),
            .chunk_end = cut(chunks, chunk_blocks, chunk + 1)};
  }
};

class WinogradConv final : public Kernel {
 public:
  WinogradConv(const Conv& op, const TensorView& w, const Request& request, Epilogues epilogues)
      : op_(op),
        gemm_(f32_gemm(isa_of(request.device))),
        transforms_(winograd_transforms(isa_of(request.device))),
        load_(load_block(isa_of(request.device))),
        epilogues_(std::move(epilogues)),
        weights_(isa_of(request.device), w.dims[1], w.dims[0]),
        packed_(packed_constant(request, weights_.form(), weights_.bytes(), [&](std::byte* to) {
          for_parts(request, weights_.panels(),
                    [&](int64_t panel) { weights_.pack(w, panel, to); });
        })) {}

  std::unique_ptr<PreparedKernel> prepare(std::span<const TensorView> inputs,
                                          std::span<const TensorView> outputs,
                                          int threads) const override {
    const TensorView& y = outputs[0];
    auto made = std::make_unique<PreparedWinograd>();
    made->spaces = epilogues_.pixel_spaces(inputs, outputs);
    if (count(y.dims) == 0) return made;
    made->x = ChannelsLast(inputs[0], true);
    made->cells = Cells(y.dims[0], y.dims[2], y.dims[3], op_);
    cut_blocks(*made, threads);
    place(*made, threads);
    return made;
  }

  void launch(const LaunchArgs& args) const override;

 private:
  void cut_blocks(PreparedWinograd& p, int threads) const;
  void place(PreparedWinograd& p, int threads) const;
  void run_block(const PreparedWinograd& p, const Block& block, const LaunchArgs& args,
                 const std::byte* x, std::byte* memory) const;
  void transform_inputs(const PreparedWinograd& p, const Block& block, const std::byte* x,
                        const std::byte* zeros, float* left) const;
  void multiply(const PreparedWinograd& p, const Block& block, int64_t chunk, const std::byte* left,
                std::byte* products) const;
  void transform_outputs(const PreparedWinograd& p, const Block& block, int64_t outputs,
                         const float* products, float* out) const;
  void finish(const PreparedWinograd& p, const Block& block, int64_t chunk, const LaunchArgs& args,
              const std::byte* out, std::byte* scratch) const;
  // Columns of output pixels of a block.
  struct Pixels {
    int64_t first, count;
  };
  static Pixels pixels_across(const PreparedWinograd& p, const Block& block) {
    const int64_t first = block.column_begin * p.cells.pixels_across();
    const int64_t end = block.column_end * p.cells.pixels_across();
    return {first, std::min(end, p.cells.width) - first};
  }
  int64_t outputs_of(int64_t chunk) const {
    return std::min(weights_.chunk(), weights_.outputs() - chunk * weights_.chunk());
  }

  Conv op_;
  GemmKernels gemm_;
  WinogradTransforms transforms_;
  LoadBlock load_;
  Epilogues epilogues_;
  WinogradWeights weights_;
  Tensor packed_;
};

// Whole rows of cells if they are short. Several threads share output channels before tiles, which
// reads no weights twice, but transforms inputs more than once: only so often that each thread has
// a block. Fewer tiles to a block where threads get equally many then.
void WinogradConv::cut_blocks(PreparedWinograd& p, int threads) const {
  const Cells& cells = p.cells;
  const int64_t across = cells.columns * cells.tiles();
  p.column_blocks = std::min(ceil_div(across, kBlockTiles), cells.columns);
  const int64_t rows = std::max<int64_t>(kBlockTiles * p.column_blocks / across, 1);
  p.row_blocks = ceil_div(cells.rows, rows);
  const auto is_even = [&] { return p.blocks() >= 8 * threads || p.blocks() % threads == 0; };
  if (is_even()) return;
  const int64_t least = p.row_blocks;
  const bool is_few = p.blocks() < threads;
  if (is_few) p.chunk_blocks = std::min(weights_.chunks(), ceil_div(threads, p.blocks()));
  if (is_even()) return;
  const int64_t chunks = std::exchange(p.chunk_blocks, 1);
  const int64_t most = std::min(cells.rows, is_few ? threads : 2 * least);
  for (; p.row_blocks <= most; ++p.row_blocks)
    if (is_even()) return;
  p.row_blocks = is_few ? std::min(cells.rows, ceil_div(threads, chunks)) : least;
  p.chunk_blocks = chunks;
}

void WinogradConv::place(PreparedWinograd& p, int threads) const {
  constexpr int64_t kLine = 16;  // floats
  const int64_t tiles = ceil_div(p.cells.rows, p.row_blocks) *
                        ceil_div(p.cells.columns, p.column_blocks) * p.cells.tiles();
  const auto bytes = [](int64_t floats) { return static_cast<size_t>(floats) * sizeof(float); };
  // Rows a multiple of 4 KiB apart, and positions an even number of lines, would push each other
  // out of the first-level cache.
  const auto spread = [](int64_t floats) { return (ceil_div(floats, kLine) | 1) * kLine; };
  p.left_pitch = ceil_div(weights_.inputs(), kLine) * kLine;
  if (p.left_pitch % 1024 == 0) p.left_pitch += kLine;
  p.left_step = spread(tiles * p.left_pitch);
  p.product_step = spread(tiles * weights_.chunk());
  p.zeros_at = p.x.staged_bytes();
  p.parts_at = p.zeros_at + cache_aligned(bytes(weights_.inputs()));
  p.products_at = bytes(kProducts * p.left_step);
  p.out_at = p.products_at + bytes(kProducts * p.product_step);
  p.tape_at = p.out_at + cache_aligned(bytes(tiles * kOut * kOut * weights_.chunk()));
  p.part_bytes = cache_aligned(p.tape_at + epilogues_.scratch_bytes());
  p.workspace_bytes = p.parts_at + p.part_bytes * static_cast<size_t>(threads);
}

void WinogradConv::transform_inputs(const PreparedWinograd& p, const Block& block,
                                    const std::byte* x, const std::byte* zeros, float* left) const {
  const Cells& cells = p.cells;
  const auto transform = [&](const std::byte* image, int64_t y, int64_t column) {
    const std::byte* pixels[kProducts];
    p.find_pixels(image, y - op_.pads_begin[0], column - op_.pads_begin[1], zeros, pixels);
    transforms_.input(p.x.element, pixels, weights_.inputs(), left, p.left_step);
    left += p.left_pitch;
  };
  for (int64_t row = block.row_begin; row < block.row_end; ++row) {
    const std::byte* const image =
        x + cells.image(row) * p.x.image_stride * static_cast<int64_t>(size_of(p.x.element));
    for (int64_t column = block.column_begin; column < block.column_end; ++column)
      for (int64_t i = 0; i < cells.step_y; ++i)
        for (int64_t j = 0; j < cells.step_x; ++j)
          transform(image, cells.y(row) + i, column * cells.pixels_across() + j);
  }
}

void WinogradConv::multiply(const PreparedWinograd& p, const Block& block, int64_t chunk,
                            const std::byte* left, std::byte* products) const {
  GemmBlock product;
  product.a_stride = p.left_pitch * 4;
  product.panel_stride = weights_.panel_bytes();
  product.c_stride = weights_.chunk();
  product.rows = block.cells() * p.cells.tiles();
  product.columns = outputs_of(chunk);
  product.lanes = weights_.inputs();
  product.c_is_padded = true;
  product.a = left;
  product.b = packed_.bytes().data() + weights_.chunk_offset(chunk);
  product.c = products;
  for (int64_t i = 0; i < kProducts; ++i) {
    gemm_.block(product);
    product.a += p.left_step * 4;
    product.b += weights_.position_step(chunk);
    product.c += p.product_step * 4;
  }
}

void WinogradConv::transform_outputs(const PreparedWinograd& p, const Block& block, int64_t outputs,
                                     const float* products, float* out) const {
  const int64_t channels = ceil_div(outputs, transforms_.lanes) * transforms_.lanes;
  const int64_t pitch = weights_.chunk();
  const Cells& cells = p.cells;
  const int64_t width = pixels_across(p, block).count;
  // Outputs of a tile, a step apart, of `pixels` that its cell has.
  const auto outputs_of_tile = [](int64_t pixels, int64_t first, int64_t step) {
    return std::clamp<int64_t>(ceil_div(pixels - first, step), 0, kOut);
  };
  for (int64_t row = block.row_begin; row < block.row_end; ++row) {
    const int64_t height = cells.pixel_rows(row);
    for (int64_t x = 0; x < width; x += cells.pixels_across())
      for (int64_t i = 0; i < cells.step_y; ++i)
        for (int64_t j = 0; j < cells.step_x; ++j, products += pitch) {
          const int64_t down = outputs_of_tile(height, i, cells.step_y);
          const int64_t across = outputs_of_tile(width - x, j, cells.step_x);
          if (down == 0 || across == 0) continue;
          transforms_.output(products, p.product_step, channels, down, across,
                             out + (i * width + x + j) * pitch, cells.step_y * width * pitch,
                             cells.step_x * pitch);
        }
    out += height * width * pitch;
  }
}

// The epilogues: at once if the block is a run of pixels.
void WinogradConv::finish(const PreparedWinograd& p, const Block& block, int64_t chunk,
                          const LaunchArgs& args, const std::byte* out, std::byte* scratch) const {
  const int64_t first_row = p.cells.pixel_row(block.row_begin);
  int64_t rows =
      p.cells.pixel_row(block.row_end - 1) + p.cells.pixel_rows(block.row_end - 1) - first_row;
  auto [x, width] = pixels_across(p, block);
  if (width == p.cells.width) width *= rows, rows = 1;
  const int64_t pitch = weights_.chunk();
  for (int64_t row = 0; row < rows; ++row)
    epilogues_.run(p.spaces, args, {out + row * width * pitch * 4, pitch},
                   {(first_row + row) * p.cells.width + x, width, chunk * pitch, outputs_of(chunk)},
                   scratch);
}

void WinogradConv::run_block(const PreparedWinograd& p, const Block& block, const LaunchArgs& args,
                             const std::byte* x, std::byte* memory) const {
  std::byte *const products = memory + p.products_at, *const out = memory + p.out_at;
  transform_inputs(p, block, x, args.workspace + p.zeros_at, reinterpret_cast<float*>(memory));
  for (int64_t chunk = block.chunk_begin; chunk < block.chunk_end; ++chunk) {
    multiply(p, block, chunk, memory, products);
    transform_outputs(p, block, outputs_of(chunk), reinterpret_cast<const float*>(products),
                      reinterpret_cast<float*>(out));
    finish(p, block, chunk, args, out, memory + p.tape_at);
  }
}

void WinogradConv::launch(const LaunchArgs& args) const {
  const auto& p = static_cast<const PreparedWinograd&>(*args.prepared);
  if (count(args.outputs[0].dims) == 0) return;
  const std::byte* x = args.inputs[0].data;
  if (p.x.staged) {
    p.x.stage(args.inputs[0], args.workspace, load_, args.team);
    x = args.workspace;
  }
  std::memset(args.workspace + p.zeros_at, 0, p.parts_at - p.zeros_at);
  args.team.for_ranges(p.blocks(), 1, [&](int64_t begin, int64_t end) {
    std::byte* const part = part_of(args.team, args.workspace + p.parts_at, p.part_bytes);
    for (int64_t i = begin; i < end; ++i)
      run_block(p, p.block(i, weights_.chunks()), args, x, part);
  });
}

// Of the output, at the sizes to optimize for; an image of undeclared size counts as a large one.
bool has_enough_tiles(const Type& y, const SizeTable& sizes) {
  int64_t tiles = sizes.range(y.shape[0]).opt;
  for (const int axis : {2, 3}) {
    const int64_t size = sizes.range(y.shape[axis]).opt;
    tiles *= y.shape[axis].known() || size > 1 ? ceil_div(size, kOut) : kLeastTiles;
  }
  return tiles >= kLeastTiles;
}

// Whether dilated windows leave at least half of their tiles to outputs: in small images, few
// pixels are a step apart.
bool fills_tiles(const Conv& op, const Type& y, const SizeTable& sizes) {
  int64_t outputs = 1, places = 1;
  for (const int axis : {2, 3}) {
    const int64_t step = op.dilations[static_cast<size_t>(axis - 2)];
    const int64_t size = std::max<int64_t>(sizes.range(y.shape[axis]).opt, 1);
    if (step == 1 || (!y.shape[axis].known() && size == 1)) continue;
    outputs *= size;
    places *= ceil_div(size, kOut * step) * kOut * step;
  }
  return 2 * outputs >= places;
}

KernelResult make_winograd(const Conv& op, const Request& request) {
  const auto is_all = [](const std::vector<int64_t>& values, int64_t wanted) {
    return std::ranges::all_of(values, [&](int64_t v) { return v == wanted; });
  };
  const auto inputs = request.inputs;
  const DataType dtype = inputs[0].type.dtype;
  if (dtype != DataType::kF32 && dtype != DataType::kBF16) return refuse("only f32 and bf16");
  const Tensor* const w = inputs[1].constant;
  if (w == nullptr) return refuse("weights that are no constants");
  const Dims& dims = w->dims();
  if (dims.rank() != 4 || dims[2] != 3 || dims[3] != 3) return refuse("only windows of 3 x 3");
  if (!is_all(op.strides, 1)) return refuse("strides");
  if (op.dilations[0] > kMostDilation || op.dilations[1] > kMostDilation)
    return refuse("dilations of more than 16, whose cells take much memory");
  if (op.groups != 1) return refuse("groups");
  if (op.exact_sums) return refuse("results are rounded to whole numbers or compared");
  if (dims[1] < winograd_transforms(isa_of(request.device)).lanes || dims[0] == 0)
    return refuse("less than a vector of input channels, or no outputs");
  const int64_t least = dtype == DataType::kBF16 ? kLeastChannelsBf16 : kLeastChannels;
  if (!request.ignore_speed_heuristics && std::min(dims[0], dims[1]) < least)
    return refuse("too few channels to pay for the transforms");
  if (!request.ignore_speed_heuristics && !has_enough_tiles(request.outputs[0].type, request.sizes))
    return refuse("images so small that reading the transformed weights costs more");
  if (!request.ignore_speed_heuristics && !fills_tiles(op, request.outputs[0].type, request.sizes))
    return refuse("dilations that leave most of a tile empty");
  auto epilogues = Epilogues::make(request, DataType::kF32, std::max<size_t>(op.split.size(), 1));
  if (!epilogues) return refuse(epilogues.reason());
  return std::make_unique<WinogradConv>(op, kernel_view(*w), request, std::move(*epilogues));
}

constexpr bool kInexact = false;

constexpr KernelEntry kWinogradEntries[] = {
    entry<Conv, make_winograd>("cpu.conv.winograd", Layout::kChannelsLast, kInexact),
};

}  // namespace

std::span<const KernelEntry> winograd_conv_entries() { return kWinogradEntries; }

}  // namespace anneal::cpu
