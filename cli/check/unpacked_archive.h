// A .tar (plain or compressed) unpacked into a private temporary folder for as long as this lives.
#pragma once
#include <string>

#include "anneal/cli/output/interrupt_watch.h"
#include "anneal/core/files/temporary_folder.h"

namespace anneal {

class UnpackedArchive {
 public:
  // Files and folders only: a member that is a link or device, has an absolute path or "..", is
  // refused, and so are more than 16 GiB. Fails with kIo or kInvalidArgument, naming the archive;
  // also when interrupted.
  UnpackedArchive(const std::string& path, InterruptWatch& interrupts);

  // Where the members lie; if they share one outermost folder, that folder.
  std::string root() const;

 private:
  TemporaryFolder folder_;
};

}  // namespace anneal
