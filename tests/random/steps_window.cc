// Windows over pictures and signals: convolutions, pools, and other sizes of pictures.
#include <cmath>

#include "anneal/tests/random/steps.h"

namespace anneal::random_graphs {
namespace {

std::optional<Value> choose_picture(Maker& maker, bool constant_channels) {
  return maker.choose([&](const Value& v) {
    return v.is_float() && v.rank() >= 3 && v.rank() <= 4 &&
           (!constant_channels || v.dims[1].constant());
  });
}

// A window over each axis from 2 on, and what it makes of the sizes.
struct Window {
  std::vector<int64_t> kernel, strides, dilations, pads;
  std::string auto_pad;
  bool ceil_mode = false;
  Extents sizes;
};

std::optional<Window> draw_window(Maker& maker, const Value& x, bool pool) {
  RandomNumbers& random = maker.random();
  Window window;
  const auto axes = static_cast<size_t>(x.rank()) - 2;
  if (random.one_in(5)) window.auto_pad = random.one_of({"SAME_UPPER", "SAME_LOWER", "VALID"});
  window.ceil_mode = pool && random.one_in(5);
  std::vector<int64_t> after;
  for (size_t i = 0; i < axes; ++i) {
    const Extent size = x.dims[i + 2];
    const int64_t kernel = random.one_of({1, 2, 3, 3, 3, 4});
    const int64_t stride = random.one_of({1, 1, 2, 3}), dilation = random.one_in(5) ? 2 : 1;
    const int64_t reach = (kernel - 1) * dilation + 1;
    int64_t before = 0, behind = 0;
    Extent result;
    if (window.auto_pad.starts_with("SAME")) {
      if (dilation > 1 || stride > std::min(kernel, size.least())) return std::nullopt;
      result = (size + (stride - 1)) / stride;
    } else {
      if (window.auto_pad.empty() && random.one_in(2)) {
        before = random.between(0, std::min<int64_t>(2, (kernel - 1)));
        behind = random.one_in(3) ? random.between(0, kernel - 1) : before;
      }
      const Extent free = size + (before + behind - reach);
      if (free.least() < 0) return std::nullopt;
      result = (window.ceil_mode ? (free + (stride - 1)) / stride : free / stride) + 1;
      // The last window would begin in the padding.
      if (window.ceil_mode)
        for (size_t b = 0; b < kBindings; ++b)
          if ((result.in[b] - 1) * stride >= size.in[b] + before) --result.in[b];
    }
    window.kernel.push_back(kernel);
    window.strides.push_back(stride);
    window.dilations.push_back(dilation);
    window.pads.push_back(before);
    after.push_back(behind);
    window.sizes.push_back(result);
  }
  window.pads.insert(window.pads.end(), after.begin(), after.end());
  return window;
}

void write(anneal_onnx::NodeProto& node, const Window& window, bool dilations) {
  set(node, "kernel_shape", window.kernel);
  set(node, "strides", window.strides);
  if (dilations) set(node, "dilations", window.dilations);
  if (window.auto_pad.empty())
    set(node, "pads", window.pads);
  else
    set(node, "auto_pad", window.auto_pad);
}

Extents with_sizes(const Value& x, const Extent& channels, const Extents& sizes) {
  Extents dims = {x.dims[0], channels};
  dims.insert(dims.end(), sizes.begin(), sizes.end());
  return dims;
}

bool conv(Maker& maker) {
  RandomNumbers& random = maker.random();
  const auto x = choose_picture(maker, true);
  if (!x) return false;
  const auto window = draw_window(maker, *x, false);
  if (!window) return false;
  const int64_t channels = x->dims[1].in[0];
  const int64_t groups = random.one_in(3)                        ? channels
                         : channels % 2 == 0 && random.one_in(3) ? 2
                                                                 : 1;
  const int64_t filters = groups * random.one_of({1, 2, 2, 4});
  Extents weights = {filters, channels / groups};
  for (const int64_t size : window->kernel) weights.push_back(size);
  const Value w = float_constant(maker, weights, -1, 1, random.one_in(2));
  std::vector<Value> inputs = {*x, w};
  const double terms = static_cast<double>(product(weights).in[0] / filters);
  double bound = x->largest() * terms;
  if (random.one_in(2)) {
    inputs.push_back(float_constant(maker, {filters}, -1, 1, true));
    bound += 1;
  }
  Value result{.dims = with_sizes(*x, filters, window->sizes), .low = -bound, .high = bound};
  if (!is_small(result.dims)) return false;
  // Fast algorithms for windows of 3 round.
  const bool fast = std::ranges::all_of(window->kernel, [](int64_t size) { return size == 3; });
  if (x->exact() && w.exact() && !fast)
    result.grid = exact_grid(std::max(2, x->grid + w.grid), bound);
  maker.apply("Conv", inputs, result, [&](auto& node) {
    write(node, *window, true);
    set(node, "group", groups);
  });
  return true;
}

bool conv_transpose(Maker& maker) {
  RandomNumbers& random = maker.random();
  const auto x = choose_picture(maker, true);
  if (!x) return false;
  const int64_t channels = x->dims[1].in[0], filters = random.between(1, 3);
  Extents weights = {channels, filters}, sizes;
  std::vector<int64_t> kernel, strides, pads;
  for (size_t i = 2; i < x->dims.size(); ++i) {
    kernel.push_back(random.between(1, 3));
    strides.push_back(random.between(1, 2));
    pads.push_back(kernel.back() == 3 && random.one_in(2) ? 1 : 0);
    weights.push_back(kernel.back());
    sizes.push_back((x->dims[i] - 1) * strides.back() + (kernel.back() - 2 * pads.back()));
  }
  pads.insert(pads.end(), pads.begin(), pads.end());
  const Value w = float_constant(maker, weights, -1, 1, false);
  const double bound = x->largest() * static_cast<double>(product(weights).in[0] / filters);
  const Value result{.dims = with_sizes(*x, filters, sizes), .low = -bound, .high = bound};
  if (!is_small(result.dims)) return false;
  maker.apply("ConvTranspose", {*x, w}, result, [&](auto& node) {
    set(node, "kernel_shape", kernel);
    set(node, "strides", strides);
    set(node, "pads", pads);
  });
  return true;
}

bool pool(Maker& maker) {
  RandomNumbers& random = maker.random();
  const auto x = choose_picture(maker, false);
  if (!x) return false;
  const auto window = draw_window(maker, *x, true);
  if (!window) return false;
  // A window of padding alone has no mean, and its maximum is in dispute.
  for (size_t i = 0; i < window->kernel.size(); ++i)
    if (window->pads[i] >= window->kernel[i] ||
        window->pads[i + window->kernel.size()] >= window->kernel[i])
      return false;
  for (size_t i = 0; i < window->pads.size(); ++i)
    if (window->pads[i] > 0 && window->dilations[i % window->dilations.size()] > 1) return false;
  Value result = *x;
  result.contents.reset();
  result.dims = with_sizes(*x, x->dims[1], window->sizes);
  if (!is_small(result.dims)) return false;
  const char* op = random.one_of({"MaxPool", "MaxPool", "AveragePool", "LpPool"});
  const bool lp = op[0] == 'L';
  if ((lp || op[0] == 'A') && maker.opset() < 19 &&
      std::ranges::any_of(window->dilations, [](int64_t d) { return d > 1; }))
    return false;
  if (lp && (window->ceil_mode || !window->auto_pad.empty())) return false;
  if (op[0] == 'A') result.grid = -1;
  if (lp) {
    if (x->low < 0.1) return false;  // the root of a sum near 0 is not smooth
    result = {.dims = result.dims, .low = 0, .high = x->largest() * 4};
  }
  maker.apply(op, {*x}, result, [&](auto& node) {
    write(node, *window, op[0] == 'M' || maker.opset() >= 19);
    if (window->ceil_mode) set(node, "ceil_mode", int64_t{1});
    if (op[0] == 'A' && !window->ceil_mode && random.one_in(2))
      set(node, "count_include_pad", int64_t{1});
  });
  return true;
}

bool global_pool(Maker& maker) {
  const auto x = choose_picture(maker, false);
  if (!x) return false;
  Value result = *x;
  result.contents.reset();
  for (size_t i = 2; i < result.dims.size(); ++i) result.dims[i] = 1;
  const char* op = maker.random().one_of({"GlobalAveragePool", "GlobalMaxPool"});
  if (op[6] == 'A') result.grid = -1;
  maker.apply(op, {*x}, result);
  return true;
}

bool resize(Maker& maker) {
  RandomNumbers& random = maker.random();
  const auto x = maker.choose([](const Value& v) { return v.is_float() && v.rank() == 4; });
  if (!x) return false;
  const std::string mode = random.one_of({"nearest", "nearest", "linear"});
  const std::string transform = random.one_of({"asymmetric", "half_pixel"});
  Value result = *x;
  result.contents.reset();
  if (mode == "linear") result.grid = -1;
  std::vector<Value> inputs = {*x, {}, {}};
  if (random.one_in(2)) {
    const bool half = random.one_in(3);
    for (size_t i = 2; i < 4; ++i) result.dims[i] = half ? x->dims[i] / 2 : x->dims[i] * 2;
    if (!is_small(result.dims)) return false;
    anneal_onnx::TensorProto scales;
    scales.set_data_type(onnx::FLOAT);
    scales.add_dims(4);
    for (const float scale : {1.f, 1.f, half ? .5f : 2.f, half ? .5f : 2.f})
      scales.add_float_data(scale);
    inputs[2] = maker.constant(scales, {.dims = {4}, .high = 2, .grid = 1});
  } else {
    // To twice the size, or to that of another picture.
    const auto other = maker.choose([](const Value& v) { return v.is_float() && v.rank() == 4; });
    for (size_t i = 2; i < 4; ++i)
      result.dims[i] =
          other && random.one_in(2) ? other->dims[i] : x->dims[i] * random.between(1, 2);
    if (!is_small(result.dims)) return false;
    // Other scales hit pixels' borders, where rounding decides.
    for (size_t i = 2; i < 4; ++i)
      if (!divides(x->dims[i], result.dims[i])) return false;
    const auto sizes = size_vector(maker, result.dims);
    if (!sizes) return false;
    inputs.push_back(*sizes);
  }
  maker.apply("Resize", inputs, result, [&](auto& node) {
    set(node, "mode", mode);
    set(node, "coordinate_transformation_mode", transform);
    if (mode == "nearest") set(node, "nearest_mode", std::string("floor"));
  });
  return true;
}

bool grid_sample(Maker& maker) {
  RandomNumbers& random = maker.random();
  const auto x = maker.choose(
      [](const Value& v) { return v.is_float() && v.rank() == 4 && v.dims[0].constant(); });
  if (!x) return false;
  const int64_t rows = random.between(1, 3), columns = random.between(1, 4);
  const Value grid = float_constant(maker, {x->dims[0], rows, columns, 2}, -1.1, 1.1, false);
  Value result{.dims = {x->dims[0], x->dims[1], rows, columns},
               .low = std::min(0., x->low),
               .high = std::max(0., x->high)};
  maker.apply("GridSample", {*x, grid}, result, [&](auto& node) {
    set(node, "mode", std::string(maker.opset() >= 20 ? "linear" : "bilinear"));
    set(node, "padding_mode", std::string(random.one_of({"zeros", "border"})));
    set(node, "align_corners", int64_t{random.one_in(2)});
  });
  return true;
}

constexpr Step kSteps[] = {
    {"conv", conv, 8},     {"conv_transpose", conv_transpose, 2},
    {"pool", pool, 4},     {"global_pool", global_pool, 2},
    {"resize", resize, 3}, {"grid_sample", grid_sample, 1},
};

}  // namespace

std::span<const Step> window_steps() { return kSteps; }

}  // namespace anneal::random_graphs
