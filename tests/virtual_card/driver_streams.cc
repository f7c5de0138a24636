// Streams, events, captures and graphs of the virtual card's libcuda.so.1.
#include <fmt/format.h>

#include <algorithm>

#include "anneal/tests/virtual_card/calls.h"
#include "anneal/tests/virtual_card/driver.h"

namespace anneal::virtual_card {
namespace {

// CUDA_ERROR_STREAM_CAPTURE_ISOLATION and CUDA_ERROR_CAPTURED_EVENT: the product needs no name of
// them.
constexpr auto kIsolation = static_cast<CUresult>(905), kCapturedEvent = static_cast<CUresult>(907);

void invalidate(Stream& stream) {
  if (stream.capture != nullptr) stream.capture->is_valid = false;
}

void refuse_capturing(Stream& stream, const char* what) {
  if (stream.capture == nullptr) return;
  invalidate(stream);
  refuse(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, fmt::format("{} of a stream that captures", what));
}

// A graph has the addresses and the functions of its capture.
void check_is_there(const Context& context, const Work& work) {
  if (work.page_locked != 0 &&
      context.page_locked(work.host_begin, work.host_end) != work.page_locked)
    report_violation(fmt::format(
        "cuGraphLaunch of a stale graph: the page-locked memory of its {} was freed", work.call));
  // A driver keeps more of the memory of a copy than its address: on an H200 a replay ended the
  // process, 2026-11-27. Nodes that launch functions hold addresses alone.
  for (const auto& [address, number] : work.allocations) {
    const ptx::GlobalMemory::Allocation* const found = context.memory.find(address);
    if (found == nullptr || found->number != number)
      report_violation(
          fmt::format("cuGraphLaunch of a stale graph: the memory of its {} was freed", work.call));
  }
  const auto is_its = [&](const auto& each) { return each.second.get() == work.module; };
  if (work.module != nullptr && std::ranges::none_of(context.modules, is_its))
    report_violation(fmt::format(
        "cuGraphLaunch of a stale graph: the module of its {} was unloaded", work.call));
}

}  // namespace

void refuse_while_capturing(const char* what) {
  Machine& m = machine();
  const auto me = std::this_thread::get_id();
  const CUstreamCaptureMode mode = caller().mode;
  if (mode == CU_STREAM_CAPTURE_MODE_RELAXED) return;
  bool is_refused = false;
  for (const Device& device : m.devices) {
    if (device.context == nullptr) continue;
    for (const auto& [handle, stream] : device.context->streams) {
      if (stream->capture == nullptr) continue;
      const Capture& capture = *stream->capture;
      const bool is_mine = capture.thread == me && capture.mode != CU_STREAM_CAPTURE_MODE_RELAXED;
      const bool is_global =
          mode == CU_STREAM_CAPTURE_MODE_GLOBAL && capture.mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
      if (!is_mine && !is_global) continue;
      invalidate(*stream);
      is_refused = true;
    }
  }
  if (is_refused)
    refuse(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, fmt::format("{} during a capture", what));
}

extern "C" {

CUresult cuStreamCreate(CUstream* stream, unsigned flags) {
  return within("cuStreamCreate", [&](Context& c) {
    std::shared_ptr<Stream> made = machine().queues.make(c);
    made->is_blocking = (flags & CU_STREAM_NON_BLOCKING) == 0;
    *stream = keep<CUstream>(c.streams, std::move(made));
  });
}
CUresult cuStreamDestroy_v2(CUstream stream) {
  return within("cuStreamDestroy", [&](Context& c) {
    const std::shared_ptr<Stream> s = object(c.streams, stream, "stream");
    // Allowed, and never meant: its end cannot be waited for.
    if (const Work* const work = Queues::find(*s))
      report_violation(
          fmt::format("cuStreamDestroy of {} while {} is under way", s->name, work->call));
    if (s->capture != nullptr)
      report_violation(fmt::format("cuStreamDestroy of {} while it captures", s->name));
    machine().queues.wait(s);
    machine().queues.destroy(s);
    c.streams.erase(stream);
  });
}
CUresult cuStreamSynchronize(CUstream stream) {
  return within("cuStreamSynchronize", [&](Context& c) {
    const std::shared_ptr<Stream> s = stream_of(c, stream);
    refuse_capturing(*s, "cuStreamSynchronize");
    if (s->is_default) give(s, {.call = "cuStreamSynchronize"});
    machine().queues.wait(s);
    c.check();
  });
}
CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned) {
  return within("cuStreamWaitEvent", [&](Context& c) {
    const std::shared_ptr<Event> e = object(c.events, event, "event");
    const std::shared_ptr<Stream> s = stream_of(c, stream);
    if (e->captured != nullptr) {
      if (s->capture.get() != e->captured)
        report_violation(
            "cuStreamWaitEvent of a captured event: the card has no captures of two "
            "streams");
      return;  // of its own stream
    }
    if (s->capture != nullptr) {
      invalidate(*s);
      refuse(kIsolation, "a stream that captures waits for an event of no capture");
    }
    if (e->recorded.stream == nullptr) return;  // an event without a record is done
    join(s->clock, e->clock);
    give(s, {.call = "cuStreamWaitEvent", .after = {e->recorded}});
  });
}
CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode) {
  return within("cuStreamBeginCapture", [&](Context& c) {
    const std::shared_ptr<Stream> s = object(c.streams, stream, "stream");
    if (s->capture != nullptr) refuse(CUDA_ERROR_ILLEGAL_STATE, "the stream captures already");
    s->capture = std::make_unique<Capture>();
    s->capture->mode = mode;
    s->capture->thread = std::this_thread::get_id();
  });
}
CUresult cuStreamEndCapture(CUstream stream, CUgraph* graph) {
  return within("cuStreamEndCapture", [&](Context& c) {
    *graph = nullptr;
    const std::shared_ptr<Stream> s = object(c.streams, stream, "stream");
    if (s->capture == nullptr)
      refuse(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, "the stream does not capture");
    if (s->capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED &&
        s->capture->thread != std::this_thread::get_id())
      report_violation("cuStreamEndCapture on another thread than cuStreamBeginCapture");
    const std::unique_ptr<Capture> capture = std::move(s->capture);
    if (!capture->is_valid)
      refuse(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "a call that may not be captured came between");
    *graph = keep<CUgraph>(c.graphs, capture->graph);
  });
}
// cuda.h does not say whether a thread without a context has a mode, so callers push one first.
CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  return call("cuThreadExchangeStreamCaptureMode", [&](Machine&, Caller& caller) {
    if (caller.contexts.empty())
      refuse(CUDA_ERROR_INVALID_CONTEXT, "no context is current to this thread");
    std::swap(caller.mode, *mode);
  });
}

