// Running a large batch a few rows at a time, so that its activations stay in the caches.
//
// A row is what a tensor holds at one index of axis 0: an image of a batch.
#pragma once
#include <cstdint>
#include <span>

#include "anneal/engine/plan.h"

namespace anneal {

// Whether each row of the outputs follows from the same row of the inputs, so that a batch may be
// run in parts. Known of plans for the CPU alone, without control flow or sizes that depend on
// values, whose number of rows is one symbol that is open: axis 0 of all outputs and of one input
// at least. An input that has no rows is the same for all.
bool keeps_rows_apart(const Plan& plan);

// Which inputs have rows. REQUIRES: keeps_rows_apart()
bool input_has_rows(const Plan& plan, size_t input);

// How many rows of these inputs to run at a time: as many as the cores' own caches hold of any
// layer; all of them where that gains nothing, because what layers move stays in the shared cache,
// or is less than the weights that would be read again. REQUIRES: keeps_rows_apart(). Fails as
// solve_symbols() does.
int64_t rows_at_once(const Plan& plan, std::span<const Dims> input_dims, int threads);

}  // namespace anneal
