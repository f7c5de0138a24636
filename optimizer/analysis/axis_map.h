// The effect of a sequence of reshapes and transposes on the axes of a tensor.
#pragma once
#include <functional>
#include <optional>
#include <vector>

#include "anneal/graph/graph.h"

namespace anneal {

// The axes of the source and of the result as lists of atoms: factors of axes that stay together.
// Axes of size 1 have none.
class AxisMap {
 public:
  AxisMap(const Shape& source, SizeTable& sizes);

  void transpose(const std::vector<int64_t>& permutation);
  // False, and the map is useless, if the sizes are not known to divide each other as they must.
  bool reshape(const Shape& to);

  // The shortest way from the source to the result: reshape to `first` (if given), permute the
  // axes (if not empty), reshape to the result's shape (if `last`).
  struct Route {
    std::optional<Shape> first = {};
    std::vector<int64_t> permutation = {};
    bool last = false;
    int layers() const { return first.has_value() + !permutation.empty() + last; }
  };
  // nullopt: more than kMaxRank axes on the way.
  std::optional<Route> route() const;

  // For each axis, the axes of another shape that it is, in order.
  using Parts = std::vector<std::vector<int>>;
  // The shape that has the boundaries of the source's axes, and those between axes a and b of the
  // result that are not alike; and its place in both. REQUIRES: only reshapes. False: a shape of no
  // axis or of more than kMaxRank.
  bool refinement(const std::function<bool(size_t a, size_t b)>& alike, Shape& shape,
                  Parts& of_source, Parts& of_result) const;

 private:
  using Atoms = std::vector<int>;
  void split(int atom, Size first, Size second);
  Atoms in_order(const std::vector<Atoms>& axes) const;
  std::optional<std::vector<int64_t>> permutation_of(const std::vector<Atoms>& from,
                                                     const std::vector<Atoms>& to) const;
  std::vector<Atoms> regrouped(const std::vector<Atoms>& parts, const Atoms& order) const;
  Shape shape_of(const std::vector<Atoms>& axes) const;

  SizeTable& sizes_;
  std::vector<Size> atoms_;
  std::vector<Atoms> source_, result_;
};

}  // namespace anneal
