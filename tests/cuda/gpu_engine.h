// Whole engines on the emulated device, or on the card that ANNEAL_TEST_DEVICE names ("cuda").
#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "anneal/engine/run/make_engine.h"
#include "anneal/kernels/cuda/backend.h"
#include "anneal/tests/engine/build_and_run.h"

namespace anneal::testing {

// Whether the card of ANNEAL_TEST_DEVICE is that of tests/virtual_card.
inline bool is_virtual_card() { return std::getenv("ANNEAL_VIRTUAL_CARD_PTX") != nullptr; }
inline std::string test_device() {
  const char* const device = std::getenv("ANNEAL_TEST_DEVICE");
  return device ? device : "emulated";
}

// What engines for the test's device are built for.
inline std::string test_target() {
  const std::string device = test_device();
  return device == "emulated" ? device : cuda_backend().open(device)->target();
}

// skip_kernels: of the options of a build.
inline EngineFile build_for(std::string_view text, std::vector<std::string> targets,
                            std::vector<std::string> skip_kernels = {}) {
  GraphBuildOptions options;
  options.targets = std::move(targets);
  options.skip_kernels = std::move(skip_kernels);
  return build_text(text, options);
}

inline std::shared_ptr<const Engine> load_on(const EngineFile& file, const std::string& device) {
  const auto bytes = std::make_shared<std::vector<std::byte>>(save(file));
  return make_engine(load_engine_file(*bytes, bytes), {.device = device});
}

inline std::shared_ptr<const Engine> gpu_engine(std::string_view text,
                                                std::vector<std::string> skip_kernels = {}) {
  return load_on(build_for(text, {test_target()}, std::move(skip_kernels)), test_device());
}
// Without them a Resize of a matrix runs on the CPU.
inline std::vector<std::string> kernels_of_matrix_resize() { return {"cuda.resize.strided"}; }

inline void expect_near(const std::map<std::string, std::vector<float>>& got,
                        const std::map<std::string, std::vector<float>>& wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  for (const auto& [name, values] : wanted) {
    ASSERT_EQ(got.at(name).size(), values.size()) << name;
    for (size_t i = 0; i < values.size(); ++i)
      ASSERT_NEAR(got.at(name)[i], values[i], 1e-4 * (1 + std::abs(values[i])))
          << name << ", element " << i;
  }
}

}  // namespace anneal::testing
