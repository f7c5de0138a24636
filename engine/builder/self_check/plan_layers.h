// The layers of the model that make, or read, a value of a plan.
#pragma once
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "anneal/engine/plan.h"
#include "anneal/graph/graph.h"

namespace anneal {

class PlanLayers {
 public:
  // model: as it was imported, whose names of layers count; plan: which must outlive this.
  PlanLayers(const Graph& model, const Plan& plan);

  // Names of layers or ONNX nodes that the step stands for.
  std::set<std::string> of_step(std::string_view step) const;
  // Whether the step reads or writes numbers of 16 or 8 bits. True where no such step is known.
  bool is_lower(std::string_view step) const;
  // For messages: the step's own name if a layer has it or none is known, else the first layer's.
  std::string name_of(std::string_view step) const;
  // The steps that compute the value, by way of others that only move it.
  std::set<std::string> makers(const std::string& value) const;
  // The products that read it, by way of others that only move it.
  std::set<std::string> products_of(const std::string& value) const;
  // Floats that the step reads, but weights.
  std::vector<std::string> inputs_of(std::string_view step) const;

 private:
  struct Place {
    const Plan* plan = nullptr;
    const Step* step = nullptr;
  };
  void add_names(const Graph& model);
  void add_steps(const Plan& plan);

  std::set<std::string, std::less<>> names_;
  std::map<std::string, Place, std::less<>> steps_;
  std::map<std::string, std::vector<Place>, std::less<>> makers_;   // by value
  std::map<std::string, std::vector<Place>, std::less<>> readers_;  // by value
};

}  // namespace anneal
