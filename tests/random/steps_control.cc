// If, Loop and Scan, with bodies of random steps.
#include "anneal/tests/random/steps.h"

namespace anneal::random_graphs {
namespace {

constexpr int kDeepest = 2;  // bodies in bodies

Value boolean() { return {.type = onnx::BOOL, .high = 1, .grid = 0}; }

// A condition that data, sizes or nothing but the file decides.
std::optional<Value> condition(Maker& maker) {
  RandomNumbers& random = maker.random();
  const auto given = maker.choose(
      [](const Value& v) { return v.type == onnx::BOOL && v.rank() == 0 && !v.is_constant; });
  if (given && random.one_in(2)) return given;
  switch (random.below(3)) {
    case 0: {
      anneal_onnx::TensorProto tensor;
      tensor.set_data_type(onnx::BOOL);
      tensor.add_int32_data(static_cast<int32_t>(random.below(2)));
      if (random.one_in(2)) return maker.constant(tensor, boolean());
      [[fallthrough]];
    }
    case 1: {
      const auto x = maker.choose([](const Value& v) { return v.rank() >= 1 && !v.is_constant; });
      if (!x) return std::nullopt;
      const auto size = size_scalar(maker, x->dims[0]);
      if (!size) return std::nullopt;
      return maker.apply("Less", {*size, scalar_constant(maker, random.between(2, 6))}, boolean());
    }
    default: {
      const auto x =
          maker.choose([](const Value& v) { return v.is_float() && v.exact() && v.rank() >= 1; });
      if (!x) return std::nullopt;
      const Value most =
          maker.apply("ReduceMax", {*x}, {.low = x->low, .high = x->high, .grid = x->grid},
                      [](auto& node) { set(node, "keepdims", int64_t{0}); });
      return maker.apply("Greater", {most, number_constant(maker, random.between(0, 3))},
                         boolean());
    }
  }
}

// The body's own value of these dims.
Value of_dims(Maker& maker, const Value& like) {
  const auto found = maker.choose([&](const Value& v) {
    return v.is_float() && v.dims == like.dims && v.name != like.name && !v.is_constant;
  });
  if (!found || maker.random().one_in(3)) return unary(maker, like);
  if (!maker.random().one_in(3)) return unary(maker, *found);
  return maker.apply(
      "Add", {*found, like},
      {.dims = like.dims, .low = found->low + like.low, .high = found->high + like.high});
}

bool if_node(Maker& maker) {
  if (maker.depth() >= kDeepest) return false;
  const auto chosen = condition(maker);
  const auto like = maker.choose([](const Value& v) { return v.is_float() && !v.is_constant; });
  if (!chosen || !like) return false;
  Value result{.dims = like->dims, .low = 0, .high = 0, .grid = -1};
  anneal_onnx::GraphProto branches[2];
  for (auto& branch : branches) {
    maker.open_scope();
    maker.add_steps(static_cast<int>(maker.random().between(0, 3)));
    const Value last = of_dims(maker, *like);
    result.low = std::min(result.low, last.low);
    result.high = std::max(result.high, last.high);
    maker.body_output(last);
    branch = maker.close_scope();
  }
  maker.apply("If", {*chosen}, result, [&](auto& node) {
    set(node, "then_branch", branches[0]);
    set(node, "else_branch", branches[1]);
  });
  return true;
}

Value within(Maker& maker, const Value& x) {
  return maker.apply("Clip", {x, number_constant(maker, -4), number_constant(maker, 4)},
                     {.dims = x.dims, .low = -4, .high = 4});
}

// How often a loop runs, in each binding.
std::optional<Value> trip_count(Maker& maker) {
  RandomNumbers& random = maker.random();
  const auto number = maker.choose([](const Value& v) {
    return v.type == onnx::INT64 && v.contents && v.contents->size() == 1 && v.low >= 0 &&
           (*v.contents)[0].least() >= 1 && v.high <= 5 && !v.is_constant;
  });
  if (number && !random.one_in(3)) return number;
  const auto x = maker.choose(
      [](const Value& v) { return v.rank() >= 1 && !v.is_constant && v.dims[0].largest() <= 5; });
  if (x && random.one_in(2)) return size_scalar(maker, x->dims[0]);
  return scalar_constant(maker, random.between(1, 3));
}

// The results of all iterations. Nested, they would grow without end.
Extents stacked_of(const Extent& times, const Extents& each) {
  Extents dims = each;
  dims.insert(dims.begin(), times);
  return dims;
}

bool loop(Maker& maker) {
  if (maker.depth() >= kDeepest) return false;
  RandomNumbers& random = maker.random();
  const auto start = maker.choose([](const Value& v) { return v.is_float() && v.largest() <= 4; });
  if (!start) return false;
  // A number of trips, or a condition that counts, or both.
  const bool counts = random.one_in(3), limited = !counts || random.one_in(2);
  const auto trips = limited ? trip_count(maker) : std::nullopt;
  if (limited && !trips) return false;
  Extent times = trips ? (*trips->contents)[0] : Extent(4);
  const int64_t limit = random.between(1, 3);
  if (counts) times = combine(times, limit, [](int64_t a, int64_t b) { return std::min(a, b); });
  const Value initial = counts ? scalar_constant(maker, 0) : Value{};
  anneal_onnx::TensorProto yes;
  yes.set_data_type(onnx::BOOL);
  yes.add_int32_data(1);
  const bool given = random.one_in(2);
  const Value condition = given ? maker.constant(yes, boolean()) : Value{};
  maker.open_scope();
  Value i = maker.body_input(
      {.type = onnx::INT64, .high = static_cast<double>(times.largest() - 1), .grid = 0});
  const Value go = maker.body_input(boolean());
  Value state = maker.body_input({.dims = start->dims, .low = -4, .high = 4});
  Value counter;
  if (counts) counter = maker.body_input({.type = onnx::INT64, .high = 4, .grid = 0});
  maker.add_steps(static_cast<int>(random.between(0, 3)));
  const auto extra = maker.choose([&](const Value& v) {
    const auto dims = v.is_float() ? broadcast(v.dims, state.dims) : std::nullopt;
    return dims && *dims == state.dims && v.name != state.name;
  });
  Value next =
      extra ? maker.apply("Add", {state, *extra},
                          {.dims = state.dims, .low = -4 + extra->low, .high = 4 + extra->high})
            : unary(maker, state);
  next = within(maker, next);
  Value next_counter, goes_on;
  if (counts) {
    next_counter = maker.apply("Add", {counter, scalar_constant(maker, 1)},
                               {.type = onnx::INT64, .high = 5, .grid = 0});
    goes_on = maker.apply("Less", {next_counter, scalar_constant(maker, limit)}, boolean());
  } else {
    goes_on = maker.apply("Identity", {go}, boolean());
  }
  maker.body_output(goes_on);
  maker.body_output(next);
  if (counts) maker.body_output(next_counter);
  const auto each =
      maker.choose([](const Value& v) { return v.is_float() && v.rank() <= 3 && !v.is_constant; });
  const bool scans = each && random.one_in(2) && is_small(stacked_of(times, each->dims));
  Value scanned;
  if (scans) {
    scanned = maker.apply(
        "Neg", {*each},
        {.dims = each->dims, .low = -each->high, .high = -each->low, .grid = each->grid});
    maker.body_output(scanned);
  }
  const auto body = maker.close_scope();
  std::vector<Value> inputs = {trips ? *trips : Value{}, condition, *start};
  std::vector<Value> results = {{.dims = start->dims, .low = -4, .high = 4}};
  if (counts) {
    inputs.push_back(initial);
    results.push_back({.type = onnx::INT64, .high = 4, .grid = 0});
  }
  if (scans) {
    scanned.dims = stacked_of(times, scanned.dims);
    scanned.contents.reset();
    results.push_back(scanned);
  }
  maker.apply_all("Loop", inputs, results, [&](auto& node) { set(node, "body", body); });
  return true;
}

bool scan(Maker& maker) {
  if (maker.depth() >= kDeepest) return false;
  RandomNumbers& random = maker.random();
  const auto x = maker.choose([](const Value& v) { return v.is_float() && v.rank() >= 2; });
  if (!x) return false;
  const auto axis = static_cast<size_t>(random.below(std::min(2, x->rank())));
  Value row = *x;
  row.contents.reset();
  row.dims.erase(row.dims.begin() + static_cast<int64_t>(axis));
  const auto start = maker.choose([](const Value& v) { return v.is_float() && v.largest() <= 4; });
  if (!start || !is_small(stacked_of(x->dims[axis], start->dims))) return false;
  const bool backwards = random.one_in(3);
  maker.open_scope();
  const Value state = maker.body_input({.dims = start->dims, .low = -4, .high = 4});
  const Value each = maker.body_input(row);
  maker.add_steps(static_cast<int>(random.between(0, 3)));
  Value next = broadcast(each.dims, state.dims) == std::optional(state.dims)
                   ? maker.apply("Add", {state, each},
                                 {.dims = state.dims, .low = -4 + each.low, .high = 4 + each.high})
                   : unary(maker, state);
  next = within(maker, next);
  maker.body_output(next, true);
  const auto found =
      maker.choose([&](const Value& v) { return v.is_float() && v.rank() <= 3 && !v.is_constant; });
  const Value shown = found && is_small(stacked_of(x->dims[axis], found->dims)) ? *found : next;
  Value stacked =
      maker.apply("Neg", {shown},
                  {.dims = shown.dims, .low = -shown.high, .high = -shown.low, .grid = shown.grid});
  maker.body_output(stacked, true);
  const auto body = maker.close_scope();
  stacked.dims = stacked_of(x->dims[axis], stacked.dims);
  maker.apply_all("Scan", {*start, *x}, {{.dims = start->dims, .low = -4, .high = 4}, stacked},
                  [&](auto& node) {
                    set(node, "body", body);
                    set(node, "num_scan_inputs", int64_t{1});
                    set(node, "scan_input_axes", std::vector<int64_t>{static_cast<int64_t>(axis)});
                    if (backwards) set(node, "scan_input_directions", std::vector<int64_t>{1});
                  });
  return true;
}

constexpr Step kSteps[] = {
    {"if", if_node, 3},
    {"loop", loop, 3},
    {"scan", scan, 2},
};

}  // namespace

std::span<const Step> control_steps() { return kSteps; }

}  // namespace anneal::random_graphs
