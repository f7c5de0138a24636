// Einsum: two factors at a time become a matrix product between transposes and reshapes. The sizes
// of a letter broadcast as in NumPy: an axis of one element stands for those of another factor.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <string>

#include "anneal/importer/ops/expression.h"
#include "anneal/importer/ops/rows.h"

namespace anneal {
namespace {

// A value with a letter for each of its axes. The axes of an ellipsis are the digits,
// right-aligned: '0' is the last.
struct Factor {
  ValueId value = ValueId::kNone;
  std::string axes;
};

bool contains(const std::string& axes, char axis) { return axes.find(axis) != axes.npos; }

std::string without_spaces(const std::string& text) {
  std::string result;
  for (const char c : text)
    if (c != ' ') result += c;
  return result;
}

std::string ellipsis_axes(int count) {
  std::string axes;
  while (count > 0) axes += static_cast<char>('0' + --count);
  return axes;
}

// "ij..." with the axes of the ellipsis.
std::string expand_term(Node& node, const std::string& term, int ellipsis_rank) {
  std::string axes;
  for (size_t at = 0; at < term.size(); ++at) {
    if (term.compare(at, 3, "...") == 0 && term.find("...", at + 3) == term.npos) {
      axes += ellipsis_axes(ellipsis_rank);
      at += 2;
    } else if (std::isalpha(static_cast<unsigned char>(term[at]))) {
      axes += term[at];
    } else {
      node.invalid(fmt::format("attribute \"equation\" is malformed at \"{}\"", term.substr(at)));
    }
  }
  return axes;
}

struct Equation {
  std::vector<std::string> terms;
  std::string result;
};

Equation read_equation(Node& node) {
  const std::string text = without_spaces(node.text("equation", ""));
  const size_t arrow = text.find("->");
  const std::string left = text.substr(0, arrow);
  Equation equation;
  int widest = 0;
  for (size_t at = 0; at <= left.size();) {
    const size_t end = std::min(left.find(',', at), left.size());
    const std::string term = left.substr(at, end - at);
    const int index = static_cast<int>(equation.terms.size());
    if (index >= node.input_count()) node.invalid("attribute \"equation\" has too many terms");
    const bool open = term.find("...") != term.npos;
    const int letters = static_cast<int>(term.size()) - (open ? 3 : 0);
    const int rest = node.rank(index) - letters;
    if (rest < 0 || (rest > 0 && !open))
      node.invalid(fmt::format("term \"{}\" for an input of {} axes", term, node.rank(index)));
    widest = std::max(widest, rest);
    equation.terms.push_back(expand_term(node, term, rest));
    at = end + 1;
  }
  if (static_cast<int>(equation.terms.size()) != node.input_count())
    node.invalid("attribute \"equation\" has too few terms");
  if (arrow != text.npos) {
    equation.result = expand_term(node, text.substr(arrow + 2), widest);
    return equation;
  }
  // Without an arrow: the ellipsis, then the letters that appear once, in order.
  std::string all;
  for (const std::string& term : equation.terms) all += term;
  std::ranges::sort(all);
  for (const char axis : all)
    if (std::isalpha(static_cast<unsigned char>(axis)) && std::ranges::count(all, axis) == 1)
      equation.result += axis;
  equation.result = ellipsis_axes(widest) + equation.result;
  return equation;
}

ValueId transpose(Node& node, const Factor& from, const std::string& to, const std::string& name) {
  if (from.axes == to) return from.value;
  std::vector<int64_t> permutation;
  for (const char axis : to) permutation.push_back(static_cast<int64_t>(from.axes.find(axis)));
  return node.layer(Transpose{.permutation = permutation}, {from.value}, name + "/transposed");
}

// For axes with the same letter: the diagonal, as one axis at the end. [n,n] is extended by n
// elements and cut into rows of n + 1; the diagonal is then the first column.
Factor diagonals(Node& node, Factor factor, const std::string& name) {
  for (;;) {
    const auto twice = std::ranges::find_if(
        factor.axes, [&](char axis) { return std::ranges::count(factor.axes, axis) > 1; });
    if (twice == factor.axes.end()) return factor;
    const char axis = *twice;
    const auto first = twice - factor.axes.begin();
    const auto second =
        static_cast<ptrdiff_t>(factor.axes.find(axis, static_cast<size_t>(first) + 1));
    const Shape shape = node.graph().value(factor.value).type().shape;
    const Size n = shape[static_cast<int>(first)];
    if (const Size m = shape[static_cast<int>(second)]; n.known() && m.known() && n != m)
      node.invalid(fmt::format("a diagonal \"{}\" of {}", axis, node.sizes().text(shape)));
    std::string rest;
    std::vector<int64_t> permutation;
    std::vector<Size> sizes;
    for (ptrdiff_t i = 0; i < std::ssize(factor.axes); ++i) {
      if (i == first || i == second) continue;
      rest += factor.axes[static_cast<size_t>(i)];
      permutation.push_back(i);
      sizes.push_back(shape[static_cast<int>(i)]);
    }
    permutation.insert(permutation.end(), {first, second});
    const std::string step = name + "/diagonal_" + axis;
    const ValueId square =
        node.layer(Transpose{.permutation = permutation}, {factor.value}, step + "/transposed");
    std::vector<Size> pads(2 * sizes.size() + 2, 0);
    pads.back() = n;
    sizes.push_back(node.sizes().mul(n, n));
    const ValueId longer = node.layer(
        Pad{},
        {reshape(node, square, sizes, step + "/flat"), node.sizes_value(pads, step + "/pads")},
        step + "/longer");
    sizes.back() = n;
    sizes.push_back(node.sizes().add(n, 1));
    const ValueId column = scalar_value(node, 0, step + "/column");
    factor.value = node.layer(Gather{.axis = std::ssize(sizes) - 1},
                              {reshape(node, longer, sizes, step + "/rows"), column}, step);

    factor.axes = rest + axis;
  }
}

// Sums over the axes that no other operand and not the result needs.
Factor sum_private_axes(Node& node, const Factor& factor, const std::string& needed,
                        const std::string& name) {
  std::vector<int64_t> axes;
  std::string kept;
  for (size_t i = 0; i < factor.axes.size(); ++i) {
    if (contains(needed, factor.axes[i])) {
      kept += factor.axes[i];
    } else {
      axes.push_back(static_cast<int64_t>(i));
    }
  }
  if (axes.empty()) return factor;
  const ValueId over = node.integers_value(axes, name + "/axes");
  return {node.layer(Reduce{.keepdims = false}, {factor.value, over}, name + "/sum"), kept};
}

Size size_of_axis(Node& node, const Factor& factor, char axis) {
  return node.graph().value(factor.value).type().shape[static_cast<int>(factor.axes.find(axis))];
}

// Without the axes of one element that the other factor has with more.
Factor without_ones(Node& node, const Factor& factor, const Factor& other,
                    const std::string& name) {
  std::string kept;
  std::vector<Size> sizes;
  for (const char axis : factor.axes) {
    const Size size = size_of_axis(node, factor, axis);
    if (size == Size(1) && contains(other.axes, axis) && size_of_axis(node, other, axis) != size)
      continue;
    kept += axis;
    sizes.push_back(size);
  }
  if (kept == factor.axes) return factor;
  return {reshape(node, factor.value, sizes, name), kept};
}

// With the size along each of the axes to which both factors broadcast: where one has one element,
// that of the other. Sizes of open axes are compared one by one, not as parts of a product.
Factor broadcast_with(Node& node, const Factor& factor, const Factor& other,
                      const std::string& axes, const std::string& name) {
  const Shape shape = node.graph().value(factor.value).type().shape;
  std::vector<Size> sizes(shape.begin(), shape.end());
  for (const char axis : axes) {
    const Size own = size_of_axis(node, factor, axis), others = size_of_axis(node, other, axis);
    if (!own.known() || !others.known())
      sizes[factor.axes.find(axis)] = node.sizes().broadcast(own, others);
  }
  if (std::ranges::equal(sizes, shape)) return factor;
  return {expanded(node, factor.value, sizes, name), factor.axes};
}

// Batch axes are in both factors and needed, contracted ones in both and not needed; each of the
// rest is in one factor, since private ones are summed before.
Factor multiply(Node& node, const Factor& first, const Factor& second, const std::string& needed,
                const std::string& name) {
  std::string batch, contracted, rows, columns;
  for (const char axis : first.axes)
    (!contains(second.axes, axis) ? rows : contains(needed, axis) ? batch : contracted) += axis;
  for (const char axis : second.axes)
    if (!contains(first.axes, axis)) columns += axis;
  const Factor a = broadcast_with(node, first, second, contracted, name + "/a/expanded");
  const Factor b = broadcast_with(node, second, first, contracted, name + "/b/expanded");
  const auto matrices = [&](const Factor& factor, const std::string& first,
                            const std::string& second, const std::string& suffix) {
    const ValueId ordered = transpose(node, factor, batch + first + second, name + suffix);
    const Shape shape = node.graph().value(ordered).type().shape;
    const auto sizes = shape.span();
    std::vector<Size> target(sizes.begin(), sizes.begin() + static_cast<ptrdiff_t>(batch.size()));
    target.push_back(product(Shape(sizes.subspan(batch.size(), first.size())), node.sizes()));
    target.push_back(product(Shape(sizes.subspan(batch.size() + first.size())), node.sizes()));
    return reshape(node, ordered, target, name + suffix + "/matrices");
  };
  const ValueId left = matrices(a, rows, contracted, "/a");
  const ValueId right = matrices(b, contracted, columns, "/b");
  const ValueId product = node.layer(MatMul{}, {left, right}, name + "/product");
  const Shape whole = node.graph().value(product).type().shape;
  std::vector<Size> sizes(whole.begin(), whole.end() - 2);
  const auto append = [&](const Factor& factor, const std::string& axes) {
    for (const char axis : axes) sizes.push_back(size_of_axis(node, factor, axis));
  };
  append(a, rows);
  append(b, columns);
  return {reshape(node, product, sizes, name + "/axes_apart"), batch + rows + columns};
}

Outputs import_einsum(Node& node) {
  if (node.input_count() == 0) node.invalid("no inputs");
  node.dtype(0, kFloats | TypeSet{DataType::kI32, DataType::kI64, DataType::kU32, DataType::kU64});
  const Equation equation = read_equation(node);
  for (const char axis : equation.result)
    if (std::ranges::count(equation.result, axis) > 1)
      node.invalid(fmt::format("the result has the axis \"{}\" twice", axis));

  Factor result;
  for (int i = 0; i < node.input_count(); ++i) {
    node.expect_same_dtype({0, i});
    const std::string name = fmt::format("factor{}", i);
    const auto at = static_cast<size_t>(i);
    std::string later = equation.result;
    for (size_t k = at + 1; k < equation.terms.size(); ++k) later += equation.terms[k];
    const Factor whole = diagonals(node, {node.input(i), equation.terms[at]}, name);
    if (i == 0) {
      result = sum_private_axes(node, whole, later, name);
      continue;
    }
    const Factor before = without_ones(node, result, whole, name + "/before/squeezed");
    const Factor now = without_ones(node, whole, result, name + "/squeezed");
    const Factor factor = sum_private_axes(node, now, later + before.axes, name);
    result = sum_private_axes(node, before, later + factor.axes, name + "/before");
    result = multiply(node, result, factor, later, name);
  }
  result = sum_private_axes(node, result, equation.result, "result");
  std::vector<int64_t> permutation;
  for (const char axis : equation.result) {
    if (!contains(result.axes, axis))
      node.invalid(fmt::format("the result has an axis \"{}\" that no term has", axis));
    permutation.push_back(static_cast<int64_t>(result.axes.find(axis)));
  }
  return node.result(Transpose{.permutation = permutation}, {result.value});
}

constexpr OpRow kEinsumRows[] = {
    {"", "Einsum", 12, kLatest, import_einsum},
};

}  // namespace

std::span<const OpRow> einsum_rows() { return kEinsumRows; }

}  // namespace anneal
