// What a context holds, by use.
#pragma once
#include <cstddef>
#include <vector>

namespace anneal {

template <class T>
size_t vector_bytes(const std::vector<T>& values) {
  return values.capacity() * sizeof(T);
}

// In bytes, on all devices.
struct HeldMemory {
  size_t arenas = 0;      // activations
  size_t workspaces = 0;  // of kernels
  size_t ports = 0;       // outputs without memory of the caller, states, staging of ports
  size_t late = 0;        // values whose size a run finds, and those between iterations
  size_t shapes = 0;      // sizes and addresses for the shapes that it keeps
  // Of arenas, workspaces, ports and late, the memory of GPUs; all else is memory of the host.
  size_t gpu_arenas = 0, gpu_workspaces = 0, gpu_ports = 0, gpu_late = 0;

  size_t sum() const { return arenas + workspaces + ports + late + shapes; }
  size_t on_gpu() const { return gpu_arenas + gpu_workspaces + gpu_ports + gpu_late; }
  HeldMemory& operator+=(const HeldMemory& other) {
    arenas += other.arenas;
    workspaces += other.workspaces;
    ports += other.ports;
    late += other.late;
    shapes += other.shapes;
    gpu_arenas += other.gpu_arenas;
    gpu_workspaces += other.gpu_workspaces;
    gpu_ports += other.gpu_ports;
    gpu_late += other.gpu_late;
    return *this;
  }
};

}  // namespace anneal
