// What the driver functions of the virtual card share: errors, contexts, handles and captures.
#pragma once
#include <fmt/format.h>

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <utility>

#include "anneal/tests/virtual_card/card.h"

namespace anneal::virtual_card {

[[noreturn]] inline void refuse(CUresult result, std::string text) {
  throw Refusal{result, std::move(text)};
}

template <class Body>
CUresult call(const char* name, const Body& body) {
  Machine& m = machine();
  const std::lock_guard lock(m.mutex);
  try {
    if (!m.is_initialized) refuse(CUDA_ERROR_NOT_INITIALIZED, "before cuInit");
    if (m.process != getpid())
      report_violation(fmt::format("{} in a process that was forked after cuInit", name));
    body(m, caller());
    return CUDA_SUCCESS;
  } catch (const Refusal& refusal) {
    if (std::getenv("ANNEAL_VIRTUAL_CARD_VERBOSE") != nullptr)
      std::fprintf(stderr, "virtual card: %s: %s\n", name, refusal.text.c_str());
    return refusal.result;
  } catch (const std::bad_alloc&) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  } catch (const std::exception& error) {
    report_violation(fmt::format("{}: {}", name, error.what()));
  }
}

// A call within the current context.
template <class Body>
CUresult within(const char* name, const Body& body) {
  return call(name, [&](Machine&, Caller& caller) {
    if (caller.contexts.empty())
      refuse(CUDA_ERROR_INVALID_CONTEXT, "no context is current to this thread");
    Context& context = *caller.contexts.back();
    context.check();
    body(context);
  });
}

inline int ordinal_of(const Machine& m, CUdevice device) {
  if (device < 0 || static_cast<size_t>(device) >= m.devices.size())
    refuse(CUDA_ERROR_INVALID_DEVICE, fmt::format("there is no device {}", device));
  return device;
}

template <class T, class Handle>
const std::shared_ptr<T>& object(const Objects<T>& objects, Handle handle, const char* what) {
  const auto found = objects.find(handle);
  if (found != objects.end()) return found->second;
  for (const Device& device : machine().devices)
    if (device.context != nullptr) {
      // Of another card's context: a driver refuses it, too, but the caller has mixed them up.
      const auto has = [&](const auto& all) { return all.contains(handle); };
      const Context& c = *device.context;
      if (has(c.streams) || has(c.events) || has(c.modules) || has(c.functions) || has(c.graphs) ||
          has(c.executables))
        report_violation(fmt::format("a {} of another context or kind", what));
    }
  report_violation(fmt::format("a {} that was freed, or never made", what));
}
template <class Handle, class T>
Handle keep(Objects<T>& objects, std::shared_ptr<T> made) {
  const void* const key = made.get();
  objects.emplace(key, std::move(made));
  return reinterpret_cast<Handle>(const_cast<void*>(key));
}

inline std::shared_ptr<Stream> stream_of(Context& context, CUstream stream) {
  return stream == nullptr ? context.default_stream : object(context.streams, stream, "stream");
}

// For calls that may not be made while a stream captures, by the modes of captures and threads.
void refuse_while_capturing(const char* what);

}  // namespace anneal::virtual_card
