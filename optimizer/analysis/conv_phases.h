// A transposed convolution as a convolution of its phases.
#pragma once
#include <string>
#include <string_view>

#include "anneal/optimizer/pass.h"

namespace anneal {

// Why the layer has no phases that a convolution can compute: dilations, weights that are not
// constant, and so on. Empty if it has.
std::string_view why_no_phases(const Graph& graph, const Layer& layer);

// The multiplications of the phases for each one of the transposed convolution: above 1 where the
// kernel is no multiple of the strides. REQUIRES: why_no_phases() is empty
double multiplications_of_phases(const Graph& graph, const Layer& layer);

// Replaces a transposed convolution with strides s and kernel k. The outputs at positions of equal
// remainder by s are a phase. A phase is a convolution of x by ceil(k/s) taps, and all phases read
// x at the same positions:
//
//   c = Conv(x[N,C,H,W], w'[s*s*K,C,ceil(k/s),ceil(k/s)]) pads ceil(k/s)-1
//   y = c as [N,s,s,K,H',W'], transposed to [N,K,H',s,W',s], as [N,K,H'*s,W'*s], without the pads
//
// Taps beyond the kernel are 0. An epilogue whose further inputs are the same at all positions
// becomes the convolution's; another one becomes a layer behind the shuffle. Gives the reason if
// nothing was replaced. REQUIRES: why_no_phases() is empty
std::string replace_by_phases(Graph& graph, LayerId id, const PassRun& run);

}  // namespace anneal
