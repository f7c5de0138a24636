// Every pass. What it does stands at the top of its file; the order in pipeline.cc.
#pragma once
#include "anneal/optimizer/pass.h"

namespace anneal {

bool solve_sizes(Graph& graph, const PassOptions& options);
bool fold_constants(Graph& graph, const PassOptions& options);
bool solve_indices(Graph& graph, const PassOptions& options);
bool widen_half(Graph& graph, const PassOptions& options);
bool remove_identity(Graph& graph, const PassOptions& options);
bool fuse_pointwise(Graph& graph, const PassOptions& options);
bool fuse_epilogue(Graph& graph, const PassOptions& options);

}  // namespace anneal
