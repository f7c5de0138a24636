// StreamQueue: what a Stream is made of.
#pragma once
#include <memory>
#include <string>

#include "anneal/core/device.h"
#include "anneal/engine/run/async/work_queue.h"

namespace anneal {

// Members are destroyed from the last to the first: the queue ends its work before the stream goes.
struct StreamQueue {
  std::string name;                // in errors: "a CUstream", "a stream of emulated"
  std::unique_ptr<Device> device;  // of a stream of ours on a GPU
  std::unique_ptr<DeviceStream> on_device;
  bool is_of_gpu = false;
  void* native = nullptr;  // its handle, or the application's
  WorkQueue work;          // of whole runs; for a stream of a GPU, of waits for their ends
};

}  // namespace anneal
