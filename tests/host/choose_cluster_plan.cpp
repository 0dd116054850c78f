// Reads lines "<rows> <columns> <ld> <offset> <element bytes> <code> <SMs>", the matrix lying so
// many bytes behind a boundary of 16, and prints how clusters hold it on chip: blocks, aligned,
// bytes of a group, rows in a thread's registers, rows of a block, bytes of shared memory.
#include <iostream>

#include "cutlass_fused/norm/on_chip/plan.hpp"

using namespace cutlass_fused;

int main() {
  Matrix x{};
  Device device{};
  device.shared_memory = 227 * 1024;
  int element_bytes;
  uintptr_t offset;
  while (std::cin >> x.rows >> x.columns >> x.ld >> offset >> element_bytes >> device.code >>
         device.sm_count) {
    x.type = element_bytes == 4 ? DataType::kFloat32 : DataType::kBFloat16;
    x.data = reinterpret_cast<void const*>(4096 + offset);
    ClusterPlan const plan = choose_cluster_plan(layout_of(x), 16, device);
    std::cout << plan.blocks << ' ' << plan.aligned << ' ' << plan.group_bytes << ' ' << plan.pieces
              << ' ' << plan.rows_per_block << ' ' << find_cluster_shared_bytes(plan) << std::endl;
  }
}
