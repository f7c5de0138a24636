// The passes of a build: times for the report, graphs for the dumps.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "anneal/engine/builder/build_options.h"
#include "anneal/engine/builder/build_report.h"
#include "anneal/graph/graph.h"
#include "anneal/optimizer/pass.h"

namespace anneal {

class PassLog {
 public:
  // Writes the imported graph if build.dump_passes says where. REQUIRES: `build` and `passes`
  // outlive this.
  PassLog(const BuildOptions& build, const Graph& imported, const PassOptions& options,
          std::vector<BuildPass>& passes);
  void add(const PassEvent& event, std::string_view targets);
  void begin_again() { passes_.clear(); }
  void finish() const;  // writes the optimized graph

 private:
  const BuildOptions& build_;
  std::string_view last_;  // the pass after which the graph is as it is built; empty: none
  std::string graph_text_;
  std::vector<BuildPass>& passes_;
};

}  // namespace anneal
