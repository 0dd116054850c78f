// What loads machine code that was compiled at run time: the driver, which a program that has a GPU
// has opened.
#pragma once

#include <cuda.h>

#include <string>

namespace cutlass_fused::link {

struct Driver {
  CUresult (*describe)(CUresult, char const** text);
  CUresult (*load)(CUlibrary*, void const* code, CUjit_option*, void** option_values,
                   unsigned options, CUlibraryOption*, void** library_option_values,
                   unsigned library_options);
  CUresult (*find)(CUkernel*, CUlibrary, char const* name);
  CUresult (*prepare)(CUfunction*, CUkernel);
  CUresult (*find_device)(CUdevice*, int ordinal);
  CUresult (*set_attribute)(CUfunction_attribute, int value, CUkernel, CUdevice);
  CUresult (*launch)(CUlaunchConfig const*, CUfunction, void** params, void** extra);
};

// Null: there is none that is new enough (CUDA 12.0).
Driver const* find_driver();

// "CUDA_ERROR_NO_BINARY_FOR_GPU"'s text.
std::string describe(Driver const& driver, CUresult result);

}  // namespace cutlass_fused::link
