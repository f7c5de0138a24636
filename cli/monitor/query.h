// The fields of `anneal monitor --query`, under nvidia-smi's names, as columns of CSV.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "anneal/cli/monitor/sample.h"

namespace anneal {

enum class MonitorRows { kCards, kProcesses };

struct CsvForm {
  bool header = true, units = true;
};
// "csv,noheader,nounits", as nvidia-smi's --format. Fails with kInvalidArgument.
CsvForm parse_csv_form(std::string_view text);

class Query {
 public:
  // fields: names with commas between them; empty: the usual ones. Fails with kInvalidArgument on
  // an unknown name, with the nearest one and the list of all.
  Query(std::string_view fields, MonitorRows rows, CsvForm form = {});

  bool of_processes() const { return rows_ == MonitorRows::kProcesses; }
  // Each ends in a line break. No header: empty.
  std::string header() const;
  // A line for each card, or for each process. The fields of cards are "[N/A]" where there are
  // none, in one line.
  std::string lines(const MonitorSample& sample) const;

 private:
  MonitorRows rows_;
  CsvForm form_;
  std::vector<size_t> fields_;  // of the table of these rows
};

// The names of all fields with a comma between them, for help and errors.
std::string field_names(MonitorRows rows);

}  // namespace anneal
