// The builds of an ablation: one model with nothing, and then with each family of optimizations.
#pragma once
#include <string>
#include <vector>

#include "anneal/cli/model/open_or_build.h"
#include "anneal/engine/builder/builder.h"

namespace anneal {

struct AblationVariant {
  std::string name;                 // of the family that it adds
  std::vector<std::string> passes;  // that it adds
  EngineSource source;              // with the options of its build
  BuilderParts without = {};        // with parts left out it is no engine that anneal build makes
  bool is_for_precision = false;    // a row only if its passes rewrite something
};
// A family without a row.
struct LeftOutFamily {
  std::string name, why;
};
struct AblationVariants {
  std::vector<AblationVariant> variants;  // each has what those before it have
  std::vector<LeftOutFamily> left_out;
};

// source.build has the flags of the last variant. Where it names no precision, that is the one that
// the target computes faster than f32. REQUIRES: source.build.timing_cache is not empty
AblationVariants ablation_variants(const EngineSource& source);

// The bytes of its engine. Fails as building does. has_remarks: whether warnings go to stderr;
// those of the self-check do in any case.
std::vector<std::byte> build_variant(const AblationVariant& variant, bool has_remarks);

}  // namespace anneal
