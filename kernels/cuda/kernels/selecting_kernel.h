// The kernel of an op that selects, so that values decide how much it gives.
#pragma once
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "anneal/kernels/cuda/text/extents.h"
#include "anneal/kernels/cuda/text/program_text.h"

namespace anneal::cuda {

inline constexpr int kSelectThreads = 256;  // of a block
// The number of runs into which the elements are divided. Their counts are copied to the host.
int64_t groups_for(int64_t elements);

// The elements of the inputs are divided into groups. `count` stores how many each group gives, the
// host adds these up, and `write` stores what each group gives behind what earlier ones do
// (device/select.h). Both functions loop over the groups. Their parameters are
//   count: inputs, Out<i64> counts, [Out<i32> state], i64 groups, what `limits` adds, extents;
//   write: inputs, those of an epilogue, the output, In<i64> counts, [In<i32> state], i64 groups,
//          extents.
struct SelectParts {
  using Views = std::span<const TensorView>;
  std::shared_ptr<const Function> count = {}, write = {};
  size_t inputs = 0;  // of the op, the first ones, that both functions read
  size_t op_inputs = 0;
  std::vector<Extents::Source> count_sources = {}, write_sources = {};
  std::function<int64_t(Views inputs)> groups = {};
  std::function<int64_t(Views inputs)> state = {};  // elements; empty: there is no state
  std::function<void(Arguments&, Views op_inputs)> limits = {};   // may be empty
  std::function<Dims(Views inputs, int64_t selected)> dims = {};  // of the output
};
KernelResult make_selecting_kernel(SelectParts parts, const Request& request);

// The texts of both functions: a loop over groups in which there are `group`, `groups` and shared
// memory `partial`. statements: before the loop.
struct SelectText {
  std::string family;
  std::vector<std::string_view> headers;
  std::string definitions, inputs, parameters, statements, body;
};
FunctionText select_text(const SelectText& text);

}  // namespace anneal::cuda
