// The text for storing several neighbouring accumulators at once.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "anneal/graph/program/program.h"
#include "anneal/kernels/cuda/text/extents.h"
#include "anneal/kernels/cuda/text/store_lanes.h"
#include "anneal/kernels/cuda/text/vector_access.h"

namespace anneal::cuda {

// One op output: its program (null: it is stored without one), and where the operands of that
// begin.
struct StorePart {
  const Program* program = nullptr;
  int first_input = 0, first_output = 0;
  int outputs = 1;
};

// Members of struct Store that take kLanes accumulators at once: as many as fill 16 bytes of the
// widest output, or 1 where memory does not allow it.
//   Columns columns(i64 column): what the program reads that is the same in all rows;
//   Inputs inputs(i64 row, i64 i0, ...): what else it reads, for the lanes from these coordinates
//   on; operator()(const Vec<f32, kLanes>& sums, columns, inputs, i64 row, i64 i0, ...): stores.
struct StoreVectorText {
  std::string members;
  std::vector<VectorAccess> vectors;  // that kLanes relies on
};
StoreVectorText store_vector_text(const Request& request, Extents& extents, const StoreLanes& lanes,
                                  const std::vector<StorePart>& parts, RegisterType accumulator);

}  // namespace anneal::cuda
