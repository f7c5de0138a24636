// A libcudnn.so.9 of the functions that Anneal calls: tests load it in place of NVIDIA's
// (ANNEAL_CUDA_LIB_PATH). It checks what cuDNN's documents demand and the library often does not,
// and computes on the memory of the virtual card.
//
// ANNEAL_FAKE_CUDNN_VERSION: its version (91900); it refuses plans of others. _FAILS=load: no plan
// is loaded. _FAILS=execute: nothing runs.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string_view>

#include "anneal/tests/virtual_card/cudnn/run.h"
#include "anneal/tests/virtual_card/library_work.h"

namespace anneal::fake_cudnn {
namespace {

thread_local std::string last_error;
std::atomic<uint64_t> executions = 0;

// Handles and descriptors that the caller has.
struct Objects {
  std::mutex mutex;
  std::map<const void*, std::shared_ptr<Descriptor>> descriptors;
  std::map<const void*, std::shared_ptr<HandleObject>> handles;
};
Objects& objects() {
  static Objects* const only = new Objects;  // threads may call while the process ends
  return *only;
}

template <class T>
std::shared_ptr<T> find(std::map<const void*, std::shared_ptr<T>>& all, const void* handle,
                        const char* what) {
  if (handle == nullptr) refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, fmt::format("{}: null", what));
  const std::lock_guard lock(objects().mutex);
  const auto found = all.find(handle);
  if (found == all.end())
    refuse(CUDNN_STATUS_BAD_PARAM, fmt::format("{}: it was destroyed, or never made", what));
  return found->second;
}
std::shared_ptr<Descriptor> descriptor_of(const void* descriptor) {
  return find(objects().descriptors, descriptor, "a descriptor");
}

constexpr size_t kHandleBytes = 4096;  // of the device's memory

// The caller broke a rule that cuDNN itself would not notice: the process ends.
[[noreturn]] void report_violation(const char* what) {
  std::fprintf(stderr, "fake cuDNN: %s\n", what);
  std::fflush(stderr);
  std::abort();
}

bool fails(std::string_view what) {
  const char* const set = std::getenv("ANNEAL_FAKE_CUDNN_FAILS");
  return set != nullptr && set == what;
}

template <class Body>
Status call(const char* name, const Body& body) {
  try {
    body();
    return CUDNN_STATUS_SUCCESS;
  } catch (const Failure& failure) {
    last_error = fmt::format("{}: {}", name, failure.text);
    return failure.status;
  } catch (const std::exception& error) {
    last_error = fmt::format("{}: {}", name, error.what());
    return CUDNN_STATUS_INTERNAL_ERROR;
  }
}

template <class T>
std::shared_ptr<const T> shared_meaning(const Descriptor& d, Attribute attribute) {
  return std::static_pointer_cast<const T>(d.descriptor(attribute).meaning);
}

std::shared_ptr<const Meaning> heuristics_of(const Descriptor& d) {
  auto made = std::make_shared<HeuristicsMeaning>();
  const uint32_t mode = d.enumerator(CUDNN_ATTR_ENGINEHEUR_MODE);
  if (mode > CUDNN_HEUR_MODE_A)
    refuse(CUDNN_STATUS_BAD_PARAM, fmt::format("CUDNN_ATTR_ENGINEHEUR_MODE: {}", mode));
  made->graph = shared_meaning<GraphMeaning>(d, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
  // Without a device there are no results, and no error.
  DeviceProperties device;
  if (d.has(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP)) {
    device = d.meaning_of<PropertiesMeaning>(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP).properties;
  } else {
    try {
      device = current_properties();
    } catch (const Failure&) {
      return made;
    }
  }
  made->configs = configs_of(made->graph->graph, device);
  // The fallback is the plainest.
  if (mode == CUDNN_HEUR_MODE_FALLBACK && made->configs.size() > 1)
    made->configs.erase(made->configs.begin(), made->configs.end() - 1);
  return made;
}

std::shared_ptr<const Meaning> config_of(const Descriptor& d) {
  auto made = std::make_shared<ConfigMeaning>();
  made->engine = shared_meaning<EngineMeaning>(d, CUDNN_ATTR_ENGINECFG_ENGINE);
  made->config.engine = made->engine->engine;
  if (d.has(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES))
    for (const DescriptorRef& knob : d.value(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES).descriptors)
      if (knob->enumerator(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE) == CUDNN_KNOB_TYPE_TILE_SIZE)
        made->config.tile = knob->integer(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE);
  return made;
}

std::shared_ptr<const Meaning> finalized_plan(const Descriptor& d) {
  const DeviceProperties device =
      d.has(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP)
          ? d.meaning_of<PropertiesMeaning>(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP).properties
          : current_properties();
  auto made = std::make_shared<PlanMeaning>();
  if (d.has(CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION)) {
    if (fails("load"))
      refuse(CUDNN_STATUS_NOT_SUPPORTED, "ANNEAL_FAKE_CUDNN_FAILS: no plan is loaded");
    made->plan = plan_of(d.text(CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION), device);
    return made;
  }
  if (!d.has(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG))
    refuse(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED,
           "CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG is not set");
  const auto& config = d.meaning_of<ConfigMeaning>(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
  const OperationGraph& graph = config.engine->graph->graph;
  for (const Config& each : configs_of(graph, device))
    if (each.engine == config.config.engine && each.tile == config.config.tile) {
      made->plan = {graph, each, device};
      return made;
    }
  refuse(CUDNN_STATUS_NOT_SUPPORTED,
         fmt::format("CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG: engine {} with tile {} does not do "
                     "this graph on this device",
                     config.config.engine, config.config.tile));
}

std::shared_ptr<const Meaning> meaning_of(const Descriptor& d) {
  switch (d.type) {
    case CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR:
      return properties_of(d);
    case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR:
      return heuristics_of(d);
    case CUDNN_BACKEND_ENGINE_DESCRIPTOR: {
      auto made = std::make_shared<EngineMeaning>();
      made->graph = shared_meaning<GraphMeaning>(d, CUDNN_ATTR_ENGINE_OPERATION_GRAPH);
      made->engine = d.integer(CUDNN_ATTR_ENGINE_GLOBAL_INDEX);
      return made;
    }
    case CUDNN_BACKEND_ENGINECFG_DESCRIPTOR:
      return config_of(d);
    case CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR:
      return std::make_shared<Meaning>();
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR:
      return finalized_plan(d);
    case CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR:
      check_pack(d);
      return std::make_shared<Meaning>();
    default:
      return graph_meaning_of(d);
  }
}

Answer set_answer(const Descriptor& d, Attribute attribute) {
  const auto found = d.values.find(attribute);
  if (found == d.values.end() || found->second.type == CUDNN_TYPE_BACKEND_DESCRIPTOR)
    refuse(CUDNN_STATUS_BAD_PARAM,
           fmt::format("{} cannot be read from a {}", name_of(attribute), name_of(d.type)));
  return {found->second.type, found->second.bytes};
}

Answer text_answer(const std::string& text) {
  return answer_of(CUDNN_TYPE_CHAR, std::span<const char>(text));
}
Answer number_answer(int64_t value) {
  return answer_of(CUDNN_TYPE_INT64, std::span<const int64_t>(&value, 1));
}

Answer answer(const Descriptor& d, Attribute attribute) {
  switch (attribute) {
    case CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE:
      if (d.type != CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) break;
      return number_answer(static_cast<const PlanMeaning&>(*d.meaning).plan.config.workspace_bytes);
    case CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION:
      if (d.type != CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) break;
      return text_answer(json_of(static_cast<const PlanMeaning&>(*d.meaning).plan));
    case CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION:
      if (d.type != CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR) break;
      return text_answer(static_cast<const PropertiesMeaning&>(*d.meaning).properties.json);
    case CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE:
      if (d.type != CUDNN_BACKEND_ENGINECFG_DESCRIPTOR) break;
      return number_answer(static_cast<const ConfigMeaning&>(*d.meaning).config.workspace_bytes);
    case CUDNN_ATTR_ENGINE_NUMERICAL_NOTE:
      if (d.type != CUDNN_BACKEND_ENGINE_DESCRIPTOR) break;
      return answer_of<NumericalNote>(
          CUDNN_TYPE_NUMERICAL_NOTE,
          numerical_notes_of(static_cast<const EngineMeaning&>(*d.meaning).engine));
    case CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE:
      if (d.type != CUDNN_BACKEND_ENGINE_DESCRIPTOR) break;
      return answer_of<BehaviorNote>(
          CUDNN_TYPE_BEHAVIOR_NOTE,
          behavior_notes_of(static_cast<const EngineMeaning&>(*d.meaning).engine));
    default:
      break;
  }
  return set_answer(d, attribute);
}

// Descriptors that a call makes, in those that the caller has created for them.
std::vector<std::shared_ptr<const Meaning>> made_descriptors(const Descriptor& d,
                                                             Attribute attribute) {
  std::vector<std::shared_ptr<const Meaning>> made;
  if (d.type == CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR && attribute == CUDNN_ATTR_ENGINEHEUR_RESULTS) {
    const auto& heuristics = static_cast<const HeuristicsMeaning&>(*d.meaning);
    for (const Config& config : heuristics.configs) {
      auto engine = std::make_shared<EngineMeaning>();
      engine->graph = heuristics.graph;
      engine->engine = config.engine;
      auto each = std::make_shared<ConfigMeaning>();
      each->engine = std::move(engine);
      each->config = config;
      made.push_back(std::move(each));
    }
  } else if (d.type == CUDNN_BACKEND_ENGINECFG_DESCRIPTOR &&
             attribute == CUDNN_ATTR_ENGINECFG_ENGINE) {
    made.push_back(static_cast<const ConfigMeaning&>(*d.meaning).engine);
  } else {
    refuse(CUDNN_STATUS_BAD_PARAM,
           fmt::format("{} cannot be read from a {}", name_of(attribute), name_of(d.type)));
  }
  return made;
}

void fill_descriptors(const Descriptor& d, Attribute attribute, int64_t most, int64_t* count,
                      void* elements) {
  const auto made = made_descriptors(d, attribute);
  const bool is_heuristics = attribute == CUDNN_ATTR_ENGINEHEUR_RESULTS;
  const auto type =
      is_heuristics ? CUDNN_BACKEND_ENGINECFG_DESCRIPTOR : CUDNN_BACKEND_ENGINE_DESCRIPTOR;
  if (elements == nullptr || most == 0) {
    // The first count of cuDNN's heuristics is of candidates, and may be too large.
    *count = static_cast<int64_t>(made.size()) + (is_heuristics ? 2 : 0);
    return;
  }
  std::vector<BackendDescriptor> given(static_cast<size_t>(most));
  std::memcpy(given.data(), elements, given.size() * sizeof(given[0]));
  *count = std::min(most, static_cast<int64_t>(made.size()));
  for (size_t i = 0; i < static_cast<size_t>(*count); ++i) {
    const std::shared_ptr<Descriptor> to = descriptor_of(given[i]);
    if (to->type != type || to->is_final)
      refuse(CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE,
             fmt::format("{}: element {} is a {}, final or not of the type", name_of(attribute), i,
                         name_of(to->type)));
    to->meaning = made[i];
    if (!is_heuristics) {
      const int64_t index = static_cast<const EngineMeaning&>(*made[i]).engine;
      set_attribute(*to, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &index, {});
    }
    to->is_final = true;
  }
}

void get_attribute(const Descriptor& d, Attribute attribute, AttributeType type, int64_t most,
                   int64_t* count, void* elements) {
  if (!d.is_final)
    refuse(CUDNN_STATUS_NOT_INITIALIZED,
           fmt::format("{} of a {} that is not finalized", name_of(attribute), name_of(d.type)));
  int64_t ignored = 0;
  if (count == nullptr) count = &ignored;
  if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR)
    return fill_descriptors(d, attribute, most, count, elements);
  const Answer found = answer(d, attribute);
  if (found.type != type)
    refuse(CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE,
           fmt::format("{}: elements of type {}, not {}", name_of(attribute),
                       static_cast<int>(type), static_cast<int>(found.type)));
  const auto there = static_cast<int64_t>(found.bytes.size() / bytes_of(type));
  *count = there;
  if (elements == nullptr || most == 0) return;
  if (most < there)
    refuse(CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT,
           fmt::format("{}: room for {} elements of {}", name_of(attribute), most, there));
  std::copy(found.bytes.begin(), found.bytes.end(), static_cast<std::byte*>(elements));
}

}  // namespace

extern "C" {

// NOLINTBEGIN(readability-identifier-naming)

// For tests: the works that were put on streams.
uint64_t fake_cudnn_executions() { return executions; }

size_t cudnnGetVersion() { return static_cast<size_t>(version()); }

const char* cudnnGetErrorString(Status status) {
  switch (static_cast<uint32_t>(status)) {
#define X(name, value) \
  case value:          \
    return #name;
    FAKE_CUDNN_STATUSES(X)
#undef X
    default:
      return "CUDNN_UNKNOWN_STATUS";
  }
}

void cudnnGetLastErrorString(char* message, size_t size) {
  if (message == nullptr || size == 0) return;
  *fmt::format_to_n(message, size - 1, "{}", last_error).out = '\0';
}

Status cudnnGraphVersionCheck() { return CUDNN_STATUS_SUCCESS; }

Status cudnnCreate(Handle* handle) {
  return call("cudnnCreate", [&] {
    if (handle == nullptr) refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "null");
    auto* const device = virtual_card::function_of_card<int()>("virtual_card_current_device");
    auto made = std::make_shared<HandleObject>();
    made->device = device == nullptr ? -1 : device();
    if (made->device < 0)
      refuse(CUDNN_STATUS_NOT_INITIALIZED, "no context of the virtual card is current");
    // As cuDNN does: so a capture forbids the call, and a handle that is left is reported.
    auto* const allocate =
        virtual_card::function_of_card<cuda::CUresult(cuda::CUdeviceptr*, size_t)>("cuMemAlloc_v2");
    if (allocate(&made->memory, kHandleBytes) != cuda::CUDA_SUCCESS)
      refuse(CUDNN_STATUS_EXECUTION_FAILED_CUDA_DRIVER, "the virtual card gives no memory");
    made->user = std::this_thread::get_id();
    const std::lock_guard lock(objects().mutex);
    *handle = made.get();
    objects().handles[made.get()] = std::move(made);
  });
}

Status cudnnDestroy(Handle handle) {
  return call("cudnnDestroy", [&] {
    const std::shared_ptr<HandleObject> h = find(objects().handles, handle, "a handle");
    auto* const release =
        virtual_card::function_of_card<cuda::CUresult(cuda::CUdeviceptr)>("cuMemFree_v2");
    if (release(h->memory) != cuda::CUDA_SUCCESS)
      refuse(CUDNN_STATUS_EXECUTION_FAILED_CUDA_DRIVER,
             "the handle's memory cannot be freed: its context is not current");
    const std::lock_guard lock(objects().mutex);
    objects().handles.erase(handle);
  });
}

Status cudnnSetStream(Handle handle, cuda::CUstream stream) {
  return call("cudnnSetStream", [&] {
    const std::shared_ptr<HandleObject> h = find(objects().handles, handle, "a handle");
    h->stream = stream;
    h->user = std::this_thread::get_id();
  });
}

Status cudnnGetStream(Handle handle, cuda::CUstream* stream) {
  return call("cudnnGetStream",
              [&] { *stream = find(objects().handles, handle, "a handle")->stream; });
}

Status cudnnBackendCreateDescriptor(DescriptorType type, BackendDescriptor* descriptor) {
  return call("cudnnBackendCreateDescriptor", [&] {
    if (descriptor == nullptr) refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "null");
    if (std::string(name_of(type)) == "(none)")
      refuse(CUDNN_STATUS_NOT_SUPPORTED,
             fmt::format("the fake has no descriptors of type {}", static_cast<int>(type)));
    auto made = std::make_shared<Descriptor>();
    made->type = type;
    const std::lock_guard lock(objects().mutex);
    *descriptor = made.get();
    objects().descriptors[made.get()] = std::move(made);
  });
}

