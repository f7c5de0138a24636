// One test case through importer, optimizer, plan, save, load and run.
#pragma once
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "anneal/cli/check/test_cases.h"
#include "anneal/engine/builder/build_options.h"
#include "anneal/engine/compare/compare_outputs.h"

namespace anneal {

struct CaseOptions {
  std::string target = "cpu";
  BuildOptions build;
  int threads = 1;
  Tolerance tolerance;
};

struct CaseResult {
  std::string why = {};  // empty: all outputs of all data sets are close enough
  std::string code =
      {};  // to_string(Code) of the error that ended the case; empty if outputs were compared
  double max_abs = 0, max_rel = 0;  // over all outputs compared
  std::string note = {};  // why the model was built for the sizes of its data; empty: it was not
};
std::vector<std::byte> to_bytes(const CaseResult& result);
CaseResult case_result_from(std::span<const std::byte> bytes);

// A model that cannot be built or run with the sizes that the model leaves open is tried once more
// with those of the data. Never throws for what a case does: that is in `why`.
CaseResult run_case(const TestCase& test, const CaseOptions& options);

}  // namespace anneal
