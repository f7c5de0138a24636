// The time of one run against the number of points in it.
#pragma once
#include <anneal/anneal.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "results.h"

// Medians at batch sizes from 1 to all points. xy: two coordinates of each point. number: of the
// GPU "cuda" or "cuda:N".
std::vector<BatchTime> measure_times(const std::shared_ptr<const anneal::Engine>& cpu,
                                     const std::shared_ptr<const anneal::Engine>& gpu,
                                     const std::string& device, int number,
                                     std::span<const float> xy);
