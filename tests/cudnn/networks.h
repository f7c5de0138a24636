// The different layers of known networks that are convolutions, products or attention, in f16.
#pragma once
#include <string>
#include <vector>

#include "anneal/tests/cudnn/layer.h"

namespace anneal::cuda {

struct LayerList {
  std::string network;
  std::vector<Layer> layers;
  bool has_products = false;  // which cuDNN compiles kernels for
};
std::vector<LayerList> layers_of_networks();

}  // namespace anneal::cuda
