// The CPU's kernels in order of preference: fast ones first, for each op its reference last.
#include "anneal/kernels/cpu/backend.h"

#include <algorithm>
#include <array>
#include <iterator>

#include "anneal/kernels/cpu/base/device.h"
#include "anneal/kernels/cpu/base/entries.h"
#include "anneal/kernels/cpu/onednn/onednn.h"

namespace anneal {
namespace {

constexpr KernelFamily kReferences[] = {
    cpu::reference_pointwise_entries,    //
    cpu::reference_conv_entries,         //
    cpu::reference_matmul_entries,       //
    cpu::reference_attention_entries,    //
    cpu::reference_pool_entries,         //
    cpu::reference_norm_entries,         //
    cpu::reference_reduce_entries,       //
    cpu::reference_movement_entries,     //
    cpu::reference_gather_entries,       //
    cpu::reference_resize_entries,       //
    cpu::reference_quantize_entries,     //
    cpu::reference_recurrent_entries,    //
    cpu::reference_select_entries,       //
    cpu::reference_nms_entries,          //
    cpu::reference_grid_sample_entries,  //
    cpu::reference_roi_align_entries,    //
};
constexpr KernelFamily kFast[] = {
    cpu::copy_entries,                   //
    cpu::pad_entries,                    //
    cpu::index_tuple_entries,            //
    cpu::tiled_pointwise_entries,        //
    cpu::winograd_conv_entries,          //
    cpu::onednn_conv_entries,            //
    cpu::onednn_matmul_entries,          //
    cpu::onednn_pool_entries,            //
    cpu::packed_matmul_entries,          //
    cpu::packed_attention_entries,       //
    cpu::int8_depthwise_entries,         //
    cpu::direct_conv_entries,            //
    cpu::implicit_conv_entries,          //
    cpu::nhwc_conv_entries,              //
    cpu::phased_conv_transpose_entries,  //
    cpu::nhwc_pool_entries,              //
    cpu::nhwc_resize_entries,            //
    cpu::simd_norm_entries,              //
    cpu::simd_reduce_entries,            //
    cpu::arg_reduce_entries,             //
    cpu::topk_entries,                   //
    cpu::recurrent_entries,              //
    cpu::tiled_quantize_entries,         //
};

constexpr auto kFamilies = [] {
  std::array<KernelFamily, std::size(kFast) + std::size(kReferences)> all{};
  std::copy(std::begin(kReferences), std::end(kReferences),
            std::copy(std::begin(kFast), std::end(kFast), all.begin()));
  return all;
}();

std::string libraries(Isa isa) {
  return cpu::onednn::why_unavailable(isa).empty() ? "oneDNN " + cpu::onednn::version()
                                                   : "no oneDNN";
}

std::unique_ptr<Device> open_device(std::string_view target) {
  return cpu::open_device(target, libraries);
}

constexpr Backend kBackend{DeviceKind::kCpu, open_device, kFamilies};

constexpr Backend kReferenceBackend{DeviceKind::kCpu, open_device, kReferences};

}  // namespace

const Backend& cpu_backend() { return kBackend; }
const Backend& cpu_reference_backend() { return kReferenceBackend; }
bool cpu_computes_bf16(const Device& device) { return cpu::computes_bf16(cpu::isa_of(device)); }
bool cpu_has_vnni(const Device& device) { return cpu::isa_of(device) == Isa::kFull; }

}  // namespace anneal
