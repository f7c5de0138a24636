#include "anneal/optimizer/analysis/axis_map.h"

#include <algorithm>
#include <numeric>

namespace anneal {
namespace {

bool moves_nothing(const std::vector<int64_t>& permutation) {
  return std::is_sorted(permutation.begin(), permutation.end());
}

}  // namespace

AxisMap::AxisMap(const Shape& source, SizeTable& sizes) : sizes_(sizes) {
  for (const Size size : source) {
    source_.emplace_back();
    if (size == Size(1)) continue;
    source_.back().push_back(static_cast<int>(atoms_.size()));
    atoms_.push_back(size);
  }
  result_ = source_;
}

void AxisMap::transpose(const std::vector<int64_t>& permutation) {
  std::vector<Atoms> permuted;
  for (const int64_t axis : permutation) permuted.push_back(result_[static_cast<size_t>(axis)]);
  result_ = std::move(permuted);
}

// The atom becomes two, the new one behind it.
void AxisMap::split(int atom, Size first, Size second) {
  atoms_[static_cast<size_t>(atom)] = first;
  const int added = static_cast<int>(atoms_.size());
  atoms_.push_back(second);
  for (auto* axes : {&source_, &result_})
    for (Atoms& axis : *axes)
      if (const auto at = std::ranges::find(axis, atom); at != axis.end())
        axis.insert(at + 1, added);
}

bool AxisMap::reshape(const Shape& to) {
  const auto divided = [&](Size a, Size b) -> std::optional<Size> {
    if (a == b) return Size(1);
    if (a == Size(0) || b == Size(0)) return std::nullopt;
    const Size quotient = sizes_.floor_div(a, b);
    if (quotient.is_unknown() || sizes_.mul(quotient, b) != a) return std::nullopt;
    return quotient;
  };
  std::vector<Atoms> axes;
  size_t used = 0;
  for (const Size size : to) {
    axes.emplace_back();
    for (Size rest = size; rest != Size(1); ++used) {
      const Atoms order = in_order(result_);
      if (rest.is_unknown() || used == order.size()) return false;
      const int atom = order[used];
      const Size whole = atoms_[static_cast<size_t>(atom)];
      if (const auto left = divided(rest, whole)) {
        rest = *left;
      } else if (const auto behind = divided(whole, rest)) {
        split(atom, rest, *behind);
        rest = 1;
      } else {
        return false;
      }
      axes.back().push_back(atom);
    }
  }
  if (used != in_order(result_).size()) return false;
  result_ = std::move(axes);
  return true;
}

AxisMap::Atoms AxisMap::in_order(const std::vector<Atoms>& axes) const {
  Atoms order;
  for (const Atoms& axis : axes) order.insert(order.end(), axis.begin(), axis.end());
  return order;
}

// Which axis of `from` each axis of `to` is; nullopt if it is not so.
std::optional<std::vector<int64_t>> AxisMap::permutation_of(const std::vector<Atoms>& from,
                                                            const std::vector<Atoms>& to) const {
  if (from.size() != to.size()) return std::nullopt;
  std::vector<bool> taken(from.size());
  std::vector<int64_t> permutation;
  for (const Atoms& axis : to) {
    size_t i = 0;
    while (i < from.size() && (taken[i] || from[i] != axis)) ++i;
    if (i == from.size()) return std::nullopt;
    taken[i] = true;
    permutation.push_back(static_cast<int64_t>(i));
  }
  return permutation;
}

// The parts in the order that `order` has their atoms in; empty if a part's are not together there.
// Parts without atoms come first.
std::vector<AxisMap::Atoms> AxisMap::regrouped(const std::vector<Atoms>& parts,
                                               const Atoms& order) const {
  std::vector<Atoms> groups;
  for (const Atoms& part : parts)
    if (part.empty()) groups.push_back(part);
  for (size_t i = 0; i < order.size(); i += groups.back().size()) {
    const auto part = std::ranges::find_if(
        parts, [&](const Atoms& each) { return !each.empty() && each[0] == order[i]; });
    if (part == parts.end() || i + part->size() > order.size() ||
        !std::equal(part->begin(), part->end(), order.begin() + static_cast<ptrdiff_t>(i)))
      return {};
    groups.push_back(*part);
  }
  return groups;
}

Shape AxisMap::shape_of(const std::vector<Atoms>& axes) const {
  Shape shape;
  for (const Atoms& axis : axes) {
    Size size = 1;
    for (const int atom : axis) size = sizes_.mul(size, atoms_[static_cast<size_t>(atom)]);
    shape.push_back(size);
  }
  return shape;
}

bool AxisMap::refinement(const std::function<bool(size_t, size_t)>& alike, Shape& shape,
                         Parts& of_source, Parts& of_result) const {
  const auto axis_of = [](const std::vector<Atoms>& axes, int atom) {
    size_t axis = 0;
    while (std::ranges::find(axes[axis], atom) == axes[axis].end()) ++axis;
    return axis;
  };
  std::vector<Atoms> groups;
  for (const int atom : in_order(source_)) {
    const int last = groups.empty() ? atom : groups.back().back();
    if (groups.empty() || axis_of(source_, last) != axis_of(source_, atom) ||
        !alike(axis_of(result_, last), axis_of(result_, atom)))
      groups.emplace_back();
    groups.back().push_back(atom);
  }
  if (groups.empty() || groups.size() > static_cast<size_t>(kMaxRank)) return false;
  shape = shape_of(groups);
  of_source.assign(source_.size(), {});
  of_result.assign(result_.size(), {});
  for (size_t i = 0; i < groups.size(); ++i) {
    of_source[axis_of(source_, groups[i][0])].push_back(static_cast<int>(i));
    for (const int atom : groups[i]) {
      std::vector<int>& parts = of_result[axis_of(result_, atom)];
      if (parts.empty() || parts.back() != static_cast<int>(i))
        parts.push_back(static_cast<int>(i));
    }
  }
  return true;
}

std::optional<AxisMap::Route> AxisMap::route() const {
  const Atoms from = in_order(source_), to = in_order(result_);
  if (from == to) return Route{.last = shape_of(source_) != shape_of(result_)};
  if (const auto permutation = permutation_of(source_, result_))
    return Route{.permutation = *permutation};
  if (const auto groups = regrouped(source_, to); !groups.empty()) {
    if (const auto permutation = permutation_of(source_, groups))
      return Route{.permutation = *permutation, .last = true};
  }
  if (const auto groups = regrouped(result_, from); !groups.empty()) {
    if (const auto permutation = permutation_of(groups, result_))
      return Route{.first = shape_of(groups), .permutation = *permutation};
  }
  // Runs of atoms that stay neighbours are one axis on the way.
  std::vector<Atoms> runs;
  for (const int atom : from) {
    const auto at = runs.empty() ? to.end() : std::ranges::find(to, runs.back().back());
    if (at != to.end() && at + 1 != to.end() && *(at + 1) == atom)
      runs.back().push_back(atom);
    else
      runs.push_back({atom});
  }
  if (runs.size() > static_cast<size_t>(kMaxRank)) return std::nullopt;
  const auto permutation = permutation_of(runs, regrouped(runs, to));
  if (!permutation || moves_nothing(*permutation)) return std::nullopt;
  return Route{.first = shape_of(runs), .permutation = *permutation, .last = true};
}

}  // namespace anneal
