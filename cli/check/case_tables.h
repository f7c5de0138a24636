// The tables that `anneal check` reads: tab-separated tolerances and reference noise, and the list
// of known failures. Parsers take the text; `what` names it in errors, which are kInvalidArgument.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace anneal {

struct ToleranceRow {
  std::string name;
  std::optional<double> atol, rtol, max_differ;
};
// Columns case, atol, rtol, max_differ; another order if a first line names them. Empty or "-":
// the default. '#' starts a comment line.
std::vector<ToleranceRow> parse_tolerances(std::string_view text, std::string_view what);

struct NoiseRow {
  std::string name;
  double noise = 0;
};
// Columns `model` and `ref_noise_maxabs` of a models.tsv, by their names in the first line.
std::vector<NoiseRow> parse_reference_noise(std::string_view text, std::string_view what);

struct KnownFailure {
  std::string name, reason;
};
// A name, a tab or spaces, a reason. A line without a reason is refused. '#' as above.
std::vector<KnownFailure> parse_known_failures(std::string_view text, std::string_view what);

// Whether a row speaks of a case: equal names, or one is the end of the other at a '/', so that
// "node/test_abs" is found when only the folder node is checked.
bool names_case(std::string_view row, std::string_view name);
// An equal name is preferred; null if no row fits.
template <class Row>
const Row* row_for(std::span<const Row> rows, std::string_view name) {
  const Row* found = nullptr;
  for (const Row& row : rows) {
    if (row.name == name) return &row;
    if (!found && names_case(row.name, name)) found = &row;
  }
  return found;
}

}  // namespace anneal
