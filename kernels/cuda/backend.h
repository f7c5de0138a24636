// The CUDA backend: own kernels for some ops, made on any machine, run on a card or emulated.
#pragma once
#include "anneal/core/access_counts.h"
#include "anneal/kernels/cuda/runtime/target_names.h"
#include "anneal/kernels/kernel.h"
#include "anneal/kernels/laid_out.h"

namespace anneal {

const Backend& cuda_backend();

// The entry's kernel, with those inputs in the strides that it asks for; a constant that it wants
// elsewhere than it lies has no contents for it. Entries of other backends ask for none.
LaidOutKernel make_laid_out(const KernelEntry& entry, const Request& request, FreeInputs free);

// Counts of the functions in the work of a stream that was waited for since the last call. Empty
// for devices that do not count.
std::vector<FunctionCounts> take_counts(DeviceStream& stream);

// How a thread waits for a stream of a card: it spins, which takes a core and returns some
// microseconds sooner, or it sleeps, as it does unless told otherwise. Nothing happens on streams
// of other devices.
void set_spins(DeviceStream& stream, bool spins);

// Gives a kernel of this backend the alignments of its inputs and outputs at each launch, as powers
// of two (0: not known), so that it compiles no text for other memory. REQUIRES: its device's code
// has not been loaded since it was made.
void know_alignments(Kernel& kernel, std::span<const uint32_t> inputs,
                     std::span<const uint32_t> outputs);

}  // namespace anneal
