#include "anneal/kernels/cuda/emulated/module.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "anneal/core/fail.h"
#include "anneal/kernels/cuda/emulated/host_compiler.h"

namespace anneal::cuda {
EmulatedModule::Object EmulatedModule::open(std::string_view bytes) {
  Object object{memfd_create("anneal-host-code", MFD_CLOEXEC), nullptr};
  const auto stop = [&](const char* why) {
    const std::string text = fmt::format("cannot load code made for the host: {}", why);
    if (object.file >= 0) close(object.file);
    fail(ErrorCode::kDevice, text);
  };
  if (object.file < 0) stop(std::strerror(errno));
  while (!bytes.empty()) {
    const ssize_t written = ::write(object.file, bytes.data(), bytes.size());
    if (written < 0) stop(std::strerror(errno));
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  object.handle =
      dlopen(fmt::format("/proc/self/fd/{}", object.file).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (object.handle == nullptr) stop(dlerror());
  return object;
}

EmulatedModule::EmulatedModule(const void* image) {
  const HostImage read = read_host_image(image);
  program_ = read.program;
  for (const std::string_view bytes : read.objects) objects_.push_back(open(bytes));
}

EmulatedModule::~EmulatedModule() {
  for (const Object& object : objects_) {
    dlclose(object.handle);
    close(object.file);
  }
}

EmulatedFunction* EmulatedModule::find(const std::string& name) {
  if (const auto known = functions_.find(name); known != functions_.end())
    return known->second.get();
  for (const Object& object : objects_)
    if (void* const entry = dlsym(object.handle, (name + "_entry").c_str())) {
      auto& function = functions_[name];
      function = std::make_unique<EmulatedFunction>(
          EmulatedFunction{name, static_cast<const emulator::Entry*>(entry), program_});
      return function.get();
    }
  return nullptr;
}

bool EmulatedModule::owns(const EmulatedFunction* function) const {
  const auto known = functions_.find(function->name);
  return known != functions_.end() && known->second.get() == function;
}

}  // namespace anneal::cuda
