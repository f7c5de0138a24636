// One way to build the model, and what is measured of it.
#pragma once
#include <anneal/anneal.h>

#include <memory>
#include <string>
#include <vector>

struct Variant {
  std::string name;
  anneal::PrecisionOptions precision;
  anneal::Precision uniform = anneal::Precision::kF32;  // of every layer, unless it was tuned
  const anneal::FrontierPoint* tuned = nullptr;         // the point of the tuning; null: none
  std::shared_ptr<const anneal::Engine> engine{};
  std::vector<double> milliseconds{};         // of single inferences, sorted
  double inferences_per_second = 0;           // with one inference on each core at a time
  std::vector<anneal::SampleScore> scores{};  // by sample
  anneal::FrontierPoint point{};
};
