// What moves elements: axes in other orders, parts, and parts put together.
#include <cmath>

#include "anneal/tests/random/steps.h"

namespace anneal::random_graphs {
namespace {

bool movable(const Value& value) {
  return value.type == onnx::FLOAT || value.type == onnx::INT64 || value.type == onnx::INT32 ||
         value.type == onnx::BOOL;
}
std::optional<Value> choose_with_axes(Maker& maker, int axes) {
  return maker.choose([&](const Value& v) {
    return movable(v) && (v.is_float() || hash_of(v.name) % 8 == 0) && v.rank() >= axes;
  });
}
// The same elements with other dims.
Value moved(const Value& x, const Extents& dims) {
  Value result = x;
  result.dims = dims;
  result.contents.reset();
  return result;
}
int any_axis(Maker& maker, const Value& x) {
  return static_cast<int>(maker.random().below(x.rank()));
}
// As a file may write it.
int64_t written(Maker& maker, int axis, int rank) {
  return maker.random().one_in(3) ? axis - rank : axis;
}

bool transpose(Maker& maker) {
  const auto x = choose_with_axes(maker, 2);
  if (!x) return false;
  std::vector<int64_t> order(static_cast<size_t>(x->rank()));
  std::iota(order.begin(), order.end(), 0);
  for (size_t i = order.size(); i > 1; --i)
    std::swap(order[i - 1],
              order[static_cast<size_t>(maker.random().below(static_cast<int64_t>(i)))]);
  Extents dims;
  for (const int64_t axis : order) dims.push_back(x->dims[static_cast<size_t>(axis)]);
  maker.apply("Transpose", {*x}, moved(*x, dims), [&](auto& node) { set(node, "perm", order); });
  return true;
}

// Other dims of as many elements: neighbours joined, or one split by a constant.
Extents reshaped_dims(Maker& maker, const Extents& from) {
  RandomNumbers& random = maker.random();
  Extents dims = from;
  for (int64_t changes = random.between(1, 3); changes > 0; --changes) {
    const auto at = static_cast<size_t>(random.below(static_cast<int64_t>(dims.size()) + 1));
    if (at + 1 < dims.size() && random.one_in(2)) {
      dims[at] = dims[at] * dims[at + 1];
      dims.erase(dims.begin() + static_cast<int64_t>(at) + 1);
    } else if (at < dims.size()) {
      const Extent factor = random.one_of<int64_t>({2, 2, 3, 4});
      if (!divides(factor, dims[at])) continue;
      const Extent rest = dims[at] / factor;
      const bool first = random.one_in(2);
      dims[at] = first ? factor : rest;
      dims.insert(dims.begin() + static_cast<int64_t>(at) + 1, first ? rest : factor);
    } else if (random.one_in(4)) {
      dims.insert(dims.begin() + random.below(static_cast<int64_t>(dims.size()) + 1), Extent(1));
    }
  }
  return dims;
}

bool reshape(Maker& maker) {
  const auto x = choose_with_axes(maker, 1);
  if (!x) return false;
  const Extents dims = reshaped_dims(maker, x->dims);
  if (dims.size() > 5) return false;
  RandomNumbers& random = maker.random();
  // One size may be -1, and a size that stays in its place 0.
  Extents written = dims;
  int open = 0;
  for (const Extent& dim : dims) open += !dim.constant();
  const bool infer = random.one_in(2) && !dims.empty();
  size_t inferred =
      static_cast<size_t>(random.below(std::max<int64_t>(1, static_cast<int64_t>(dims.size()))));
  if (infer) {
    if (open == 1)
      for (size_t i = 0; i < dims.size(); ++i)
        if (!dims[i].constant()) inferred = i;
    written[inferred] = -1;
  }
  for (size_t i = 0; i < dims.size() && i < x->dims.size(); ++i)
    if (dims[i] == x->dims[i] && written[i] != Extent(-1) && random.one_in(4)) written[i] = 0;
  const auto shape = size_vector(maker, written);
  if (!shape) return false;
  maker.apply("Reshape", {*x, *shape}, moved(*x, dims));
  return true;
}

bool flatten(Maker& maker) {
  const auto x = choose_with_axes(maker, 1);
  if (!x) return false;
  const int64_t axis = maker.random().between(0, x->rank());
  const auto middle = x->dims.begin() + axis;
  maker.apply("Flatten", {*x},
              moved(*x, {product({x->dims.begin(), middle}), product({middle, x->dims.end()})}),
              [&](auto& node) { set(node, "axis", axis); });
  return true;
}

bool squeeze(Maker& maker) {
  const auto x = maker.choose([](const Value& v) {
    return movable(v) && std::ranges::any_of(v.dims, [](const Extent& dim) { return dim.is(1); });
  });
  if (!x) return false;
  Extents dims;
  std::vector<int64_t> axes;
  for (int i = 0; i < x->rank(); ++i) {
    if (x->dims[static_cast<size_t>(i)].is(1) && (axes.empty() || maker.random().one_in(2)))
      axes.push_back(written(maker, i, x->rank()));
    else
      dims.push_back(x->dims[static_cast<size_t>(i)]);
  }
  maker.apply("Squeeze", {*x, integer_constant(maker, axes)}, moved(*x, dims));
  return true;
}

bool unsqueeze(Maker& maker) {
  const auto x = maker.choose([](const Value& v) { return movable(v) && v.rank() < 4; });
  if (!x) return false;
  const int axis = static_cast<int>(maker.random().between(0, x->rank()));
  Extents dims = x->dims;
  dims.insert(dims.begin() + axis, Extent(1));
  maker.apply("Unsqueeze", {*x, integer_constant(maker, {written(maker, axis, x->rank() + 1)})},
              moved(*x, dims));
  return true;
}

bool concat(Maker& maker) {
  const auto x = choose_with_axes(maker, 1);
  if (!x) return false;
  RandomNumbers& random = maker.random();
  const int axis = any_axis(maker, *x);
  const auto at = static_cast<size_t>(axis);
  std::vector<Value> parts = {*x};
  Value result = moved(*x, x->dims);
  for (int64_t more = random.between(1, 2); more > 0; --more) {
    const auto y = maker.choose([&](const Value& v) {
      if (v.type != x->type || v.rank() != x->rank()) return false;
      for (size_t i = 0; i < v.dims.size(); ++i)
        if (i != at && v.dims[i] != x->dims[i]) return false;
      return true;
    });
    Value part = y ? *y : *x;
    const bool constant = std::ranges::all_of(
        x->dims, [&](const Extent& d) { return d.constant() || &d == &x->dims[at]; });
    if (constant && x->is_float() && random.one_in(3)) {
      Extents dims = x->dims;
      dims[at] = random.between(1, 2);
      part = float_constant(maker, dims, -2, 2, true);
    }
    parts.insert(random.one_in(2) ? parts.begin() : parts.end(), part);
    result.dims[at] = result.dims[at] + part.dims[at];
    result.low = std::min(result.low, part.low);
    result.high = std::max(result.high, part.high);
    result.grid = result.exact() && part.exact() ? std::max(result.grid, part.grid) : -1;
  }
  if (!is_small(result.dims)) return false;
  const int64_t at_written = written(maker, axis, x->rank());
  maker.apply("Concat", parts, result, [&](auto& node) { set(node, "axis", at_written); });
  return true;
}

bool split(Maker& maker) {
  const auto x = choose_with_axes(maker, 1);
  if (!x) return false;
  RandomNumbers& random = maker.random();
  const int axis = any_axis(maker, *x);
  const Extent size = x->dims[static_cast<size_t>(axis)];
  const int64_t parts = random.between(2, 3);
  Value part = moved(*x, x->dims);
  const auto attributes = [&](auto& node) { set(node, "axis", int64_t{axis}); };
  std::vector<Value> results;
  const auto add_part = [&](const Extent& extent) {
    part.dims[static_cast<size_t>(axis)] = extent;
    results.push_back(part);
  };
  if (divides(parts, size) && random.one_in(2)) {
    for (int64_t i = 0; i < parts; ++i) add_part(size / parts);
    maker.apply_all("Split", {*x}, results, [&](auto& node) {
      attributes(node);
      if (maker.opset() >= 18) set(node, "num_outputs", parts);
    });
    return true;
  }
  // A constant part, and the rest.
  if (size.least() < 2) return false;
  const Extent first = random.between(1, size.least() - 1);
  const Extents extents = {first, size - first};
  const auto sizes = size_vector(maker, extents);
  if (!sizes) return false;
  for (const Extent& extent : extents) add_part(extent);
  maker.apply_all("Split", {*x, *sizes}, results, attributes);
  return true;
}

bool slice(Maker& maker) {
  const auto x = choose_with_axes(maker, 1);
  if (!x) return false;
  RandomNumbers& random = maker.random();
  const int axis = any_axis(maker, *x);
  const Extent size = x->dims[static_cast<size_t>(axis)];
  Extent start = 0, end = size, step = 1, extent = size;
  std::optional<Value> starts, ends;
  switch (random.below(6)) {
    case 0:  // without the first
      if (size.least() < 2) return false;
      start = 1;
      extent = size - 1;
      end = 1 << 30;
      break;
    case 1:  // without the last
      if (size.least() < 2) return false;
      end = -1;
      extent = size - 1;
      break;
    case 2:  // the first few
      end = extent = random.between(1, size.least());
      break;
    case 3:  // backwards
      start = -1;
      end = -(int64_t{1} << 40);
      step = -1;
      break;
    case 4:  // each second
      step = 2;
      extent = (size + 1) / 2;
      end = random.one_in(2) ? Extent(INT64_MAX) : size;
      break;
    default:  // the first half
      if (size.least() < 2) return false;
      end = extent = size / 2;
  }
  starts = size_vector(maker, {start});
  ends = size_vector(maker, {end});
  if (!starts || !ends) return false;
  Extents dims = x->dims;
  dims[static_cast<size_t>(axis)] = extent;
  std::vector<Value> inputs = {*x, *starts, *ends,
                               integer_constant(maker, {written(maker, axis, x->rank())})};
  if (!step.is(1)) inputs.push_back(*size_vector(maker, {step}));
  maker.apply("Slice", inputs, moved(*x, dims));
  return true;
}

bool pad(Maker& maker) {
  const auto x =
      maker.choose([](const Value& v) { return v.is_float() && v.rank() >= 1 && v.rank() <= 4; });
  if (!x) return false;
  RandomNumbers& random = maker.random();
  const std::string mode = random.one_of({"constant", "constant", "edge", "reflect", "wrap"});
  if (mode == "wrap" && maker.opset() < 19) return false;
  const auto rank = static_cast<size_t>(x->rank());
  Extents pads(2 * rank, 0), dims = x->dims;
  bool some = false;
  for (size_t i = 0; i < rank; ++i) {
    for (const size_t side : {i, rank + i}) {
      if (!random.one_in(3)) continue;
      int64_t amount = random.between(1, 2);
      if (mode == "reflect") amount = std::min(amount, dims[i].least() - 1);
      if (mode == "wrap") amount = std::min(amount, dims[i].least());
      if (mode != "constant" && x->dims[i].least() <= amount) amount = 0;
      if (mode == "constant" && random.one_in(6) && x->dims[i].least() >= 4) amount = -1;
      pads[side] = amount;
    }
    dims[i] = x->dims[i] + pads[i] + pads[rank + i];
    some = some || dims[i] != x->dims[i];
  }
  // Up to a constant size, or as long again.
  const Extent last = dims.back();
  if (mode == "constant" && random.one_in(3) && pads[rank - 1].is(0) && pads.back().is(0)) {
    pads.back() = random.one_in(2) ? last : Extent(last.largest() + 1) - last;
    dims.back() = last + pads.back();
    some = true;
  }
  if (!some || !is_small(dims)) return false;
  const auto amounts = size_vector(maker, pads);
  if (!amounts) return false;
  Value result = moved(*x, dims);
  std::vector<Value> inputs = {*x, *amounts};
  if (mode == "constant") {
    const double fill = random.one_of({0., 0., .5, -1.});
    if (fill != 0) inputs.push_back(number_constant(maker, fill));
    result.low = std::min(result.low, fill);
    result.high = std::max(result.high, fill);
    result.grid = x->exact() ? std::max(x->grid, 1) : -1;
  }
  maker.apply("Pad", inputs, result, [&](auto& node) { set(node, "mode", mode); });
  return true;
}

bool tile(Maker& maker) {
  const auto x = choose_with_axes(maker, 1);
  if (!x) return false;
  Extents repeats, dims;
  for (const Extent& dim : x->dims) {
    const int64_t times = maker.random().one_of({1, 1, 2, 3});
    repeats.push_back(times);
    if (dim.is(1) && maker.random().one_in(3)) {
      // As often as another value's size says.
      const auto other = maker.choose([](const Value& v) { return v.rank() > 0; });
      if (other) repeats.back() = other->dims[0];
    }
    dims.push_back(dim * repeats.back());
  }
  if (!is_small(dims)) return false;
  const auto times = size_vector(maker, repeats);
  if (!times) return false;
  maker.apply("Tile", {*x, *times}, moved(*x, dims));
  return true;
}

bool expand(Maker& maker) {
  const auto x = maker.choose([](const Value& v) { return movable(v) && v.rank() <= 3; });
  if (!x) return false;
  RandomNumbers& random = maker.random();
  Extents shape;
  const auto like = maker.choose([&](const Value& v) {
    const auto dims = broadcast(x->dims, v.dims);
    return v.rank() > 0 && dims && *dims != x->dims && is_small(*dims);
  });
  if (like && !random.one_in(3)) {
    const Value dims = maker.apply("Shape", {*like},
                                   {.type = onnx::INT64,
                                    .dims = {like->rank()},
                                    .high = 1e4,
                                    .grid = 0,
                                    .contents = like->dims});
    maker.apply("Expand", {*x, dims}, moved(*x, *broadcast(x->dims, like->dims)));
    return true;
  }
  for (const Extent& dim : x->dims) {
    const auto other = maker.choose([](const Value& v) { return v.rank() > 0; });
    shape.push_back(dim.is(1) && other ? other->dims.back() : random.one_in(2) ? Extent(1) : dim);
  }
  if (random.one_in(2)) shape.insert(shape.begin(), Extent(2));
  const auto dims = broadcast(x->dims, shape);
  if (!dims || !is_small(*dims)) return false;
  const auto sizes = size_vector(maker, shape);
  if (!sizes) return false;
  maker.apply("Expand", {*x, *sizes}, moved(*x, *dims));
  return true;
}

bool blocks(Maker& maker) {
  const auto x = maker.choose([](const Value& v) { return v.is_float() && v.rank() == 4; });
  if (!x) return false;
  Extents dims = x->dims;
  const Extent two = 2, four = 4;
  if (divides(four, dims[1])) {
    dims = {dims[0], dims[1] / four, dims[2] * two, dims[3] * two};
    const bool crd = maker.random().one_in(2);
    maker.apply("DepthToSpace", {*x}, moved(*x, dims), [&](auto& node) {
      set(node, "blocksize", int64_t{2});
      set(node, "mode", std::string(crd ? "CRD" : "DCR"));
    });
    return true;
  }
  if (!divides(two, dims[2]) || !divides(two, dims[3])) return false;
  dims = {dims[0], dims[1] * four, dims[2] / two, dims[3] / two};
  maker.apply("SpaceToDepth", {*x}, moved(*x, dims),
              [&](auto& node) { set(node, "blocksize", int64_t{2}); });
  return true;
}

bool triangle(Maker& maker) {
  const auto x = choose_with_axes(maker, 2);
  if (!x || x->type == onnx::INT32) return false;
  Value result = moved(*x, x->dims);
  result.low = std::min(result.low, 0.);
  result.high = std::max(result.high, 0.);
  const bool upper = maker.random().one_in(2);
  std::vector<Value> inputs = {*x};
  if (maker.random().one_in(2))
    inputs.push_back(scalar_constant(maker, maker.random().between(-1, 1)));
  maker.apply("Trilu", inputs, result, [&](auto& node) { set(node, "upper", int64_t{upper}); });
  return true;
}

bool center_crop_pad(Maker& maker) {
  const auto x = maker.choose([](const Value& v) { return v.is_float() && v.rank() >= 2; });
  if (!x || maker.opset() < 18) return false;
  const Extent wanted = maker.random().between(2, 6);
  Extents dims = x->dims;
  const int axis = any_axis(maker, *x);
  dims[static_cast<size_t>(axis)] = wanted;
  if (!is_small(dims)) return false;
  Value result = moved(*x, dims);
  result.low = std::min(result.low, 0.);
  result.high = std::max(result.high, 0.);
  maker.apply("CenterCropPad", {*x, integer_constant(maker, {wanted.in[0]})}, result,
              [&](auto& node) { set(node, "axes", std::vector<int64_t>{axis}); });
  return true;
}

constexpr Step kSteps[] = {
    {"transpose", transpose, 6},
    {"reshape", reshape, 8},
    {"flatten", flatten, 3},
    {"squeeze", squeeze, 3},
    {"unsqueeze", unsqueeze, 3},
    {"concat", concat, 7},
    {"split", split, 4},
    {"slice", slice, 6},
    {"pad", pad, 4},
    {"tile", tile, 3},
    {"expand", expand, 4},
    {"blocks", blocks, 1},
    {"triangle", triangle, 1},
    {"center_crop_pad", center_crop_pad, 1},
};

}  // namespace

std::span<const Step> movement_steps() { return kSteps; }

}  // namespace anneal::random_graphs
