// Shared libraries that are opened at run time and never linked. A machine without them loses speed
// only. They stay open until the process ends.
#pragma once
#include <string>

#include "anneal/core/result.h"

namespace anneal {

class Library {
 public:
  // By file name or path. Refuses with the loader's reason.
  static Result<Library> open(const std::string& name);
  // A function or object of the library or of those it needs itself; null if there is none.
  void* find(const char* symbol) const;

 private:
  explicit Library(void* handle) : handle_(handle) {}
  void* handle_;
};

}  // namespace anneal
