// What selects elements by indices, and what finds indices.
#include <cmath>

#include "anneal/tests/random/steps.h"

namespace anneal::random_graphs {
namespace {

// Indices into axes of `dims` elements, from a constant or a value.
std::optional<Value> indices_for(Maker& maker, const Extents& dims, int64_t least_size) {
  if (!is_small(dims) || least_size < 1) return std::nullopt;
  const auto found = maker.choose([&](const Value& v) {
    return (v.type == onnx::INT64 || v.type == onnx::INT32) && v.dims == dims &&
           v.low >= -static_cast<double>(least_size) && v.high < static_cast<double>(least_size);
  });
  if (found) return found;
  if (!std::ranges::all_of(dims, [](const Extent& dim) { return dim.constant(); }))
    return std::nullopt;
  if (dims.size() > 1) return std::nullopt;
  std::vector<int64_t> numbers;
  for (int64_t i = 0; i < product(dims).in[0]; ++i)
    numbers.push_back(maker.random().between(-std::min<int64_t>(least_size, 2), least_size - 1));
  return dims.empty() ? scalar_constant(maker, numbers[0]) : integer_constant(maker, numbers);
}

std::optional<Value> choose_float(Maker& maker, int axes) {
  return maker.choose(
      [&](const Value& v) { return v.is_float() && v.rank() >= axes && v.rank() <= 4; });
}

Value like(const Value& x, const Extents& dims) {
  Value result = x;
  result.dims = dims;
  result.contents.reset();
  return result;
}

bool gather(Maker& maker) {
  const auto x = choose_float(maker, 1);
  if (!x) return false;
  RandomNumbers& random = maker.random();
  const auto axis = static_cast<size_t>(random.below(x->rank()));
  const int64_t least = x->dims[axis].least();
  std::optional<Value> indices = maker.choose([&](const Value& v) {
    return (v.type == onnx::INT64 || v.type == onnx::INT32) && v.rank() <= 2 && !v.is_constant &&
           v.low >= -static_cast<double>(least) && v.high < static_cast<double>(least);
  });
  if (!indices || random.one_in(3)) {
    const Extents dims = random.one_in(3) ? Extents() : Extents{random.between(1, 3)};
    indices = indices_for(maker, dims, least);
  }
  if (!indices) return false;
  Extents dims(x->dims.begin(), x->dims.begin() + static_cast<int64_t>(axis));
  dims.insert(dims.end(), indices->dims.begin(), indices->dims.end());
  dims.insert(dims.end(), x->dims.begin() + static_cast<int64_t>(axis) + 1, x->dims.end());
  if (!is_small(dims)) return false;
  maker.apply("Gather", {*x, *indices}, like(*x, dims),
              [&](auto& node) { set(node, "axis", static_cast<int64_t>(axis)); });
  return true;
}

// A table of constants, as embeddings are.
bool embed(Maker& maker) {
  const auto indices = maker.choose([](const Value& v) {
    return (v.type == onnx::INT64 || v.type == onnx::INT32) && v.rank() <= 3 && v.low >= 0 &&
           v.high < 30 && !v.is_constant;
  });
  if (!indices) return false;
  RandomNumbers& random = maker.random();
  Extents dims = indices->dims;
  dims.push_back(random.one_of<int64_t>({2, 4, 8}));
  if (!is_small(dims)) return false;
  const Value table = float_constant(
      maker, {static_cast<int64_t>(indices->high) + 1 + random.below(4), dims.back()}, -2, 2,
      random.one_in(2));
  maker.apply("Gather", {table, *indices}, like(table, dims));
  return true;
}

// Indices from the bits of the elements themselves.
bool gather_elements(Maker& maker) {
  const auto x = choose_float(maker, 1);
  if (!x) return false;
  const auto axis = static_cast<size_t>(maker.random().below(x->rank()));
  const int64_t least = x->dims[axis].least();
  auto indices = indices_for(maker, x->dims, least);
  if (!indices && x->exact() && x->largest() < 100) {
    const Value integers = maker.apply("Cast", {*x},
                                       {.type = onnx::INT64,
                                        .dims = x->dims,
                                        .low = std::trunc(x->low),
                                        .high = std::trunc(x->high),
                                        .grid = 0},
                                       [](auto& node) { set(node, "to", int64_t{onnx::INT64}); });
    indices = maker.apply("Mod", {integers, scalar_constant(maker, least)},
                          {.type = onnx::INT64,
                           .dims = x->dims,
                           .low = 0,
                           .high = static_cast<double>(least - 1),
                           .grid = 0});
  }
  if (!indices) return false;
  const auto attributes = [&](auto& node) { set(node, "axis", static_cast<int64_t>(axis)); };
  if (maker.random().one_in(2)) {
    maker.apply("GatherElements", {*x, *indices}, like(*x, x->dims), attributes);
    return true;
  }
  // Sums in any order: of exact numbers.
  if (!x->exact() || x->largest() > 8) return false;
  const auto updates = maker.choose([&](const Value& v) {
    return v.is_float() && v.dims == x->dims && v.exact() && v.largest() <= 8;
  });
  Value result = like(*x, x->dims);
  result.grid = std::max(x->grid, updates->grid);
  const double bound =
      x->largest() + updates->largest() * static_cast<double>(x->dims[axis].largest());
  result.low = -bound;
  result.high = bound;
  maker.apply("ScatterElements", {*x, *indices, *updates}, result, [&](auto& node) {
    attributes(node);
    set(node, "reduction", std::string("add"));
  });
  return true;
}

bool gather_nd(Maker& maker) {
  const auto x = choose_float(maker, 2);
  if (!x) return false;
  const int64_t least = std::min(x->dims[0].least(), x->dims[1].least());
  RandomNumbers& random = maker.random();
  const int64_t rows = random.between(1, 3);
  std::vector<int64_t> numbers;
  for (int64_t i = 0; i < 2 * rows; ++i) numbers.push_back(i < 2 ? 0 : random.below(least));
  const Value flat = integer_constant(maker, numbers);
  Value pairs = flat;
  pairs.dims = {rows, 2};
  pairs.contents.reset();
  pairs = maker.apply("Reshape", {flat, integer_constant(maker, {rows, 2})}, pairs);
  Extents dims = {rows};
  dims.insert(dims.end(), x->dims.begin() + 2, x->dims.end());
  const Value picked = maker.apply("GatherND", {*x, pairs}, like(*x, dims));
  if (random.one_in(2)) return true;
  // One row, so that no element is written twice.
  const Value first =
      maker.apply("Slice", {pairs, integer_constant(maker, {0}), integer_constant(maker, {1})},
                  like(pairs, {1, 2}));
  Extents one = dims;
  one[0] = 1;
  Value update = like(picked, one);
  update = maker.apply(
      "Slice", {picked, integer_constant(maker, {0}), integer_constant(maker, {1})}, update);
  Value result = like(*x, x->dims);
  result.low = std::min(result.low, update.low);
  result.high = std::max(result.high, update.high);
  maker.apply("ScatterND", {*x, first, update}, result);
  return true;
}

bool one_hot(Maker& maker) {
  const auto indices = maker.choose([](const Value& v) {
    return v.type == onnx::INT64 && v.rank() >= 1 && v.rank() <= 2 && v.low >= 0 && v.high < 8;
  });
  if (!indices) return false;
  Extents dims = indices->dims;
  dims.push_back(8);
  if (!is_small(dims)) return false;
  anneal_onnx::TensorProto values;
  values.set_data_type(onnx::FLOAT);
  values.add_dims(2);
  values.add_float_data(0);
  values.add_float_data(1);
  const Value off_on = maker.constant(values, {.dims = {2}, .high = 1, .grid = 0});
  maker.apply("OneHot", {*indices, scalar_constant(maker, 8), off_on},
              {.dims = dims, .high = 1, .grid = 0});
  return true;
}

bool largest_place(Maker& maker) {
  const auto x =
      maker.choose([](const Value& v) { return v.is_float() && v.exact() && v.rank() >= 1; });
  if (!x) return false;
  RandomNumbers& random = maker.random();
  const auto axis = static_cast<size_t>(random.below(x->rank()));
  const bool keep = random.one_in(2);
  Extents dims = x->dims;
  if (keep)
    dims[axis] = 1;
  else
    dims.erase(dims.begin() + static_cast<int64_t>(axis));
  Value result{.type = onnx::INT64,
               .dims = dims,
               .high = static_cast<double>(x->dims[axis].largest() - 1),
               .grid = 0};
  maker.apply(random.one_of({"ArgMax", "ArgMin"}), {*x}, result, [&](auto& node) {
    set(node, "axis", static_cast<int64_t>(axis));
    set(node, "keepdims", int64_t{keep});
    if (random.one_in(3)) set(node, "select_last_index", int64_t{1});
  });
  return true;
}

bool top_k(Maker& maker) {
  const auto x =
      maker.choose([](const Value& v) { return v.is_float() && v.exact() && v.rank() >= 1; });
  if (!x) return false;
  RandomNumbers& random = maker.random();
  const auto axis = static_cast<size_t>(random.below(x->rank()));
  const Extent size = x->dims[axis];
  const Extent k = random.one_in(3) ? size : Extent(random.between(1, size.least()));
  const auto count = size_vector(maker, {k});
  if (!count) return false;
  Value values = like(*x, x->dims);
  values.dims[axis] = k;
  Value places{.type = onnx::INT64,
               .dims = values.dims,
               .high = static_cast<double>(size.largest() - 1),
               .grid = 0};
  maker.apply_all("TopK", {*x, *count}, {values, places}, [&](auto& node) {
    set(node, "axis", static_cast<int64_t>(axis));
    set(node, "largest", int64_t{random.one_in(2)});
  });
  return true;
}

// Places of elements: data decide how many there are, so that only sums of them have known dims.
bool non_zero(Maker& maker) {
  const auto x = maker.choose([](const Value& v) {
    return (v.type == onnx::BOOL || (v.is_float() && v.exact())) && v.rank() >= 1;
  });
  if (!x) return false;
  const double largest = static_cast<double>(product(x->dims).largest());
  Value places{.type = onnx::INT64, .dims = {x->rank(), 0}, .high = 12, .grid = 0};
  // Not shown: its dims are not known.
  const Value found = maker.apply("NonZero", {*x}, places);
  Value sum{.type = onnx::INT64, .dims = {x->rank()}, .high = largest * 12, .grid = 0};
  maker.apply("ReduceSum", {found, integer_constant(maker, {1})}, sum,
              [](auto& node) { set(node, "keepdims", int64_t{0}); });
  return true;
}

constexpr Step kSteps[] = {
    {"gather", gather, 6},       {"embed", embed, 4},       {"gather_elements", gather_elements, 2},
    {"gather_nd", gather_nd, 1}, {"one_hot", one_hot, 1},   {"largest_place", largest_place, 2},
    {"top_k", top_k, 2},         {"non_zero", non_zero, 1},
};

}  // namespace

std::span<const Step> index_steps() { return kSteps; }

}  // namespace anneal::random_graphs
