// ConvTranspose of few output channels: "cpu.conv_transpose.columns". Each input pixel is
// multiplied by all taps at once, a row of a product, whose parts for a row of the kernel are added
// to a row of outputs. This is the overlap-add of an inverse STFT, and the last layer of many
// decoders.
//
// Work is cut into bands of outputs along the longest axis; a band's products stay in a thread's
// memory. Input rows that two bands meet are multiplied twice.
#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "anneal/kernels/cpu/base/device.h"
#include "anneal/kernels/cpu/base/entries.h"
#include "anneal/kernels/cpu/base/workspace.h"
#include "anneal/kernels/cpu/conv/axis_meetings.h"
#include "anneal/kernels/cpu/conv/window.h"
#include "anneal/kernels/cpu/gemm/gemm.h"
#include "anneal/kernels/cpu/program/epilogue.h"

namespace anneal::cpu {
namespace {

// Of the products of a band: as many as it takes, up to the second for the outputs of four windows.
constexpr int64_t kProductBytes = 1 << 20, kMostProductBytes = 4 << 20;
constexpr int64_t kPixelsAtOnce = 64;

struct PreparedColumns final : PreparedKernel {
  TapeSpace space;
  ChannelsLast x;
  Window window;
  std::array<AxisMeetings, 3> axes;
  size_t outer = 0;             // the axis along which outputs are cut
  int64_t band = 1, bands = 1;  // outputs of a band along it
  int64_t widest = 0;           // input positions of a band along it
  PackLayout layout;
  size_t parts_at = 0, part_bytes = 0, sums_at = 0, tape_at = 0;
};

class ColumnsTranspose final : public Kernel {
 public:
  ColumnsTranspose(const ConvTranspose& op, const Request& request, Epilogue epilogue)
      : op_(op),
        gemm_(f32_gemm(isa_of(request.device))),
        load_(load_block(isa_of(request.device))),
        epilogue_(std::move(epilogue)) {
    const TensorView w = kernel_view(*request.inputs[1].constant);
    const PackLayout layout = layout_of(w.dims);
    const std::string form = layout.form() + ", outputs of a tap";
    packed_ = packed_constant(request, form, layout.bytes(), [&](std::byte* to) {
      const std::vector<float> by_tap = outputs_of_taps(w);
      PackSource source;
      source.data = reinterpret_cast<const std::byte*>(by_tap.data());
      source.column_stride = 1;
      source.k_dims = {w.dims[0]};
      source.k_strides = {layout.n};
      for_parts(request, layout.panels(),
                [&](int64_t panel) { pack_panel(layout, source, panel, to, PackTo::kMemory); });
    });
  }

  std::unique_ptr<PreparedKernel> prepare(std::span<const TensorView> inputs,
                                          std::span<const TensorView> outputs,
                                          int threads) const override {
    auto made = std::make_unique<PreparedColumns>();
    PreparedColumns& p = *made;
    const TensorView& y = outputs[0];
    p.space = epilogue_.space(inputs, outputs, TapeSpace::Axes::of_pixels(y.dims.rank()));
    if (count(y.dims) == 0) return made;
    p.x = ChannelsLast(inputs[0]);
    p.window = Window(op_, inputs[1].dims, 2, y.dims);
    p.layout = layout_of(inputs[1].dims);
    for (size_t i = 0; i < 3; ++i)
      p.axes[i] = AxisMeetings(p.x.size[i], p.window.out[i], p.window.kernel[i], p.window.stride[i],
                               p.window.pad[i], p.window.dilation[i]);
    p.outer = static_cast<size_t>(std::ranges::max_element(p.window.out) - p.window.out.begin());
    cut(p, threads);
    const auto pixels = static_cast<size_t>(p.widest * pixels_beside(p));
    p.sums_at = cache_aligned(pixels * static_cast<size_t>(p.layout.padded_columns()) * 4);
    const int64_t row = p.outer == 2 ? p.band : p.window.out[2];
    p.tape_at = p.sums_at + cache_aligned(static_cast<size_t>(row * outputs_of(p)) * 4);
    p.part_bytes = cache_aligned(p.tape_at + epilogue_.scratch_bytes());
    p.parts_at = p.x.staged_bytes();
    p.workspace_bytes = p.parts_at + p.part_bytes * static_cast<size_t>(threads);
    return made;
  }

  void launch(const LaunchArgs& args) const override {
    const auto& p = static_cast<const PreparedColumns&>(*args.prepared);
    if (count(args.outputs[0].dims) == 0) return;
    const std::byte* x = args.inputs[0].data;
    if (p.x.staged) {
      p.x.stage(args.inputs[0], args.workspace, load_, args.team);
      x = args.workspace;
    }
    args.team.for_ranges(p.x.images * p.bands, 1, [&](int64_t begin, int64_t end) {
      std::byte* const part = part_of(args.team, args.workspace + p.parts_at, p.part_bytes);
      for (int64_t i = begin; i < end; ++i) run_band(p, args, x, i / p.bands, i % p.bands, part);
    });
  }

