// Micro-batches: a batch runs a few rows at a time, so that its activations stay in a core's own
// caches.
//
// A row is the part of a tensor at one index of axis 0, such as an image of a batch.
#pragma once
#include <cstdint>
#include <span>

#include "anneal/engine/plan.h"

namespace anneal {

// Which inputs have rows. REQUIRES: plan.batch_split
bool input_has_rows(const Plan& plan, size_t input);

// How a batch is run: its first rows in slices that one thread each runs alone, so that cores
// exchange no activations; the remaining rows in slices that all threads run together.
struct RowCut {
  int64_t rows = 0;
  int64_t alone = 0, rows_alone = 0;  // of a slice; of all, as many for each thread
  int64_t together = 0;               // of a slice

  bool is_whole() const { return rows_alone == 0 && together == rows; }
};

// at_once: the most rows of a slice. 0: as many as the caches of its cores hold of any layer, but
// so many that the activations which a cut saves outweigh the weights that each slice reads again;
// a batch that no cut pays for stays whole. Threads run slices alone if there is one for each, and
// if these are few rows in all or push no more out of the shared cache than slices for all
// together. REQUIRES: plan.batch_split, threads > 0, at_once >= 0. Fails as solve_symbols() does.
RowCut cut_rows(const Plan& plan, std::span<const Dims> input_dims, int threads, int64_t at_once);

}  // namespace anneal
