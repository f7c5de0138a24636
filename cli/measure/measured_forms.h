// The results of a measurement as text and as JSON.
#pragma once
#include <string>

#include "anneal/cli/measure/measure.h"
#include "anneal/cli/measure/process_facts.h"
#include "anneal/cli/output/json_file.h"

namespace anneal {

// "other processes used 0.01 of 2 cores, ..."; says BUSY where times mean little.
std::string load_text(const MachineLoad& load);
Json load_json(const MachineLoad& load);
Json latency_json(const Latency& latency);
std::string input_text(const TensorInfo& port, const Tensor& tensor);  // "x: f32[1,3,224,224]"

}  // namespace anneal