 private:
  // Positions [begin, end) of each spatial axis, of the input or the output.
  struct Box {
    Spatial begin{}, end{};
    int64_t size(size_t axis) const { return end[axis] - begin[axis]; }
  };

  // [inputs, outputs, taps...] as [inputs][taps][outputs].
  static std::vector<float> outputs_of_taps(const TensorView& w) {
    const int64_t outputs = w.dims[1], taps = count(w.dims) / (w.dims[0] * outputs);
    std::vector<float> by_tap(static_cast<size_t>(count(w.dims)));
    float* to = by_tap.data();
    for (int64_t input = 0; input < w.dims[0]; ++input)
      for (int64_t tap = 0; tap < taps; ++tap)
        for (int64_t output = 0; output < outputs; ++output)
          *to++ = w.as<float>()[(input * outputs + output) * taps + tap];
    return by_tap;
  }

  PackLayout layout_of(const Dims& w) const { return PackLayout(gemm_, w[0], count(w) / w[0]); }
  static int64_t outputs_of(const PreparedColumns& p) { return p.layout.n / p.window.taps(); }
  // Input pixels of one position of the outer axis.
  static int64_t pixels_beside(const PreparedColumns& p) {
    int64_t pixels = 1;
    for (size_t axis = 0; axis < 3; ++axis)
      if (axis != p.outer) pixels *= p.x.size[axis];
    return pixels;
  }

  // Bands of as many outputs as the products that they meet may have bytes, and at least those that
  // one input position reaches, four times if they have memory.
  static void cut(PreparedColumns& p, int threads) {
    const int64_t outputs = p.window.out[p.outer], stride = p.window.stride[p.outer];
    const int64_t reach = (p.window.kernel[p.outer] - 1) * p.window.dilation[p.outer] + 1;
    const int64_t position_bytes =
        std::max<int64_t>(pixels_beside(p) * p.layout.padded_columns() * 4, 1);
    const int64_t affordable = std::max<int64_t>(kProductBytes / position_bytes, 1) * stride;
    const int64_t shared = ceil_div(outputs, std::max<int64_t>(2 * threads / p.x.images, 1));
    const int64_t most = std::max<int64_t>(kMostProductBytes / position_bytes, 1) * stride;
    const int64_t least = std::max(reach, std::min(4 * reach, most));
    p.band = std::min(outputs, std::max(std::min(affordable, shared), least));
    p.bands = ceil_div(outputs, p.band);
    for (int64_t band = 0; band < p.bands; ++band)
      p.widest = std::max(p.widest, box(p, band).size(p.outer));
  }

  static Box box(const PreparedColumns& p, int64_t band) {
    Box met;
    for (size_t axis = 0; axis < 3; ++axis) met.end[axis] = p.x.size[axis];
    const AxisMeetings& meetings = p.axes[p.outer];
    int64_t first = std::numeric_limits<int64_t>::max(), last = -1;
    const int64_t end = std::min((band + 1) * p.band, p.window.out[p.outer]);
    for (int64_t output = band * p.band; output < end; ++output)
      for (const Meeting& meeting : meetings.of(output)) {
        first = std::min(first, meeting.position);
        last = std::max(last, meeting.position);
      }
    met.begin[p.outer] = last < 0 ? 0 : first;
    met.end[p.outer] = last + 1;
    return met;
  }

  void run_band(const PreparedColumns& p, const LaunchArgs& args, const std::byte* x, int64_t image,
                int64_t band, std::byte* memory) const {
    const Box met = box(p, band);
    auto* const products = reinterpret_cast<float*>(memory);
    multiply(p, reinterpret_cast<const float*>(x) + image * p.x.image_stride, met, products);
    Box out{{}, p.window.out};
    out.begin[p.outer] = band * p.band;
    out.end[p.outer] = std::min((band + 1) * p.band, out.end[p.outer]);
    auto* const sums = reinterpret_cast<float*>(memory + p.sums_at);
    for (int64_t z = out.begin[0]; z < out.end[0]; ++z)
      for (int64_t y = out.begin[1]; y < out.end[1]; ++y) {
        add_rows(p, products, met, {z, y, out.begin[2]}, out.size(2), sums);
        for (int64_t first = 0; first < out.size(2); first += kPixelsAtOnce) {
          const int64_t pixels = std::min(kPixelsAtOnce, out.size(2) - first);
          const int64_t row =
              ((image * p.window.out[0] + z) * p.window.out[1] + y) * p.window.out[2] +
              out.begin[2] + first;
          epilogue_.run(p.space, args, {sums + first * outputs_of(p), outputs_of(p)},
                        {row, pixels, 0, outputs_of(p)}, memory + p.tape_at);
        }
      }
  }

