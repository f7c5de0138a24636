// Accuracy, latency and throughput of the variants.
#pragma once
#include <vector>

#include "variant.h"

// The metric's score of each sample, inferred one at a time on each core.
std::vector<anneal::SampleScore> judge(const std::shared_ptr<const anneal::Engine>& engine,
                                       const anneal::Dataset& samples,
                                       const anneal::Metric& metric);

// Latency of one thread at batch 1, memory, and throughput of all cores. The variants take turns,
// so that other work of the machine affects all alike.
void measure_speed(std::vector<Variant>& variants, const std::vector<anneal::SampleTensor>& sample);
