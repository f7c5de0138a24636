// Runs a plan of the fake cuDNN on a stream of the virtual card.
#pragma once
#include <memory>
#include <thread>

#include "anneal/tests/virtual_card/cudnn/plan.h"

namespace anneal::fake_cudnn {

struct HandleObject {
  int device = 0;
  cuda::CUdeviceptr memory = 0;  // of the device, while the handle lives
  cuda::CUstream stream = nullptr;
  std::thread::id user;  // that has set the stream
};

// Fails unless the pack's lists fit each other.
void check_pack(const Descriptor& pack);
// Checks the pack's memory against the plan's tensors, and puts the work on the handle's stream.
// Fails with Failure. Who holds `user` besides the caller: works that are not done, and graphs with
// them.
void run(const HandleObject& handle, const Plan& plan, const Descriptor& pack,
         const std::shared_ptr<const Meaning>& user);

}  // namespace anneal::fake_cudnn
