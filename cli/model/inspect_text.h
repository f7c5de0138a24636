// The output of `anneal inspect`, as text and as JSON.
#pragma once
#include <string>

#include "anneal/cli/output/json_file.h"
#include "anneal/engine/plan.h"
#include "anneal/importer/importer.h"

namespace anneal {

std::string model_text(const ImportResult& model);
Json model_json(const ImportResult& model);
std::string engine_text(const EngineFile& file, bool with_decisions);
Json engine_json(const EngineFile& file);

}  // namespace anneal
