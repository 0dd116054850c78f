// What linking a program asks for around it: leave while graphs are captured, and a word where it
// failed.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <string>

#include "checks/device.hpp"

namespace cutlass_fused {

// What a call may do to have a kernel.
enum class LinkWhen {
  kNow,    // link it
  kLater,  // begin to link it, on another thread
  kNever   // find it linked: in this process, on disk, or with the library
};

// Throws where a graph is captured, in which nothing is linked, and the program is not yet: neither
// in this process nor on disk. `alike`: what a call that links it must have in common.
void check_capture(char const* op, Device const& device, char const* alike,
                   std::function<bool()> const& is_linked);

// Says on stderr what becomes of a program that cannot be linked: once for each reason, which may
// be that of many programs.
void warn_of_link(char const* op, char const* outcome, std::string const& error);

// In which the driver loads code also while a graph is captured, by this thread or another.
class LoadScope {
 public:
  LoadScope() { (void)cudaThreadExchangeStreamCaptureMode(&mode_); }
  ~LoadScope() { (void)cudaThreadExchangeStreamCaptureMode(&mode_); }
  LoadScope(LoadScope const&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;  // then that of before
};

}  // namespace cutlass_fused
