// The kernels of an engine file chosen again by their times, and the times alone.
#pragma once
#include <string>
#include <vector>

#include "anneal/engine/builder/build_options.h"
#include "anneal/engine/builder/timing/retune_plans.h"

namespace anneal {

// Writes the engine with kernels chosen by times on this machine, and by those of
// options.timing_cache, which is extended. It keeps its other build options. Of `options`
// timing_cache, optimization_level, time_seconds, threads, libraries, progress and weights_path
// count. weights_path: of an engine whose weights are apart, their file, which is replaced with the
// engine: only there, so the output must be the engine. Fails with kInvalidArgument where weights
// are lacking or the output is another, with kDevice if no plan is for a device of this machine, as
// loading does, and with kCannotWrite.
std::vector<RetunedPlan> retune_engine(const std::string& engine_path,
                                       const std::string& output_path, const BuildOptions& options);

// Adds the times of the kernels of all plans whose devices are here to options.timing_cache. Fails
// as above.
std::vector<RetunedPlan> time_engine_kernels(const std::string& engine_path,
                                             const BuildOptions& options);

// Adds the times of all caches to the first, which need not exist; a later one's replace an
// earlier one's. Returns how many layers it has.
size_t merge_timing_caches(const std::string& into, const std::vector<std::string>& from);

}  // namespace anneal
