#include "anneal/optimizer/pipeline/pipeline.h"

#include "anneal/optimizer/passes/passes.h"

namespace anneal {
namespace {

constexpr bool kExact = true, kInexact = false;

constexpr Pass kPipeline[] = {
#define ANNEAL_ROW(name, exact, summary) {#name, summary, exact, name},
    ANNEAL_FOR_EACH_PASS(ANNEAL_ROW)
#undef ANNEAL_ROW
};

}  // namespace

std::span<const Pass> default_pipeline() { return kPipeline; }

}  // namespace anneal
