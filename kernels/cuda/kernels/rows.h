// Kernels that compute a result for each row of their input, which is the elements along some axes.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "anneal/kernels/cuda/kernels/function_kernel.h"

namespace anneal::cuda {

// The inputs of an op with a map as OperandViews takes them: x, and those from `further` on.
// Refuses if the others enlarge x.
Result<std::vector<int>> mapped_inputs(const Request& request, int further);

class Rows {
 public:
  static constexpr int kThreads = 256;  // of a block

  // in_row[axis]: axes of the first input that belong to a row. keeps: whether the output has the
  // axes of a row, too. merges: contiguous axes of a row become one.
  Rows(OperandViews& seen, const std::vector<bool>& in_row, bool keeps, bool merges = true);

  int threads_per_row() const { return threads_; }
  std::optional<int64_t> known_length() const { return known_length_; }

  // "const f32 x = ...;": element `r` of the current row, and its coordinates j0, j1, ... on the
  // axes of a row after merging. With a map, the result of the map of the first input, which has
  // all axes, and of all others; REQUIRES: axes were not merged.
  std::string element(const Request& request, Extents& extents, const Program& map = {}) const;
  // A loop over a thread's share of the row; in `body` there are `r`, of index_type(), and
  // element()'s names. Elements that are adjacent in memory are read 16 bytes at a time.
  std::string each(const Request& request, Extents& extents, const std::string& body,
                   const Program& map = {}) const;
  // The same one element at a time, for a body that stores: neighbouring threads then store
  // neighbours.
  std::string each_alone(const Request& request, Extents& extents, const std::string& body,
                         const Program& map = {}) const;
  // "value = ...;": the result of `combine`, an expression, over the values of all threads of a
  // row.
  std::string combined(std::string_view value, std::string_view combine) const;
  const char* index_type() const { return small_ ? "i32" : "i64"; }

  // `body` is done by all threads of a row. There are x0, store, length, `lane` (a thread's number
  // among those of the row), is_first (whether a thread is the row's first, and there is such a
  // row), and the coordinates i0, i1, ... of the output's axes that are not in the row.
  // partial_type: what combined() combines. needs_elements: rows of none are an error.
  KernelResult make(const OperandViews& seen, DataType accumulator, std::string_view family,
                    const std::string& partial_type,
                    const std::function<std::string(const Request&, Extents&)>& body,
                    bool needs_elements = false) const;

 private:
  struct Axis {
    bool in_row = false;
    int output = 0;  // the output's axis, where it is not in a row
  };
  void choose_threads(const Request& request);
  std::string element(const Request& request, Extents& extents, const Program& map,
                      const std::string& own) const;
  std::string scalar_loop(const Request& request, Extents& extents, std::string_view first,
                          const std::string& body, const Program& map) const;
  std::string offset(const Request& request, Extents& extents, bool in_row) const;
  std::string coordinates(const Request& request, Extents& extents, bool in_row,
                          std::string_view number) const;
  std::vector<std::string> sizes(const Request& request, Extents& extents, bool in_row) const;

  std::vector<Axis> axes_;  // of the input as seen
  int threads_ = 1;         // that share a row
  // Where the neighbours of an element belong to another row, a block reads `columns_` rows at
  // once: runs of `run_` elements of each, beside each other in memory. 1: it does not.
  int columns_ = 1, run_ = 1;
  int neighbour_ = -1;  // the axis from one such row to the next
  int vector_ = 1;      // elements of 16 bytes, if those of a row are adjacent
  bool small_ = false;
  std::optional<int64_t> known_length_;
};

}  // namespace anneal::cuda
