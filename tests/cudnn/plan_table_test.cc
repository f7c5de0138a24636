// For how many layers of known networks cuDNN has a plan, on which architecture. Run with
// ANNEAL_UPDATE_GOLDEN=1 it writes the table anew.
#include <dlfcn.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>

#include "anneal/kernels/cuda/kernels/entries.h"
#include "anneal/kernels/cuda/runtime/device.h"
#include "anneal/tests/cudnn/networks.h"
#include "anneal/tests/cudnn/plans.h"

namespace anneal::cuda {
namespace {

// Whether cuDNN finds one, which is the stand-in mostly.
bool has_driver() { return dlopen("libcuda.so.1", RTLD_LAZY) != nullptr; }

std::string line_of(const LayerList& list) {
  std::string line = fmt::format("{:<13}{:>7}", list.network, list.layers.size()), missing;
  for (const char* const target : {"sm_80", "sm_89", "sm_90", "sm_100"}) {
    const auto device = open_device(target);
    size_t found = 0;
    for (const Layer& layer : list.layers) {
      const LayerRequest request(layer, *device);
      const KernelResult made = cudnn_entry_of(layer.op).make(*request);
      if (made) ++found;
      if (!made && std::string_view(target) == "sm_90")
        missing += fmt::format("  {}: {}\n", layer.name, made.reason());
    }
    line += fmt::format("{:>8}", found);
  }
  return line + "\n" + missing;
}

TEST(PlanTable, LayersOfNetworks) {
  if (std::string reason = why_no_cudnn("91900"); !reason.empty()) GTEST_SKIP() << reason;
  std::string table = fmt::format("{:<13}{:>7}{:>8}{:>8}{:>8}{:>8}\n", "network", "layers", "sm_80",
                                  "sm_89", "sm_90", "sm_100");
  // What cuDNN compiles takes seconds: products and attention, which it has no other kernels for.
  for (const LayerList& list : layers_of_networks())
    if (!has_driver() || list.has_products) table += line_of(list);
  const std::string path =
      has_driver() ? "tests/golden/cudnn_plans_with_driver.txt" : "tests/golden/cudnn_plans.txt";
  if (std::getenv("ANNEAL_UPDATE_GOLDEN") != nullptr) std::ofstream(path) << table;
  std::ifstream file(path);
  const std::string recorded(std::istreambuf_iterator<char>(file), {});
  EXPECT_EQ(table, recorded) << path;
}

}  // namespace
}  // namespace anneal::cuda
