// The lines that `anneal check` prints, its counts, and its JSON.
#pragma once
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "anneal/cli/check/case_tables.h"
#include "anneal/cli/check/run_case.h"
#include "anneal/cli/output/json_file.h"

namespace anneal {

class CheckReport {
 public:
  // quiet: lines of expected results are left out.
  CheckReport(std::span<const KnownFailure> known_failures, std::vector<std::string> names,
              size_t skipped, bool quiet);
  // Prints the line of names[i]. Call in order.
  void add(size_t i, const CaseResult& result, double seconds);
  void write(const std::string& json_path) const;
  // Prints the counts; with `complete` also the known failures that named no case. Whether all was
  // as expected.
  bool finish(bool complete) const;

 private:
  std::span<const KnownFailure> known_failures_;
  std::vector<std::string> names_;
  size_t skipped_, passed_ = 0, failed_ = 0, known_ = 0, width_ = 0;
  bool quiet_;
  Json cases_ = Json::array();
};

}  // namespace anneal