Status cudnnBackendDestroyDescriptor(BackendDescriptor descriptor) {
  return call("cudnnBackendDestroyDescriptor", [&] {
    const std::shared_ptr<Descriptor> d = descriptor_of(descriptor);
    // Its functions are unloaded with a plan of cuDNN.
    if (d->type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR && d->meaning.use_count() > 1)
      report_violation("a plan is destroyed while work of it is under way, or in a graph");
    const std::lock_guard lock(objects().mutex);
    objects().descriptors.erase(descriptor);
  });
}

Status cudnnBackendFinalize(BackendDescriptor descriptor) {
  return call("cudnnBackendFinalize", [&] {
    const std::shared_ptr<Descriptor> d = descriptor_of(descriptor);
    check_attributes(*d);
    d->meaning = meaning_of(*d);
    d->is_final = true;
  });
}

Status cudnnBackendSetAttribute(BackendDescriptor descriptor, Attribute attribute,
                                AttributeType type, int64_t count, const void* elements) {
  return call("cudnnBackendSetAttribute", [&] {
    const std::shared_ptr<Descriptor> d = descriptor_of(descriptor);
    std::vector<DescriptorRef> descriptors;
    if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR && elements != nullptr)
      for (int64_t i = 0; i < std::min<int64_t>(count, 1024); ++i) {
        BackendDescriptor each = nullptr;
        std::memcpy(&each, static_cast<const std::byte*>(elements) + i * 8, sizeof(each));
        descriptors.push_back(descriptor_of(each));
      }
    set_attribute(*d, attribute, type, count, elements, descriptors);
  });
}