  // The pixels of the box by all taps of all outputs.
  void multiply(const PreparedColumns& p, const float* image, const Box& met,
                float* products) const {
    for (int64_t z = met.begin[0]; z < met.end[0]; ++z)
      for (int64_t y = met.begin[1]; y < met.end[1]; ++y)
        for (int64_t first = met.begin[2]; first < met.end[2]; first += kPixelsAtOnce) {
          const float* const pixels =
              image + z * p.x.strides[0] + y * p.x.strides[1] + first * p.x.strides[2];
          GemmBlock block;
          block.rows = std::min(kPixelsAtOnce, met.end[2] - first);
          block.columns = p.layout.n;
          block.c = reinterpret_cast<std::byte*>(products);
          block.c_stride = p.layout.padded_columns();
          block.c_is_padded = true;
          products += block.rows * block.c_stride;
          run_lanes(gemm_, p.layout, kBlockLanes, packed_->bytes().data(), {}, block,
                    [&](int64_t k, int64_t) {
                      return std::pair(reinterpret_cast<const std::byte*>(pixels + k),
                                       p.x.strides[2] * static_cast<int64_t>(sizeof(float)));
                    });
        }
  }

  // sums: of all channels of the `width` outputs of a row from `at` on.
  static void add_rows(const PreparedColumns& p, const float* products, const Box& met,
                       const Spatial& at, int64_t width, float* sums) {
    const Window& window = p.window;
    const int64_t outputs = outputs_of(p), pitch = p.layout.padded_columns();
    std::fill_n(sums, width * outputs, 0.0F);
    // Taps without gaps are added at once.
    const int64_t runs = window.dilation[2] == 1 ? 1 : window.kernel[2];
    const int64_t taps = window.kernel[2] / runs;
    for (const Meeting& of_z : p.axes[0].of(at[0]))
      for (const Meeting& of_y : p.axes[1].of(at[1])) {
        const int64_t row =
            (of_z.position - met.begin[0]) * met.size(1) + of_y.position - met.begin[1];
        const float* from = products + row * met.size(2) * pitch +
                            (of_z.tap * window.kernel[1] + of_y.tap) * window.kernel[2] * outputs;
        for (int64_t x = met.begin[2]; x < met.end[2]; ++x, from += pitch)
          for (int64_t run = 0; run < runs; ++run) {
            const int64_t first =
                x * window.stride[2] - window.pad[2] + run * window.dilation[2] - at[2];
            // The rest is padding, or of another band.
            const int64_t begin = std::max<int64_t>(first, 0), end = std::min(first + taps, width);
            if (begin < end)
              add(from + (run * taps + begin - first) * outputs, (end - begin) * outputs,
                  sums + begin * outputs);
          }
      }
  }

  static void add(const float* from, int64_t count, float* to) {
    using Four = float __attribute__((vector_size(16), aligned(4), may_alias));
    int64_t i = 0;
    for (; i + 4 <= count; i += 4)
      *reinterpret_cast<Four*>(to + i) += *reinterpret_cast<const Four*>(from + i);
    for (; i < count; ++i) to[i] += from[i];
  }

  ConvTranspose op_;
  GemmKernels gemm_;
  LoadBlock load_;
  Epilogue epilogue_;
  std::optional<Tensor> packed_;
};

KernelResult make_columns(const ConvTranspose& op, const Request& request) {
  constexpr int64_t kVeryFewOutputs = 8, kFewOutputs = 16, kFewInputs = 16, kMostPhases = 64,
                    kMostStride = 1 << 16;
  if (request.inputs[0].type.dtype != DataType::kF32) return refuse("only f32");
  const Tensor* const w = request.inputs[1].constant;
  if (w == nullptr || w->dtype() != DataType::kF32) return refuse("weights that are not constant");
  const Dims& dims = w->dims();
  if (dims.rank() < 3 || dims.rank() > 5) return refuse("only one to three spatial axes");
  if (op.groups != 1) return refuse("groups");
  if (count(dims) == 0) return refuse("nothing to compute");
  int64_t phases = 1;
  for (const int64_t stride : op.strides) {
    if (stride > kMostStride) return refuse("a stride of more than 65536");
    phases *= stride;
  }
  // Otherwise outputs fill the register tiles of a product for each phase.
  if (!request.ignore_speed_heuristics && phases <= kMostPhases) {
    if (dims[1] > kFewOutputs) return refuse("more than 16 output channels");
    if (dims[1] > kVeryFewOutputs && dims[0] < kFewInputs)
      return refuse("more than 8 output channels of fewer than 16 input channels");
  }
  auto epilogue = Epilogue::make(request, DataType::kF32);
  if (!epilogue) return refuse(epilogue.reason());
  return std::make_unique<ColumnsTranspose>(op, request, std::move(*epilogue));
}

constexpr KernelEntry kColumnsTransposeEntries[] = {
    entry<ConvTranspose, make_columns>("cpu.conv_transpose.columns", Layout::kChannelsLast),
};

}  // namespace

std::span<const KernelEntry> columns_conv_transpose_entries() { return kColumnsTransposeEntries; }

}  // namespace anneal::cpu
