// Images put together again, cropped and placed: MaxUnpool, Col2Im, CenterCropPad, AffineGrid.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "anneal/importer/onnx/tensor_data.h"
#include "anneal/importer/ops/expression.h"
#include "anneal/importer/ops/rows.h"
#include "anneal/importer/ops/window.h"

namespace anneal {
namespace {

constexpr int64_t kMaxIndices = 1 << 26;

// Zeros of a shape that an i64 vector holds.
ValueId zeros(Node& node, DataType dtype, ValueId shape) {
  const ValueId zero = node.constant_value(tensor_of(dtype, {}, {0}), "zero");
  return node.layer(Expand{}, {zero, shape}, "zeros");
}

ValueId flat(Node& node, int index, const char* suffix) {
  return reshape(node, node.input(index), {product(node.shape(index), node.sizes())}, suffix);
}

// Batch and channels are those of x, and the other axes have room for the windows.
void require_room(Node& node, ValueId given, const std::vector<Size>& least) {
  const ValueId wanted = node.sizes_value(least, "least_shape");
  std::vector<int64_t> are_exact(least.size());
  are_exact[0] = are_exact[1] = 1;
  const ValueId good =
      pointwise(node, "good_sizes", {given, wanted, node.integers_value(are_exact, "are_exact")},
                DataType::kI64, [](Expressions in) {
                  const Expression fits = !(in[0] < in[1]) && !(in[2] == 1 && in[1] < in[0]);
                  return fits.cast(RegisterType::kI64);
                });
  const ValueId all = node.layer(Reduce{.kind = ReduceKind::kMin, .keepdims = false},
                                 {good, node.integers_value({0}, "good_axis")}, "all_good");
  const ValueId holds =
      pointwise(node, "holds", {all}, DataType::kBool, [](Expressions in) { return in[0] == 1; });
  node.layer(Require{}, {holds, given, wanted}, "output_shape_has_room_for_x");
}

// Indices have the shape of x.
void require_shape_of_x(Node& node, int index, const std::string& check) {
  const Shape& x = node.shape(0);
  const Shape& shape = node.shape(index);
  if (shape.rank() != x.rank())
    node.invalid(fmt::format("{} axes, where x has {}", shape.rank(), x.rank()));
  if (std::ranges::equal(shape, x)) return;
  const ValueId wanted = node.sizes_value({x.begin(), x.end()}, check + "/wanted");
  const ValueId given = node.sizes_value({shape.begin(), shape.end()}, check + "/given");
  const ValueId same =
      pointwise(node, check + "/same", {given, wanted}, DataType::kI64,
                [](Expressions in) { return (in[0] == in[1]).cast(RegisterType::kI64); });
  const ValueId all = node.layer(Reduce{.kind = ReduceKind::kMin, .keepdims = false},
                                 {same, node.integers_value({0}, check + "/axis")}, check + "/all");
  const ValueId holds = pointwise(node, check + "/holds", {all}, DataType::kBool,
                                  [](Expressions in) { return in[0] == 1; });
  node.layer(Require{}, {holds, given, wanted}, check);
}

// Indices count the elements of the output, as those of MaxPool count the elements of its input.
Outputs import_max_unpool(Node& node) {
  node.expect_inputs(2, 3);
  const DataType dtype = node.dtype(0, kFloats);
  node.dtype(1, {DataType::kI64});
  const Window window = read_window(node);
  if (!window.open_begin.empty()) node.unsupported("auto_pad with a stride on an open size");
  SizeTable& sizes = node.sizes();
  const Shape& x = node.shape(0);
  require_shape_of_x(node, 1, "indices_have_shape_of_x");
  std::vector<Size> least = {x[0], x[1]};
  for (size_t i = 0; i < window.kernel.size(); ++i) {
    const Size steps = sizes.sub(x[static_cast<int>(i) + 2], 1);
    const int64_t beyond = window.kernel[i] - window.pads_begin[i] - window.pads_end[i];
    least.push_back(sizes.add(sizes.mul(steps, window.strides[i]), beyond));
  }
  ValueId shape;
  if (node.has_input(2)) {
    node.dtype(2, {DataType::kI64});
    if (node.rank(2) != 1) node.invalid("output_shape is no vector");
    shape = reshape(node, node.input(2), {Size(x.rank())}, "shape");
    require_room(node, shape, least);
  } else {
    shape = node.sizes_value(least, "shape");
  }
  const Reduce product{.kind = ReduceKind::kProd};
  const ValueId total =
      node.layer(product, {shape, node.integers_value({0}, "axis")}, "element_count");
  const ValueId scattered =
      node.layer(ScatterElements{},
                 {zeros(node, dtype, total), flat(node, 1, "flat_indices"), flat(node, 0, "flat")},
                 "scattered");
  return node.result(Reshape{.allow_zero = true}, {scattered, shape});
}

struct ImageBlocks {
  std::vector<int64_t> image, block, counts;  // per spatial axis; counts: blocks along it
  Window window;
  int64_t image_size = 1, block_size = 1, count = 1;
};

ImageBlocks read_blocks(Node& node) {
  ImageBlocks b;
  b.image = node.integers_of_input(1, "the image's shape");
  b.block = node.integers_of_input(2, "the block's shape");
  const size_t axes = b.image.size();
  if (b.block.size() != axes || axes == 0)
    node.invalid(fmt::format("an image of {} axes from blocks of {}", axes, b.block.size()));
  const auto numbers = [&](const char* name) {
    auto values = node.find_integers(name).value_or(std::vector<int64_t>(axes, 1));
    if (values.size() != axes)
      node.invalid(
          fmt::format("attribute \"{}\": {} values, {} expected", name, values.size(), axes));
    return values;
  };
  b.window.kernel = b.block;
  b.window.strides = numbers("strides");
  b.window.dilations = numbers("dilations");
  read_pads(node, b.window);
  const auto grow = [&](int64_t& product, int64_t factor) {
    if (__builtin_mul_overflow(product, factor, &product) || product > kMaxIndices)
      node.unsupported(fmt::format("an image of more than {} places", kMaxIndices));
  };
  for (size_t i = 0; i < axes; ++i) {
    const auto is_sane = [](int64_t value) { return value >= 0 && value <= kMaxIndices; };
    for (const int64_t value : {b.image[i], b.block[i], b.window.strides[i], b.window.dilations[i],
                                b.window.pads_begin[i], b.window.pads_end[i]})
      if (!is_sane(value)) node.invalid(fmt::format("a size of {}", value));
    if (b.block[i] < 1 || b.window.strides[i] < 1 || b.window.dilations[i] < 1)
      node.invalid("a block, stride or dilation of 0");
    const int64_t room = b.image[i] + b.window.pads_begin[i] + b.window.pads_end[i] -
                         b.window.dilations[i] * (b.block[i] - 1) - 1;
    if (room < 0) node.invalid("blocks larger than the padded image");
    b.counts.push_back(room / b.window.strides[i] + 1);
    grow(b.image_size, b.image[i]);
    grow(b.block_size, b.block[i]);
    grow(b.count, b.counts.back());
  }
  int64_t places = b.block_size;
  grow(places, b.count);
  return b;
}

// Where each element of each block goes in the image; image_size: into the padding.
std::vector<int64_t> places_of(const ImageBlocks& b) {
  std::vector<int64_t> places;
  places.reserve(static_cast<size_t>(b.block_size * b.count));
  for (int64_t element = 0; element < b.block_size; ++element) {
    for (int64_t block = 0; block < b.count; ++block) {
      int64_t place = 0, scale = 1, e = element, n = block;
      bool inside = true;
      for (size_t i = b.image.size(); i-- > 0;) {
        const int64_t at = n % b.counts[i] * b.window.strides[i] - b.window.pads_begin[i] +
                           e % b.block[i] * b.window.dilations[i];
        inside = inside && at >= 0 && at < b.image[i];
        place += at * scale;
        scale *= b.image[i], n /= b.counts[i], e /= b.block[i];
      }
      places.push_back(inside ? place : b.image_size);
    }
  }
  return places;
}

// Rows of an image's places, to which blocks are added.
Outputs import_col2im(Node& node) {
  node.expect_inputs(3, 3);
  const DataType dtype = node.dtype(0, kNumbers);
  if (node.rank(0) != 3) node.invalid("input 0 has not 3 axes");
  const ImageBlocks b = read_blocks(node);
  SizeTable& sizes = node.sizes();
  const Shape& x = node.shape(0);
  if ((x[1].known() && x[1].value() % b.block_size != 0) ||
      (x[2].known() && x[2].value() != b.count))
    node.invalid(
        fmt::format("{} is not made of {} blocks of {}", sizes.text(x), b.count, b.block_size));
  const Size channels = sizes.floor_div(x[1], b.block_size);
  const Size images = sizes.mul(x[0], channels);
  const int64_t elements = b.block_size * b.count;
  const ValueId updates =
      node.layer(Transpose{{1, 0}},
                 {reshape(node, node.input(0), {images, Size(elements)}, "rows")}, "updates");
  const ValueId indices = node.constant_value(
      Tensor::of<int64_t>(DataType::kI64, {elements, 1}, places_of(b)), "places");
  const ValueId image =
      zeros(node, dtype, node.sizes_value({Size(b.image_size + 1), images}, "places_shape"));
  const ValueId sums =
      node.layer(ScatterND{.reduction = ScatterReduction::kAdd}, {image, indices, updates}, "sums");
  const ValueId inside = slice_of(node, sums, 0, 0, b.image_size, "inside");
  std::vector<Size> shape = {x[0], channels};
  shape.insert(shape.end(), b.image.begin(), b.image.end());
  return node.result(
      Reshape{.allow_zero = true},
      {node.layer(Transpose{{1, 0}}, {inside}, "images"), node.sizes_value(shape, "shape")});
}

// Half the missing elements of each axis on either side, negative ones where there are too many;
// the odd one is at the end. i64[axes], twice: [0] at the begin, [1] at the end.
std::array<ValueId, 2> centering_pads(Node& node, const std::vector<int64_t>& axes) {
  const int rank = node.rank(0);
  const auto wanted = node.contents(1);
  if (wanted && std::ranges::none_of(*wanted, [](Size size) { return size.is_unknown(); })) {
    SizeTable& sizes = node.sizes();
    std::vector<Size> begins, ends;
    for (size_t i = 0; i < axes.size(); ++i) {
      const Size dim = node.shape(0)[static_cast<int>(axes[i])];
      const Size missing = sizes.sub((*wanted)[i], dim);
      const Size added = sizes.floor_div(sizes.max(missing, 0), 2);
      const Size cropped = sizes.floor_div(sizes.max(sizes.sub(dim, (*wanted)[i]), 0), 2);
      begins.push_back(sizes.sub(added, cropped));
      ends.push_back(sizes.sub(missing, begins.back()));
    }
    return {node.sizes_value(begins, "begins"), node.sizes_value(ends, "ends")};
  }
  const ValueId dims = node.layer(ShapeOf{.start = 0, .end = rank}, {node.input(0)}, "dims");
  const ValueId sizes =
      node.layer(Gather{.axis = 0}, {dims, node.integers_value(axes, "axes")}, "sizes");
  const std::vector<ValueId> both = {as_i64(node, node.input(1), "wanted"), sizes};
  const ValueId begins = pointwise(node, "begins", both, DataType::kI64,
                                   [](Expressions in) { return (in[0] - in[1]) / 2; });
  const ValueId ends = pointwise(node, "ends", both, DataType::kI64, [](Expressions in) {
    const Expression missing = in[0] - in[1];
    return missing - missing / 2;
  });
  return {begins, ends};
}

// A Pad; negative pads crop.
Outputs import_center_crop_pad(Node& node) {
  node.expect_inputs(2, 2);
  node.dtype(0, kNumbersAndBooleans);
  node.dtype(1, kIndices);
  const int rank = node.rank(0);
  std::vector<int64_t> all(static_cast<size_t>(rank));
  std::iota(all.begin(), all.end(), 0);
  std::vector<int64_t> axes = node.find_integers("axes").value_or(all);
  node.resolve_axes(axes, rank);
  for (int64_t& axis : axes) axis = node.resolve_axis(axis, rank);
  const auto count = static_cast<int64_t>(axes.size());
  const Shape& wanted = node.shape(1);
  if (wanted.rank() != 1 || (wanted[0].known() && wanted[0].value() != count))
    node.invalid(fmt::format("a shape for {} axes is expected", count));
  const auto [begins, ends] = centering_pads(node, axes);
  const ValueId parts = node.layer(
      Concat{.axis = 0}, {begins, ends, node.integers_value({0}, "none")}, "pads_of_axes");
  std::vector<int64_t> places(static_cast<size_t>(2 * rank), 2 * count);
  for (int64_t i = 0; i < count; ++i) {
    places[static_cast<size_t>(axes[static_cast<size_t>(i)])] = i;
    places[static_cast<size_t>(axes[static_cast<size_t>(i)] + rank)] = count + i;
  }
  const ValueId pads =
      node.layer(Gather{.axis = 0}, {parts, node.integers_value(places, "places")}, "pads");
  return node.result(Pad{}, {node.input(0), pads});
}

// grid[n, at..., c] = sum over j of theta[n, c, j] * coordinate j of `at`, x first, and 1 for the
// last j.
Outputs import_affine_grid(Node& node) {
  node.expect_inputs(2, 2);
  const DataType dtype = node.dtype(0, kFloats);
  node.dtype(1, {DataType::kI64});
  const bool align_corners = node.flag("align_corners", false);
  const Shape& theta = node.shape(0);
  if (theta.rank() != 3 || !theta[1].known() || !theta[2].known() || theta[1].value() < 2 ||
      theta[1].value() > 3 || theta[2].value() != theta[1].value() + 1)
    node.invalid("input 0 is not [N,2,3] or [N,3,4]");
  const int64_t axes = theta[1].value();
  const Shape& size = node.shape(1);
  if (size.rank() != 1 || (size[0].known() && size[0].value() != axes + 2))
    node.invalid(fmt::format("the size has not {} elements", axes + 2));

  std::vector<ValueId> inputs, counts;
  for (int64_t j = 0; j <= axes; ++j) {
    const std::string suffix = fmt::format("theta{}", j);
    const ValueId column = slice_of(node, node.input(0), 2, j, j + 1, suffix);
    std::vector<Size> shape(static_cast<size_t>(axes), Size(1));
    shape.insert(shape.begin(), theta[0]);
    shape.emplace_back(axes);
    inputs.push_back(reshape(node, column, shape, suffix + "/column"));
  }
  for (int64_t j = 0; j < axes; ++j) {
    const std::string suffix = fmt::format("axis{}", j);
    const ValueId count = node.layer(
        Gather{.axis = 0}, {node.input(1), scalar_value(node, axes + 1 - j, suffix + "/index")},
        suffix + "/size");
    const ValueId range = node.layer(
        Range{},
        {scalar_value(node, 0, suffix + "/zero"), count, scalar_value(node, 1, suffix + "/one")},
        suffix);
    std::vector<Size> shape(static_cast<size_t>(j + 2), Size(1));
    shape[0] = node.graph().value(range).type().shape[0];
    inputs.push_back(reshape(node, range, shape, suffix + "/positions"));
    counts.push_back(count);
  }
  inputs.insert(inputs.end(), counts.begin(), counts.end());
  return pointwise_result(node, inputs, dtype, [&](Expressions raw) {
    std::vector<Expression> in;
    for (const Expression& each : raw) in.push_back(each.cast(RegisterType::kF64));
    const auto first = static_cast<size_t>(axes) + 1;
    Expression sum = in[static_cast<size_t>(axes)];
    for (size_t j = 0; j < static_cast<size_t>(axes); ++j) {
      const Expression at = in[first + j], count = in[first + static_cast<size_t>(axes) + j];
      const Expression aligned = select(count == 1, count.number(0), at * 2 / (count - 1) - 1);
      sum = sum + in[j] * (align_corners ? aligned : (at * 2 + 1) / count - 1);
    }
    return sum;
  });
}

constexpr OpRow kImageRows[] = {
    {"", "AffineGrid", 20, kLatest, import_affine_grid},
    {"", "CenterCropPad", 18, kLatest, import_center_crop_pad},
    {"", "Col2Im", 18, kLatest, import_col2im},
    {"", "MaxUnpool", 9, kLatest, import_max_unpool},
};

}  // namespace

std::span<const OpRow> image_rows() { return kImageRows; }

}  // namespace anneal