Status cudnnBackendGetAttribute(BackendDescriptor descriptor, Attribute attribute,
                                AttributeType type, int64_t most, int64_t* count, void* elements) {
  return call("cudnnBackendGetAttribute", [&] {
    get_attribute(*descriptor_of(descriptor), attribute, type, most, count, elements);
  });
}

Status cudnnBackendExecute(Handle handle, BackendDescriptor plan, BackendDescriptor pack) {
  return call("cudnnBackendExecute", [&] {
    const std::shared_ptr<HandleObject> h = find(objects().handles, handle, "a handle");
    const std::shared_ptr<Descriptor> p = descriptor_of(plan), v = descriptor_of(pack);
    if (p->type != CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR ||
        v->type != CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR)
      refuse(CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE, "no plan, or no variant pack");
    if (!p->is_final || !v->is_final)
      refuse(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "the plan or the variant pack is not finalized");
    if (fails("execute"))
      refuse(CUDNN_STATUS_EXECUTION_FAILED_CUDA_DRIVER, "ANNEAL_FAKE_CUDNN_FAILS: nothing runs");
    run(*h, static_cast<const PlanMeaning&>(*p->meaning).plan, *v, p->meaning);
    ++executions;
  });
}

// NOLINTEND(readability-identifier-naming)

}  // extern "C"

}  // namespace anneal::fake_cudnn
