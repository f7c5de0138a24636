// The parts of reports that building and refitting share.
#pragma once
#include <string>

#include "anneal/engine/builder/build_options.h"
#include "anneal/engine/builder/build_report.h"
#include "anneal/engine/plan.h"

namespace anneal {

// Adds the plans, and the bytes of weights.
void report_plans(const EngineFile& file, BuildReport& report);

// The log gets what the progress says.
BuildOptions with_log(BuildOptions options);
void log_warnings(const LogSink& log, const BuildReport& report);

// Fails with kInvalidArgument if two of the files are one. weights may be empty.
void require_other_files(const std::string& engine, const std::string& weights);

// The bytes of the engine, and of its weights if they are apart.
BuiltEngine built_engine(const EngineFile& file, BuildReport report);
// Writes the weights to their file if they are apart, and then the engine. Returns the report with
// the engine's size.
BuildReport write_engine(const EngineFile& file, BuildReport report, const std::string& path,
                         const std::string& weights_path, const WriteProgress& progress);

}  // namespace anneal
