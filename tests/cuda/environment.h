// What tests change for a while: environment variables, and folders of their own.
#pragma once
#include <stdlib.h>

#include <filesystem>
#include <optional>
#include <string>

namespace anneal::cuda {

// What tests of kernels run on: "emulated", or the card that ANNEAL_TEST_DEVICE names ("cuda").
inline std::string device_under_test() {
  const char* const device = getenv("ANNEAL_TEST_DEVICE");
  return device == nullptr ? "emulated" : device;
}

class Setting {
 public:
  Setting(const char* name, const std::string& value) : name_(name) {
    if (const char* const before = getenv(name)) before_ = before;
    setenv(name, value.c_str(), 1);
  }
  ~Setting() {
    if (before_)
      setenv(name_, before_->c_str(), 1);
    else
      unsetenv(name_);
  }
  Setting(const Setting&) = delete;
  Setting& operator=(const Setting&) = delete;

 private:
  const char* name_;
  std::optional<std::string> before_;
};

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "anneal_test.XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::filesystem::filesystem_error(name, {});
    path_ = name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace anneal::cuda
