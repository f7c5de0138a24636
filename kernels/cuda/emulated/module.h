// Loaded functions that the host's compiler made.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "anneal/kernels/cuda/emulated/block.h"

namespace anneal::cuda {

class EmulatedModule {
 public:
  // REQUIRES: an image of host_compiler(), of this process's trust: its code is run. Fails with
  // kDevice.
  explicit EmulatedModule(const void* image);
  ~EmulatedModule();
  EmulatedModule(const EmulatedModule&) = delete;
  EmulatedModule& operator=(const EmulatedModule&) = delete;

  EmulatedFunction* find(const std::string& name);  // null if there is none
  bool owns(const EmulatedFunction* function) const;

 private:
  std::string program_;
  struct Object {
    int file;  // open as long as the object is: the loader knows objects by the paths of files
    void* handle;
  };
  static Object open(std::string_view bytes);
  std::vector<Object> objects_;
  std::unordered_map<std::string, std::unique_ptr<EmulatedFunction>> functions_;
};

}  // namespace anneal::cuda
