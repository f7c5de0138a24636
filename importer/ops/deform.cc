// DeformConv: a convolution whose window is another one at each place of the output. GridSample
// reads the elements, and a product with the weights sums them up.
#include "anneal/importer/ops/rows.h"

#include <fmt/format.h>

#include "anneal/importer/ops/expression.h"
#include "anneal/importer/ops/window.h"

namespace anneal {
namespace {

class DeformConv {
 public:
  explicit DeformConv(Node& node) : node_(node), sizes_(node.sizes()) {}

  // inputs: x[N,C,H,W], w[M,C/groups,KH,KW], offsets[N,2*KH*KW*offset groups,OH,OW], [bias[M]],
  // [mask[N,KH*KW*offset groups,OH,OW]].
  Outputs import() {
    node_.expect_inputs(3, 5);
    node_.expect_same_dtype({0, 1, 2, 3, 4});
    dtype_ = node_.dtype(0, kFloats);
    if (node_.rank(0) != 4 || node_.rank(1) != 4 || node_.rank(2) != 4)
      node_.unsupported("other than two spatial axes");
    window_ = read_unpadded_window(node_, node_.input(1));
    read_pads(node_, window_);
    if (window_.pads_begin.empty()) window_.pads_begin = window_.pads_end = {0, 0};
    const int64_t groups = node_.integer("group", 1);
    offset_groups_ = node_.integer("offset_group", 1);
    if (groups < 1 || offset_groups_ < 1) node_.invalid("less than one group");
    const Shape x = node_.shape(0), w = node_.shape(1);
    if (!known(w)) node_.unsupported("a shape of the weights known only at run time");
    const int64_t outputs = w[0].value(), per_group = w[1].value();
    const char* const divide = "channels that the groups do not divide";
    if (groups > outputs || outputs % groups != 0) node_.invalid(divide);
    const int64_t channels = per_group * groups;
    if (offset_groups_ > channels || channels % offset_groups_ != 0) node_.invalid(divide);
    if (x[1].known() && x[1].value() != channels)
      node_.invalid(fmt::format("{} channels for weights of {}", x[1].value(), channels));
    const auto agree = [&](Size size, int64_t wanted, const char* what) {
      if (size.known() && size.value() != wanted)
        node_.invalid(fmt::format("{}{} instead of {}", size.value(), what, wanted));
    };
    taps_ = window_.kernel[0] * window_.kernel[1];
    agree(node_.shape(2)[1], 2 * taps_ * offset_groups_, " offsets");
    if (node_.has_input(4))
      agree(node_.shape(4)[1], taps_ * offset_groups_, " elements of the mask");

    images_ = sizes_.mul(x[0], offset_groups_);
    height_ = node_.shape(2)[2], width_ = node_.shape(2)[3];
    check_places();
    const ValueId grouped =
        reshape(node_, node_.input(0), {images_, channels / offset_groups_, x[2], x[3]}, "grouped");
    const GridSample sample{.padding = GridPadding::kZeros};
    ValueId elements = node_.layer(sample, {grouped, grid()}, "elements");
    if (node_.has_input(4)) elements = masked(elements);

    const Size places = sizes_.mul(height_, width_);
    const ValueId columns =
        reshape(node_, elements, {x[0], groups, per_group * taps_, places}, "columns");
    const ValueId weights =
        reshape(node_, node_.input(1), {1, groups, outputs / groups, per_group * taps_}, "weights");
    const ValueId sums = node_.layer(MatMul{}, {weights, columns}, "sums");
    const std::vector<Size> shape = {x[0], outputs, height_, width_};
    if (!node_.has_input(3)) return reshape_result(node_, sums, shape);
    const ValueId bias = per_channel(node_, node_.input(3), 4, "bias_per_channel");
    return pointwise_result(node_, {reshape(node_, sums, shape, "joined_groups"), bias}, dtype_,
                            [](Expressions in) { return in[0] + in[1]; });
  }

 private:
  // The offsets' places must be those of the output.
  void check_places() const {
    for (size_t i = 0; i < 2; ++i) {
      const Size from = node_.shape(0)[2 + static_cast<int>(i)], to = i == 0 ? height_ : width_;
      if (!from.known() || !to.known()) continue;
      const int64_t extent = (window_.kernel[i] - 1) * window_.dilations[i] + 1;
      const int64_t room = from.value() + window_.pads_begin[i] + window_.pads_end[i] - extent;
      if (room < 0 || room / window_.strides[i] + 1 != to.value())
        node_.invalid(
            fmt::format("offsets for {} places, which the window does not have", to.value()));
    }
  }

  // Where one coordinate of each tap lies, in -1..1: [images, taps * height, width, 1].
  ValueId coordinates(ValueId offsets, size_t axis, const std::string& name) {
    const auto at = static_cast<int64_t>(axis);
    const ValueId own = slice_of(node_, offsets, 2, at, at + 1, name + "/offsets");
    const ValueId size =
        node_.sizes_value({node_.shape(0)[2 + static_cast<int>(axis)]}, name + "/size");
    const double columns = static_cast<double>(window_.kernel[1]);
    const auto stride = static_cast<double>(window_.strides[axis]);
    const auto dilation = static_cast<double>(window_.dilations[axis]);
    const auto pad = static_cast<double>(window_.pads_begin[axis]);
    const ValueId places = pointwise(node_, name, {own, size}, dtype_, [&](Expressions in) {
      const Expression row = in[0].index(1) / columns, tap = in[0].index(1);
      const Expression of_kernel = axis == 0 ? row : tap - row * columns;
      const Expression place = in[0].index(3 + static_cast<int>(axis)) * stride;
      const Expression fixed = of_kernel * dilation + place - pad;
      const RegisterType real = in[0].reg.type;
      const Expression exact = in[0] + fixed.cast(real);
      return (exact * 2.0 + 1.0) / in[1].cast(real) - 1.0;
    });
    return reshape(node_, places, {images_, sizes_.mul(taps_, height_), width_, 1}, name + "/list");
  }

  ValueId grid() {
    const ValueId offsets =
        reshape(node_, node_.input(2), {images_, taps_, 2, height_, width_}, "offsets");
    const ValueId y = coordinates(offsets, 0, "y"), x = coordinates(offsets, 1, "x");
    return node_.layer(Concat{.axis = 3}, {x, y}, "grid");
  }

  ValueId masked(ValueId elements) {
    const ValueId mask =
        reshape(node_, node_.input(4), {images_, 1, sizes_.mul(taps_, height_), width_}, "mask");
    return pointwise(node_, "masked", {elements, mask}, dtype_,
                     [](Expressions in) { return in[0] * in[1]; });
  }

  Node& node_;
  SizeTable& sizes_;
  DataType dtype_ = DataType::kF32;
  Window window_;
  int64_t offset_groups_ = 1, taps_ = 1;
  Size images_, height_, width_;  // images: one for each offset group
};

Outputs import_deform_conv(Node& node) { return DeformConv(node).import(); }

constexpr OpRow kDeformRows[] = {
    {"", "DeformConv", 19, kLatest, import_deform_conv},
};

}  // namespace

std::span<const OpRow> deform_rows() { return kDeformRows; }

}  // namespace anneal
