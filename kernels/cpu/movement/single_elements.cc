#include "anneal/kernels/cpu/movement/single_elements.h"

#include "anneal/kernels/cpu/movement/tuples.h"

namespace anneal::cpu {
namespace {

template <class T, class Index>
void take_all(const SingleElements& one, const Index* indices, T* y, const T* x, int64_t count) {
  const int64_t size = one.x.dims[one.axis], stride = one.x.strides[one.axis];
  const int64_t x_step = one.x_step, index_step = one.index_step, y_step = one.y_step;
  if (index_step == 1 && y_step == 1 && stride == 1) {
    for (int64_t i = 0; i < count; ++i, x += x_step) y[i] = x[place_of_index(indices[i], size)];
    return;
  }
  for (int64_t i = 0; i < count; ++i, x += x_step, y += y_step, indices += index_step)
    *y = x[place_of_index(*indices, size) * stride];
}

}  // namespace

void SingleElements::take(int64_t index_at, int64_t y_at, int64_t x_at, int64_t count) const {
  visit_size(size_of(x.dtype), [&]<class T>(T) {
    const T* const from = x.as<const T>() + x_at;
    T* const to = y.as<T>() + y_at;
    if (indices.dtype == DataType::kI32)
      take_all(*this, indices.as<const int32_t>() + index_at, to, from, count);
    else
      take_all(*this, indices.as<const int64_t>() + index_at, to, from, count);
  });
}

}  // namespace anneal::cpu
