// Sizes that the operators of a model leave no choice, or want to be equal.
#pragma once
#include <optional>

#include "anneal/graph/graph.h"

namespace anneal {

// An LSTM's weights say how long a frame is, a convolution's how many channels there are, a sum
// that two inputs are of one length: no run could have other sizes. A symbol of the inputs that
// such a demand leaves one value, a number or an expression of the others, is replaced by it
// everywhere. Two sizes that no symbol makes equal, as in 2*s and 4*((s + 1)//2), get one
// representative, and the run refuses inputs for which they differ. Layers of bodies demand
// nothing, as a run may pass them by. Fails with kInvalidModel where no sizes within the bounds
// meet the demands. batch: a symbol that has to stay as it is. Fails with kUnsupported, naming the
// layer, if one demands anything of it.
void settle_sizes(Graph& graph, std::optional<Size> batch = {});

}  // namespace anneal
