#include "anneal/core/library.h"

#include <dlfcn.h>

namespace anneal {

Result<Library> Library::open(const std::string& name) {
  void* const handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle != nullptr) return Library(handle);
  const char* const reason = dlerror();
  return refuse(reason != nullptr ? reason : name + " cannot be opened");
}

void* Library::find(const char* symbol) const { return dlsym(handle_, symbol); }

}  // namespace anneal
