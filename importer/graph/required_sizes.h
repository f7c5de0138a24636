// Open sizes of inputs that an operator of the model leaves one value.
#pragma once
#include "anneal/graph/graph.h"

namespace anneal {

// An LSTM's weights say how long a frame is, a convolution's how many channels there are: no run
// could have another size, so the input gets it. Layers of bodies require nothing, as a run may
// pass them by. Fails with kInvalidModel where the bounds of the size exclude the value, or two
// layers require different ones.
void fix_required_sizes(Graph& graph);

}  // namespace anneal
