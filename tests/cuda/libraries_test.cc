#include "anneal/kernels/cuda/api/libraries.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "anneal/tests/cuda/environment.h"

namespace anneal::cuda {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
namespace fs = std::filesystem;

void touch(const fs::path& path) {
  fs::create_directories(path.parent_path());
  std::ofstream(path) << "no library\n";
}

TEST(Libraries, PlacesInOrder) {
  const TemporaryFolder folder;
  const fs::path mine = folder.path() / "mine", other = folder.path() / "other";
  const fs::path pip = folder.path() / "venv/lib/python3.12/site-packages/nvidia/cu13/lib";
  for (const fs::path& place : {mine, other, pip}) touch(place / "libanneal_test.so.1");
  const Setting list(
      "ANNEAL_CUDA_LIB_PATH",
      mine.string() + "::" + (folder.path() / "empty").string() + ":" + other.string());
  const Setting venv("VIRTUAL_ENV", (folder.path() / "venv").string());
  EXPECT_THAT(
      places_of("libanneal_test.so.1"),
      ElementsAre((mine / "libanneal_test.so.1").string(), (other / "libanneal_test.so.1").string(),
                  "libanneal_test.so.1", (pip / "libanneal_test.so.1").string()));
}

TEST(Libraries, ASettingNamesWhereTheyLie) {
  const Setting list("ANNEAL_CUDA_LIB_PATH", FAKE_NVML_FOLDER);
  const auto nvml = open_nvml();
  ASSERT_TRUE(nvml.table) << nvml.why_not;
  EXPECT_EQ(nvml.why_not, "");
  EXPECT_EQ(fs::canonical(nvml.path), fs::canonical(FAKE_NVML_FOLDER "/libnvidia-ml.so.1"));
  unsigned count = 0;
  EXPECT_EQ(nvml.table->nvmlDeviceGetCount_v2(&count), NVML_SUCCESS);
  EXPECT_EQ(count, 2u);
}

TEST(Libraries, AFileThatIsNoLibraryIsNamed) {
  if (places_of("libnvidia-ml.so.1").size() > 1 || nvml_library().table)
    GTEST_SKIP() << "NVML is installed here and would be found behind the bad file";
  const TemporaryFolder folder;
  touch(folder.path() / "libnvidia-ml.so.1");
  const Setting list("ANNEAL_CUDA_LIB_PATH", folder.path().string());
  const auto nvml = open_nvml();
  EXPECT_FALSE(nvml.table);
  EXPECT_THAT(nvml.why_not, HasSubstr(folder.path().string() + "/libnvidia-ml.so.1: "));
}

TEST(Libraries, AnOtherLibraryOfTheNameLacksAFunction) {
  if (places_of("libnvidia-ml.so.1").size() > 1 || nvml_library().table)
    GTEST_SKIP() << "NVML is installed here and would be found behind the wrong library";
  const TemporaryFolder folder;
  fs::create_symlink(OTHER_LIBRARY, folder.path() / "libnvidia-ml.so.1");
  const Setting list("ANNEAL_CUDA_LIB_PATH", folder.path().string());
  EXPECT_THAT(open_nvml().why_not, HasSubstr("libnvidia-ml.so.1 has no nvmlErrorString()"));
}

TEST(Libraries, ASettingSwitchesThemOff) {
  const Setting list("ANNEAL_CUDA_LIB_PATH", FAKE_NVML_FOLDER);
  const Setting off("ANNEAL_CUDA", "0");
  const auto nvml = open_nvml();
  EXPECT_FALSE(nvml.table);
  EXPECT_EQ(nvml.why_not, "libnvidia-ml.so.1: ANNEAL_CUDA=0 switches NVIDIA's libraries off");
}

// Each is there, or says in a sentence that begins with its name why not.
template <class Table>
void expect_table_or_reason(const LibraryTable<Table>& opened, const std::string& name) {
  SCOPED_TRACE(name);
  EXPECT_NE(opened.table.has_value(), opened.why_not.find(name) != std::string::npos)
      << opened.why_not;
  EXPECT_EQ(opened.table.has_value(), !opened.path.empty());
}
TEST(Libraries, EachIsThereOrSaysWhyNot) {
  expect_table_or_reason(driver_library(), "libcuda.so.1");
  expect_table_or_reason(nvrtc_library(), "libnvrtc.so.1");
  expect_table_or_reason(nvml_library(), "libnvidia-ml.so.1");
  expect_table_or_reason(cublas_lt_library(), "libcublasLt.so.13");
  expect_table_or_reason(cudnn_library(), "libcudnn.so.9");
  if (cudnn_library().table) {
    EXPECT_GE(cudnn_library().table->cudnnGetVersion(), 90000u);
  }
  if (cublas_lt_library().table) {
    EXPECT_GE(cublas_lt_library().table->cublasLtGetVersion(), 130000u);
  }
}

}  // namespace
}  // namespace anneal::cuda
