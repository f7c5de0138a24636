// Products: MatMul, Gemm, Einsum.
#include <cmath>

#include "anneal/core/dtype_kinds.h"
#include "anneal/tests/random/steps.h"

namespace anneal::random_graphs {
namespace {

bool is_float(const Value& value) { return value.is_float(); }

// The bounds and the grid of sums of `terms` products.
Value sums(const Value& a, const Value& b, const Extents& dims, const Extent& terms) {
  const double bound = a.largest() * b.largest() * static_cast<double>(terms.largest());
  Value result{.dims = dims, .low = -bound, .high = bound};
  if (a.exact() && b.exact()) result.grid = exact_grid(a.grid + b.grid, bound);
  return result;
}

bool matmul(Maker& maker) {
  RandomNumbers& random = maker.random();
  const auto a = maker.choose([](const Value& v) { return is_float(v) && v.rank() >= 1; });
  if (!a) return false;
  const Extent inner = a->dims.back();
  std::optional<Value> b = maker.choose([&](const Value& v) {
    return is_float(v) && v.rank() >= 1 &&
           v.dims[static_cast<size_t>(std::max(0, v.rank() - 2))] == inner;
  });
  if (!b || random.one_in(2)) {
    if (!inner.constant()) {
      // With itself, transposed.
      if (a->rank() < 2) return false;
      std::vector<int64_t> order(static_cast<size_t>(a->rank()));
      std::iota(order.begin(), order.end(), 0);
      std::swap(order[order.size() - 1], order[order.size() - 2]);
      Value turned = *a;
      std::swap(turned.dims[order.size() - 1], turned.dims[order.size() - 2]);
      turned.contents.reset();
      b = maker.apply("Transpose", {*a}, turned, [&](auto& node) { set(node, "perm", order); });
    } else {
      Extents dims = {inner, random.one_of<int64_t>({1, 2, 3, 4, 8, 16})};
      if (random.one_in(8)) dims.pop_back();
      if (random.one_in(8) && dims.size() == 2)
        dims.insert(dims.begin(), Extent(random.between(1, 2)));
      b = float_constant(maker, dims, -1, 1, random.one_in(2));
    }
  }
  // Vectors become matrices, and their axis goes away.
  Extents left = a->dims, right = b->dims;
  if (left.size() == 1) left.insert(left.begin(), Extent(1));
  if (right.size() == 1) right.push_back(1);
  if (left.back() != right[right.size() - 2]) return false;
  auto dims = broadcast({left.begin(), left.end() - 2}, {right.begin(), right.end() - 2});
  if (!dims) return false;
  if (a->rank() > 1) dims->push_back(left[left.size() - 2]);
  if (b->rank() > 1) dims->push_back(right.back());
  if (!is_small(*dims)) return false;
  maker.apply("MatMul", {*a, *b}, sums(*a, *b, *dims, inner));
  return true;
}

bool gemm(Maker& maker) {
  RandomNumbers& random = maker.random();
  const auto a = maker.choose([](const Value& v) { return is_float(v) && v.rank() == 2; });
  if (!a) return false;
  const bool turn_a = random.one_in(4), turn_b = random.one_in(2);
  const Extent rows = a->dims[turn_a ? 1 : 0], inner = a->dims[turn_a ? 0 : 1];
  std::optional<Value> b = maker.choose([&](const Value& v) {
    return is_float(v) && v.rank() == 2 && v.dims[turn_b ? 1 : 0] == inner;
  });
  if (inner.constant() && (!b || !random.one_in(3))) {
    const Extent columns = random.one_of<int64_t>({1, 2, 4, 6, 8, 16});
    b = float_constant(maker, turn_b ? Extents{columns, inner} : Extents{inner, columns}, -1, 1,
                       random.one_in(2));
  }
  if (!b) return false;
  const Extent columns = b->dims[turn_b ? 0 : 1];
  Value result = sums(*a, *b, {rows, columns}, inner);
  if (!is_small(result.dims)) return false;
  std::vector<Value> inputs = {*a, *b};
  const double alpha = random.one_of({1., 1., .5}), beta = random.one_of({1., 1., 2.});
  if (random.one_in(2)) {
    const auto c = maker.choose([&](const Value& v) {
      const auto dims = is_float(v) ? broadcast(v.dims, result.dims) : std::nullopt;
      return dims && *dims == result.dims;
    });
    Extents dims = {columns.constant() ? columns : Extent(1)};
    if (random.one_in(3)) dims.insert(dims.begin(), Extent(1));
    inputs.push_back(c && random.one_in(2) ? *c
                                           : float_constant(maker, dims, -2, 2, random.one_in(2)));
  }
  result.low *= alpha;
  result.high *= alpha;
  if (result.grid >= 0) result.grid += 1;
  if (inputs.size() == 3) {
    result.low -= beta * inputs[2].largest();
    result.high += beta * inputs[2].largest();
    result.grid = result.exact() && inputs[2].exact() ? std::max(result.grid, inputs[2].grid) : -1;
  }
  maker.apply("Gemm", inputs, result, [&](auto& node) {
    set(node, "alpha", static_cast<float>(alpha));
    set(node, "beta", static_cast<float>(beta));
    if (turn_a) set(node, "transA", int64_t{1});
    if (turn_b) set(node, "transB", int64_t{1});
  });
  return true;
}

// An equation, and which operands' axes its letters stand for.
bool einsum(Maker& maker) {
  RandomNumbers& random = maker.random();
  const std::string equation = random.one_of(
      {"ij,jk->ik", "bij,bjk->bik", "bij,bkj->bik", "bij->bji", "ij,j->i", "bij,ij->b", "i,j->ij",
       "...j,jk->...k", "bhid,bhjd->bhij", "ij->", "ii->i", "bij,kj->bik", "ij,ij->ij", "ij->j"});
  const std::string inputs = equation.substr(0, equation.find("->"));
  const std::string output = equation.substr(equation.find("->") + 2);
  std::vector<std::string> terms = {inputs.substr(0, inputs.find(','))};
  if (inputs.find(',') != inputs.npos) terms.push_back(inputs.substr(inputs.find(',') + 1));
  std::map<char, Extent> sizes;
  Extents ellipsis;
  std::vector<Value> operands;
  for (const std::string& term : terms) {
    const bool dots = term[0] == '.';
    const std::string letters = dots ? term.substr(3) : term;
    const auto fits = [&](const Value& v) {
      if (!is_float(v) || v.rank() < static_cast<int>(letters.size())) return false;
      if (!dots && v.rank() != static_cast<int>(letters.size())) return false;
      auto known = sizes;
      const size_t skipped = v.dims.size() - letters.size();
      for (size_t i = 0; i < letters.size(); ++i) {
        const auto [at, added] = known.try_emplace(letters[i], v.dims[skipped + i]);
        if (!added && at->second != v.dims[skipped + i]) return false;
      }
      return true;
    };
    std::optional<Value> operand = maker.choose(fits);
    if (!operand || (!operands.empty() && random.one_in(3))) {
      if (operands.empty()) return false;
      Extents dims;
      for (const char letter : letters) {
        const auto known = sizes.find(letter);
        dims.push_back(known == sizes.end() ? Extent(random.between(2, 4)) : known->second);
        if (!dims.back().constant()) return false;
      }
      operand = float_constant(maker, dims, -1, 1, random.one_in(2));
    }
    const size_t skipped = operand->dims.size() - letters.size();
    if (dots)
      ellipsis.assign(operand->dims.begin(), operand->dims.begin() + static_cast<int64_t>(skipped));
    for (size_t i = 0; i < letters.size(); ++i)
      sizes.try_emplace(letters[i], operand->dims[skipped + i]);
    operands.push_back(*operand);
  }
  Extents dims;
  Extent summed = 1;
  for (const auto& [letter, extent] : sizes)
    if (output.find(letter) == output.npos) summed = summed * extent;
  for (const char letter : output) {
    if (letter == '.' && dims.empty()) dims = ellipsis;
    if (letter != '.') dims.push_back(sizes.at(letter));
  }
  if (!is_small(dims)) return false;
  Value one{.low = 1, .high = 1, .grid = 0};
  Value result = sums(operands[0], operands.size() > 1 ? operands[1] : one, dims, summed);
  maker.apply("Einsum", operands, result, [&](auto& node) { set(node, "equation", equation); });
  return true;
}

constexpr Step kSteps[] = {
    {"matmul", matmul, 8},
    {"gemm", gemm, 4},
    {"einsum", einsum, 3},
};

}  // namespace

std::span<const Step> product_steps() { return kSteps; }

}  // namespace anneal::random_graphs
