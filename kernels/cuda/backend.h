// The CUDA backend: own kernels for some ops, made on any machine, run on a card or emulated.
#pragma once
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

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

// The number of the GPU whose memory kernels of the device take (MemoryPlace::device); nullopt of
// CPUs, and of devices to build for. The emulated device is number -1.
std::optional<int> gpu_number(const Device& device);

// The application gives all memory of the GPU from now on; null: the driver does. REQUIRES: a
// device that allocates.
void use_gpu_allocator(Device& device, std::shared_ptr<Allocator> allocator);

// How a thread waits for a stream of a card: it spins, which takes a core and returns some
// microseconds sooner, or it sleeps, as it does unless told otherwise. Nothing happens on streams
// of other devices.
void set_spins(DeviceStream& stream, bool spins);

// Gives a kernel of this backend the alignments of its inputs and outputs at each launch, as powers
// of two (0: not known), so that it compiles no text for other memory. Gives the reason if it
// cannot run on such memory, as some of libraries; kernels of ours always can. REQUIRES: its
// device's code has not been loaded since it was made.
std::string know_alignments(Kernel& kernel, std::span<const uint32_t> inputs,
                            std::span<const uint32_t> outputs);

// The bytes of a GPU's second-level cache, and the present clock of a card's multiprocessors in
// MHz, as NVML reports it. 0 and nothing for other devices.
size_t second_level_cache(const Device& device);
std::optional<unsigned> clock_mhz(const Device& device);
// Whether kernels run on the device and their times mean something: it is a card.
bool is_card(const Device& device);
// From now on Device::prepare_code() compiles programs of few functions side by side, on `threads`
// threads. The image then has a part for each program: for code that no file keeps.
void compile_in_parallel(Device& device, int threads);

// For people, and distinct for the tactics of a kernel of ours (kernels/cuda/cost/tactic_text.h).
std::string tactic_text(std::string_view kernel, std::span<const std::byte> tactic);

// All programs of two images that Device::prepare_code() gave.
std::vector<std::byte> joined_code(std::span<const std::byte> a, std::span<const std::byte> b);

}  // namespace anneal
