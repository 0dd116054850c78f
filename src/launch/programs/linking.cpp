#include "launch/programs/linking.hpp"

#include <cstdio>

#include "checks/status.hpp"
#include "link/once.hpp"

namespace cutlass_fused {

void check_capture(char const* op, Device const& device, char const* alike,
                   std::function<bool()> const& is_linked) {
  STD_TORCH_CHECK(!is_capturing(device) || is_linked(), op,
                  ": a program must run once before a graph is captured, ", alike,
                  ", which links it, or be linked ahead of time by python -m "
                  "cutlass_fused.build_epilogues, got a capture first");
}

void warn_of_link(char const* op, char const* outcome, std::string const& error) {
  static auto& once = link::keep_once<bool>();
  once.get(outcome + error, [&] {
    std::fprintf(stderr, "cutlass_fused: %s: a program %s: %s\n", op, outcome, error.c_str());
    return true;
  });
}

}  // namespace cutlass_fused
