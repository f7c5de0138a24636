// The virtual card's state behind the driver functions: contexts, streams that work late, modules
// of interpreted functions, captures and graphs.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "anneal/kernels/cuda/api/cuda_api.h"
#include "anneal/kernels/cuda/code/cubin.h"
#include "anneal/tests/virtual_card/ptx/launch.h"
#include "anneal/tests/virtual_card/ptx/text.h"
#include "anneal/tests/virtual_card/queue.h"

namespace anneal::virtual_card {

struct Module {
  Context* context = nullptr;
  ptx::TextModule* text = nullptr;
  std::map<std::string, std::shared_ptr<struct Function>> functions;
  std::map<std::string, uint64_t> variables;  // in global memory: their addresses
  ~Module();
};

struct Function {
  Module* module = nullptr;
  ptx::Function code;
  FunctionResources resources;
  int dynamic_shared_limit = 0;
};

// Page-locked memory of the host.
struct HostMemory {
  std::unique_ptr<std::byte[]> memory;
  size_t capacity = 0;  // bytes of it
  size_t bytes = 0;
  uint64_t number = 0;  // none of the context has the same
};

template <class T>
using Objects = std::map<const void*, std::shared_ptr<T>>;

struct Context {
  Context(int device, uint64_t first_address);
  // Of at least `bytes`; its contents are undefined.
  HostMemory take_host(size_t bytes);
  Context(const Context&) = delete;
  ~Context();

  const int device;
  ptx::GlobalMemory memory;
  size_t module_variables = 0;    // allocations that belong to modules
  CUresult error = CUDA_SUCCESS;  // after which every call fails with it
  std::string fault;
  const bool reuses_addresses;  // of freed memory, as often on a card
  std::map<uint64_t, HostMemory> host;
  std::vector<HostMemory> freed_host;  // the last freed last
  Objects<Stream> streams;
  Objects<Event> events;
  Objects<Module> modules;
  Objects<Function> functions;
  Objects<Graph> graphs, executables;
  std::shared_ptr<Stream> default_stream;
  uint32_t launches = 0, streams_made = 0;
  uint64_t host_made = 0;

  void check();  // fails with the error of an earlier launch
  // The page-locked memory with all of these bytes, by its number; 0: none.
  uint64_t page_locked(uint64_t begin, uint64_t end) const;
  std::string what_is_left() const;  // of the caller's objects: "2 allocations, 1 streams"; or ""
};

struct Device {
  std::unique_ptr<Context> context;
  uint64_t next_address = 0;  // that no context of it has had; 0: there was none
  int retained = 0;
};

struct Caller {
  std::vector<Context*> contexts;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
};

struct Machine {
  std::mutex mutex;
  bool is_initialized = false;
  pid_t process = 0;  // that has called cuInit: no other can use the card
  std::vector<Device> devices;
  std::map<std::thread::id, Caller> callers;
  ptx::Arithmetic arithmetic;
  // Copies to the device read pageable host memory when they are done, not before the call returns.
  bool reads_pageable_late = false;
  const uint64_t seed;
  Queues queues;

  Machine();
};
Machine& machine();
// Of this thread. REQUIRES: the machine is locked. A thread that ends with a current context, or
// with another capture mode than that of its beginning, ends the process.
Caller& caller();

// The module of a cubin, whose PTX the NVRTC of the virtual card has kept.
std::shared_ptr<Module> load_module(Context& context, const void* image);
// Checks the launch as a driver does, and queues it.
void launch(const std::shared_ptr<Stream>& stream, const std::shared_ptr<Function>& function,
            ptx::Dim3 grid, ptx::Dim3 block, unsigned shared_bytes, void** parameters);
void copy(const std::shared_ptr<Stream>& stream, CUdeviceptr to, CUdeviceptr from, size_t bytes);
void fill(const std::shared_ptr<Stream>& stream, CUdeviceptr to, unsigned char value, size_t bytes);
// Bytes of the device. Fails with Refusal unless they are in one allocation.
struct Place {
  ptx::GlobalMemory::Allocation* allocation;
  uint64_t at;
  std::byte* data() const { return allocation->data.get() + at; }
  uint8_t* written() const { return allocation->written.get() + at; }
};
Place place_of(Context& context, uint64_t address, size_t bytes, const std::string& call);
// Now, or into the graph that is captured.
void give(const std::shared_ptr<Stream>& stream, Work work);

CUresult result_of(ptx::Fault::Kind kind);

// The figures of the card that the settings name.
int architecture();
int attribute_of(CUdevice_attribute attribute);  // fails with Refusal on an unknown one

}  // namespace anneal::virtual_card
