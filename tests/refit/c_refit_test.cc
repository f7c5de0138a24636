// Refit and weights at load by the C interface.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "anneal/core/file.h"
#include "anneal/engine/onnx/c_builder.h"
#include "anneal/tests/refit/networks.h"

namespace anneal::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class CRefit : public ::testing::Test {
 protected:
  CRefit() {
    fs::create_directories(folder_);
    error_.size = sizeof(error_);
    options_.size = sizeof(options_);
    write_file_atomically(path("old.onnx"), model(kOld));
    write_file_atomically(path("new.onnx"), model(kNew));
  }
  ~CRefit() override { fs::remove_all(folder_); }
  std::string path(const std::string& name) const { return folder_ / name; }
  Bytes content(const std::string& name) const {
    const FileBytes file = read_file(path(name));
    return {file.bytes.begin(), file.bytes.end()};
  }
  anneal_code refit(const char* engine, const char* output) {
    const std::string to = output ? path(output) : "";
    return anneal_refit(path(engine).c_str(), path("new.onnx").c_str(),
                        output ? to.c_str() : nullptr, &options_, &error_);
  }
  anneal_code load(const std::string& weights) {
    anneal_engine_options options = {};
    options.size = sizeof(options);
    options.device = "cpu";
    const std::string file = path(weights);
    if (!weights.empty()) options.weights = file.c_str();
    anneal_engine* engine = nullptr;
    const anneal_code code =
        anneal_engine_load(path("net.engine").c_str(), &options, &engine, &error_);
    anneal_engine_free(engine);
    return code;
  }

  const fs::path folder_ =
      fs::temp_directory_path() / ("anneal_c_refit_" + std::to_string(::getpid()));
  anneal_error error_ = {};
  anneal_build_options options_ = {};
};

TEST_F(CRefit, FromFileToFile) {
  write_file_atomically(path("net.engine"), build_engine(model(kOld)).bytes);
  const Bytes expected = build_engine(model(kNew)).bytes;
  ASSERT_EQ(refit("net.engine", "new.engine"), ANNEAL_OK) << error_.message;
  EXPECT_TRUE(content("new.engine") == expected);
  EXPECT_EQ(refit("net.engine", nullptr), ANNEAL_INVALID_ARGUMENT);
  EXPECT_THAT(error_.message, HasSubstr("name a new engine"));
  write_file_atomically(path("new.onnx"), model(kNew, {.channels = 24}));
  EXPECT_EQ(refit("net.engine", "wider.engine"), ANNEAL_INVALID_MODEL);
  EXPECT_THAT(error_.message, HasSubstr("conv1"));
  EXPECT_FALSE(fs::exists(path("wider.engine")));
}

TEST_F(CRefit, WeightsApart) {
  const std::string old_weights = path("old.weights"), new_weights = path("new.weights");
  options_.weights = old_weights.c_str();
  ASSERT_EQ(anneal_build(path("old.onnx").c_str(), path("net.engine").c_str(), &options_, &error_),
            ANNEAL_OK)
      << error_.message;
  options_.weights = new_weights.c_str();
  ASSERT_EQ(refit("net.engine", nullptr), ANNEAL_OK) << error_.message;
  EXPECT_EQ(load("old.weights"), ANNEAL_OK) << error_.message;
  EXPECT_EQ(load("new.weights"), ANNEAL_OK) << error_.message;
  EXPECT_EQ(load(""), ANNEAL_INVALID_ARGUMENT);
  EXPECT_THAT(error_.message, HasSubstr("file of their own"));
  EXPECT_FALSE(content("old.weights") == content("new.weights"));
  options_.weights = nullptr;
  EXPECT_EQ(refit("net.engine", nullptr), ANNEAL_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace anneal::testing
