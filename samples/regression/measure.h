// The time of one run against the number of points in it.
#pragma once
#include <anneal/anneal.h>

#include <memory>
#include <span>
#include <vector>

#include "results.h"

// Medians at batch sizes from 1 to all points. xy: two coordinates of each point. device: the
// number of the GPU.
std::vector<BatchTime> measure_times(const std::shared_ptr<const anneal::Engine>& cpu,
                                     const std::shared_ptr<const anneal::Engine>& gpu, int device,
                                     std::span<const float> xy);
