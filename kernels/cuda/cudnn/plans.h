// Plans: how cuDNN computes a graph of operations on a device. They are made from the properties of
// that device alone, on any machine, and travel as text.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "anneal/core/result.h"
#include "anneal/kernels/cuda/cudnn/descriptor.h"
#include "anneal/kernels/cuda/cudnn/operations.h"

namespace anneal::cuda {

struct CudnnPlan {
  Descriptor plan;
  int64_t workspace_bytes = 0;
  std::string algorithm;  // for people: "engine 41, setting 2"
  std::string json;       // what load_plan() takes
};

// Which of cuDNN's engines are taken.
struct PlanChoice {
  size_t most = 1;                              // plans
  int64_t most_workspace = int64_t{256} << 20;  // bytes
};

// The engines that cuDNN proposes, best first; none where the reason says why.
struct CudnnPlans {
  std::vector<CudnnPlan> plans;
  std::string why_none;
};
CudnnPlans find_plans(const Cudnn& cudnn, const Operations& operations,
                      const Descriptor& properties, const PlanChoice& choice);

// The plan of this text, on a device with these properties. The text may be any: one with
// other tensors than the operations is refused, and what it computes with these is trusted.
Result<CudnnPlan> load_plan(const Cudnn& cudnn, std::string json, const Operations& operations,
                            const Descriptor& properties);

}  // namespace anneal::cuda
