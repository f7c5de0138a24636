// Inputs of random graphs: their sizes, and elements for each binding of these.
#include <fmt/format.h>

#include <cmath>

#include "anneal/tests/random/maker.h"

namespace anneal::random_graphs {
namespace {

// A size that inputs share; with a name it is open.
struct Axis {
  std::string name;
  Extent extent;
};

bool has_open_sizes(Kind kind, RandomNumbers& random) {
  if (kind == Kind::kFixed) return false;
  return kind == Kind::kOpen || kind == Kind::kRange || !random.one_in(3);
}

Extent open_extent(RandomNumbers& random, int64_t limit) {
  Extent extent;
  extent.in[kSmallest] = random.between(1, 4);
  extent.in[kOptimal] = random.between(extent.in[kSmallest], 9);
  extent.in[kLargest] = random.between(extent.in[kOptimal], 12);
  for (size_t i = kLargest + 1; i < kBindings; ++i)
    extent.in[i] = random.between(extent.in[kSmallest], extent.in[kLargest]);
  for (int64_t& size : extent.in) size = std::min(size, limit);
  return extent;
}

std::vector<Axis> draw_axes(const Recipe& recipe, RandomNumbers& random) {
  std::vector<Axis> axes;
  const auto constant = [&] {
    return std::min(random.one_of<int64_t>({2, 3, 4, 4, 5, 6, 8, 8, 16}), recipe.largest_size);
  };
  for (int i = 0; i < 3; ++i) axes.push_back({"", constant()});
  if (!has_open_sizes(recipe.kind, random)) return axes;
  const int64_t symbols = random.between(1, 3);
  for (int64_t i = 0; i < symbols; ++i) {
    Axis axis{std::string(1, "nmhw"[i]), open_extent(random, recipe.largest_size)};
    // Open in the file, but one number, or another open size, in truth.
    if (random.one_in(6)) axis.extent = axes[static_cast<size_t>(random.below(3))].extent;
    if (random.one_in(10)) axis.extent = axes.back().extent;
    if (random.one_in(8)) axis.extent = axis.extent + axis.extent;
    if (recipe.constant_symbols) axis = {"", axis.extent.in[kOptimal]};
    axes.push_back(axis);
  }
  return axes;
}

float rounded_element(const Value& value, RandomNumbers& random) {
  if (value.exact())
    return static_cast<float>(std::round(random.uniform(value.low, value.high) * 4) / 4);
  return static_cast<float>(std::clamp(random.normal(), value.low, value.high));
}

Tensor draw_tensor(const Value& value, size_t binding, RandomNumbers& random) {
  Dims dims;
  for (const Extent& dim : value.dims) dims.push_back(dim.in[binding]);
  const auto elements = static_cast<size_t>(count(dims));
  const auto integer = [&](size_t i) {
    if (value.contents) return (*value.contents)[i].in[binding];
    return random.between(static_cast<int64_t>(value.low), static_cast<int64_t>(value.high));
  };
  if (value.type == onnx::FLOAT) {
    std::vector<float> numbers(elements);
    for (float& number : numbers) number = rounded_element(value, random);
    return Tensor::of<float>(DataType::kF32, dims, numbers);
  }
  if (value.type == onnx::INT64) {
    std::vector<int64_t> numbers(elements);
    for (size_t i = 0; i < elements; ++i) numbers[i] = integer(i);
    return Tensor::of<int64_t>(DataType::kI64, dims, numbers);
  }
  if (value.type == onnx::INT32) {
    std::vector<int32_t> numbers(elements);
    for (size_t i = 0; i < elements; ++i) numbers[i] = static_cast<int32_t>(integer(i));
    return Tensor::of<int32_t>(DataType::kI32, dims, numbers);
  }
  std::vector<uint8_t> numbers(elements);
  for (size_t i = 0; i < elements; ++i) numbers[i] = static_cast<uint8_t>(integer(i));
  return Tensor::of<uint8_t>(value.type == onnx::BOOL ? DataType::kBool : DataType::kU8, dims,
                             numbers);
}

}  // namespace

void Maker::add_input(Value value) {
  const uint64_t seed = mixed(recipe_.seed, hash_of(value.name));
  model_.data.resize(kBindings);
  for (size_t b = 0; b < kBindings; ++b) {
    // The same elements for the same sizes.
    const size_t same = recipe_.constant_symbols ? 0 : b;
    RandomNumbers random(mixed(seed, same));
    model_.data[b].push_back(draw_tensor(value, same, random));
  }
  model_.inputs.push_back(value);
  show(value);
}

void Maker::add_inputs() {
  const std::vector<Axis> axes = draw_axes(recipe_, random_);
  const auto input = [&](const std::string& name, const std::vector<Axis>& dims, Value value) {
    auto* info = scopes_[0].graph.add_input();
    info->set_name(name);
    auto* type = info->mutable_type()->mutable_tensor_type();
    type->set_elem_type(value.type);
    type->mutable_shape();
    for (const Axis& axis : dims) {
      auto* dim = type->mutable_shape()->add_dim();
      if (axis.name.empty())
        dim->set_dim_value(axis.extent.in[0]);
      else
        dim->set_dim_param(axis.name);
      value.dims.push_back(axis.extent);
    }
    value.name = name;
    add_input(value);
  };
  const Axis one{"", 1}, channels{"", random_.one_of<int64_t>({2, 3, 4, 8})};
  const auto any_axis = [&] { return random_.one_in(8) ? one : random_.one_of(axes); };
  const auto last_axis = [&] { return random_.one_in(2) ? axes.back() : any_axis(); };
  std::vector<std::vector<Axis>> shapes;
  for (int64_t i = random_.between(1, 3); i > 0; --i) {
    std::vector<Axis> dims;
    switch (random_.below(5)) {
      case 0:  // a picture
        dims = {any_axis(), channels, last_axis(), last_axis()};
        break;
      case 1:  // a sequence
        dims = {any_axis(), last_axis(), axes[0]};
        break;
      case 2:
        if (!shapes.empty()) {
          dims = shapes[0];
          if (random_.one_in(2)) dims.erase(dims.begin());
        }
        [[fallthrough]];
      default:
        while (dims.empty() || random_.one_in(2) || dims.size() < 2) {
          if (dims.size() == 4) break;
          dims.push_back(last_axis());
        }
    }
    Extents extents;
    for (const Axis& axis : dims) extents.push_back(axis.extent);
    if (!is_small(extents)) dims = {dims.back()};
    shapes.push_back(dims);
    const bool exact = random_.one_in(2);
    input(fmt::format("x{}", i), dims, {.low = -3, .high = 3, .grid = exact ? 2 : -1});
  }
  if (random_.one_in(3)) {
    const double high = static_cast<double>(random_.between(0, 2));
    const int type = random_.one_of({onnx::INT64, onnx::INT64, onnx::INT32});
    const std::vector<Axis> rows{last_axis()}, all{any_axis(), last_axis()};
    input("i", random_.one_in(2) ? rows : all, {.type = type, .high = high, .grid = 0});
  }
  if (random_.one_in(5))
    input("mask", {last_axis(), last_axis()}, {.type = onnx::BOOL, .high = 1, .grid = 0});
  if (random_.one_in(kind() == Kind::kControl ? 2 : 6))
    input("flag", {}, {.type = onnx::BOOL, .high = 1, .grid = 0});
  if (kind() == Kind::kControl ? random_.one_in(2) : kind() == Kind::kOpen && random_.one_in(6)) {
    Extent number;
    for (int64_t& each : number.in) each = random_.between(1, 3);
    if (recipe_.constant_symbols) number = number.in[0];
    const std::vector<Axis> scalar;
    input("k", random_.one_in(2) ? scalar : std::vector<Axis>{one},
          {.type = onnx::INT64, .low = 1, .high = 3, .grid = 0, .contents = Extents{number}});
  }
}

}  // namespace anneal::random_graphs
