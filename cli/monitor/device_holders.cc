#include "anneal/cli/monitor/device_holders.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <set>
#include <string_view>

namespace anneal {
namespace {

namespace fs = std::filesystem;

template <class Number>
std::optional<Number> whole_number(std::string_view text) {
  Number value = 0;
  const auto end = std::from_chars(text.data(), text.data() + text.size(), value);
  if (end.ec != std::errc() || end.ptr != text.data() + text.size()) return std::nullopt;
  return value;
}

// nullopt: it is no device file of a GPU. /dev/nvidiactl is open wherever NVML is, on no GPU.
std::optional<DeviceHolder> holder_of(int pid, const std::string& file) {
  constexpr std::string_view kDevice = "/dev/nvidia";
  if (!file.starts_with(kDevice)) return std::nullopt;
  const auto minor = whole_number<unsigned>(std::string_view(file).substr(kDevice.size()));
  if (!minor && file != "/dev/nvidia-uvm") return std::nullopt;
  return DeviceHolder{pid, file, minor};
}

// The entries of a folder; none if it cannot be read.
std::vector<fs::path> entries_of(const fs::path& folder) {
  std::error_code error;
  std::vector<fs::path> found;
  fs::directory_iterator at(folder, error);
  for (; !error && at != fs::directory_iterator(); at.increment(error)) found.push_back(at->path());
  return found;
}

}  // namespace

std::vector<DeviceHolder> device_holders(const std::string& proc) {
  std::vector<DeviceHolder> holders;
  for (const fs::path& process : entries_of(proc)) {
    const auto pid = whole_number<int>(process.filename().string());
    if (!pid) continue;
    std::set<std::string> files;
    for (const fs::path& descriptor : entries_of(process / "fd")) {
      std::error_code closed_meanwhile;
      const std::string file = fs::read_symlink(descriptor, closed_meanwhile).string();
      const auto holder = holder_of(*pid, file);
      if (holder && files.insert(file).second) holders.push_back(*holder);
    }
  }
  std::ranges::sort(holders, [](const DeviceHolder& a, const DeviceHolder& b) {
    return std::pair(a.pid, a.file) < std::pair(b.pid, b.file);
  });
  return holders;
}

std::string process_name(int pid, const std::string& proc) {
  const std::string folder = fmt::format("{}/{}", proc, pid);
  std::string name;
  std::ifstream words(folder + "/cmdline", std::ios::binary);
  if (std::getline(words, name, '\0') && !name.empty()) return name;
  std::ifstream comm(folder + "/comm");
  return std::getline(comm, name) ? fmt::format("[{}]", name) : "";
}

}  // namespace anneal
