// Processes that hold a GPU: those that compute on it, and those that only have its device files
// open, which NVML does not list.
#pragma once
#include <optional>
#include <string>
#include <vector>

namespace anneal {

struct DeviceHolder {
  int pid = 0;
  std::string file;               // "/dev/nvidia0", "/dev/nvidia-uvm"
  std::optional<unsigned> minor;  // the N of /dev/nvidiaN
};

// By process and file, each once. Files of processes of other users are visible to root alone;
// a process that ends meanwhile is left out. proc: where the file system of processes is mounted.
std::vector<DeviceHolder> device_holders(const std::string& proc = "/proc");

// The program of a process: the first word of its command line; in brackets, the kernel's name for
// it where that is empty. Empty if the process has ended or is in another PID namespace.
std::string process_name(int pid, const std::string& proc = "/proc");

}  // namespace anneal
