#include "anneal/core/library.h"

#include <dlfcn.h>

namespace anneal {

std::optional<Library> Library::open(const std::string& name, std::string& why_not) {
  void* const handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle != nullptr) return Library(handle);
  const char* const reason = dlerror();
  why_not = reason != nullptr ? reason : name + " cannot be opened";
  return std::nullopt;
}

void* Library::find(const char* symbol) const { return dlsym(handle_, symbol); }

}  // namespace anneal