CUresult cuEventCreate(CUevent* event, unsigned flags) {
  return within("cuEventCreate", [&](Context& c) {
    auto made = std::make_shared<Event>();
    made->context = &c;
    made->has_time = (flags & CU_EVENT_DISABLE_TIMING) == 0;
    *event = keep<CUevent>(c.events, std::move(made));
  });
}
CUresult cuEventDestroy_v2(CUevent event) {
  return within("cuEventDestroy", [&](Context& c) {
    object(c.events, event, "event");
    c.events.erase(event);
  });
}
CUresult cuEventRecord(CUevent event, CUstream stream) {
  return within("cuEventRecord", [&](Context& c) {
    const std::shared_ptr<Event> e = object(c.events, event, "event");
    const std::shared_ptr<Stream> s = stream_of(c, stream);
    e->captured = s->capture.get();
    if (e->captured == nullptr) give(s, {.call = "cuEventRecord", .records = e});
  });
}
CUresult cuEventSynchronize(CUevent event) {
  return within("cuEventSynchronize", [&](Context& c) {
    refuse_while_capturing("cuEventSynchronize");
    const std::shared_ptr<Event> e = object(c.events, event, "event");
    if (e->captured != nullptr)
      refuse(kCapturedEvent, "an event that was recorded during a capture");
    if (e->recorded.stream != nullptr) machine().queues.wait(Reached(e->recorded), Clock(e->clock));
    c.check();
  });
}
CUresult cuEventElapsedTime(float* milliseconds, CUevent start, CUevent end) {
  return within("cuEventElapsedTime", [&](Context& c) {
    const std::shared_ptr<Event> first = object(c.events, start, "event");
    const std::shared_ptr<Event> last = object(c.events, end, "event");
    if (!first->has_time || !last->has_time || first->recorded.stream == nullptr ||
        last->recorded.stream == nullptr)
      refuse(CUDA_ERROR_INVALID_HANDLE, "an event without a time");
    const auto is_done = [](const Event& each) {
      return each.recorded.stream->done >= each.recorded.number;
    };
    if (!is_done(*first) || !is_done(*last))
      refuse(CUDA_ERROR_NOT_READY, "an event that was not waited for");
    *milliseconds = static_cast<float>(last->milliseconds - first->milliseconds);
  });
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec* executable, CUgraph graph, unsigned long long) {
  return within("cuGraphInstantiate", [&](Context& c) {
    *executable = keep<CUgraphExec>(c.executables,
                                    std::make_shared<Graph>(*object(c.graphs, graph, "graph")));
  });
}
CUresult cuGraphUpload(CUgraphExec executable, CUstream stream) {
  return within("cuGraphUpload", [&](Context& c) {
    object(c.executables, executable, "executable graph");
    stream_of(c, stream);
  });
}
CUresult cuGraphLaunch(CUgraphExec executable, CUstream stream) {
  return within("cuGraphLaunch", [&](Context& c) {
    const std::shared_ptr<Stream> s = stream_of(c, stream);
    const std::shared_ptr<Graph> graph = object(c.executables, executable, "executable graph");
    for (const Work& work : graph->works) check_is_there(c, work);
    if (graph->launched.stream != nullptr) {
      join(s->clock, graph->clock);
      give(s, {.call = "cuGraphLaunch", .after = {graph->launched}});
    }
    for (const Work& work : graph->works) give(s, work);
    graph->launched = {s, s->added};
    graph->clock = s->clock;
  });
}
CUresult cuGraphDestroy(CUgraph graph) {
  return within("cuGraphDestroy", [&](Context& c) {
    object(c.graphs, graph, "graph");
    c.graphs.erase(graph);
  });
}
CUresult cuGraphExecDestroy(CUgraphExec executable) {
  return within("cuGraphExecDestroy", [&](Context& c) {
    object(c.executables, executable, "executable graph");
    c.executables.erase(executable);
  });
}

}  // extern "C"

}  // namespace anneal::virtual_card
