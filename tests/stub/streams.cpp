// Streams, events, captures and graphs of the runtime.
//
// A capture knows, for each of its streams, how far it is known to have come on the others: a wait takes over what its
// event knew. At the end the stream that began must know all that every other one was given, or a stream is not joined.
#include "state.h"

static Event* find_event(cudaEvent_t event) {
  auto found = state.events.find(event);
  return found == state.events.end() ? nullptr : found->second;
}

// -- streams ---------------------------------------------------------------------------------------------------------

EXPORT cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int) {
  in_step("a stream is made");
  Stream* made = new Stream{state.device, !(flags & cudaStreamNonBlocking)};
  if (made->is_blocking) fault("a stream that waits for the default stream");
  state.streams[made] = made;
  *stream = (cudaStream_t)made;
  return cudaSuccess;
}
EXPORT cudaError_t cudaStreamCreate(cudaStream_t* stream) { return cudaStreamCreateWithPriority(stream, 0, 0); }
EXPORT cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}

EXPORT cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  Stream* found = find_stream(stream);
  if (!found) {
    fault("a stream is destroyed that is not there");
    return cudaErrorInvalidResourceHandle;
  }
  if (found->capture) fault("a stream is destroyed during its capture");
  state.streams.erase(stream);
  return cudaSuccess;
}

EXPORT cudaError_t cudaStreamGetFlags(cudaStream_t stream, unsigned* flags) {
  Stream* found = find_stream(stream);
  *flags = found && !found->is_blocking;
  return cudaSuccess;
}
EXPORT cudaError_t cudaStreamGetPriority(cudaStream_t, int* priority) {
  *priority = 0;
  return cudaSuccess;
}

EXPORT cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  in_step("the host waits for a stream");
  Stream* found = find_stream(stream);
  if (found && found->capture) return invalidate(found->capture, cudaErrorStreamCaptureUnsupported, "the host waits for a stream");
  return cudaSuccess;
}
EXPORT cudaError_t cudaStreamQuery(cudaStream_t stream) { return cudaStreamSynchronize(stream); }

EXPORT cudaError_t cudaDeviceSynchronize() {
  in_step("the host waits for a device");
  for (Capture* capture : state.captures) invalidate(capture, cudaErrorStreamCaptureUnsupported, "the host waits for a device");
  return state.captures.empty() ? cudaSuccess : cudaErrorStreamCaptureUnsupported;
}

// -- events ----------------------------------------------------------------------------------------------------------

EXPORT cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  in_step("an event is made");
  Event* made = new Event{state.device, !(flags & cudaEventDisableTiming)};
  state.events[made] = made;
  *event = (cudaEvent_t)made;
  return cudaSuccess;
}
EXPORT cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, 0); }
EXPORT cudaError_t cudaEventDestroy(cudaEvent_t event) {
  if (!state.events.erase(event)) fault("an event is destroyed that is not there");
  return cudaSuccess;
}

EXPORT cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  Event* found = find_event(event);
  Stream* on = find_stream(stream);
  if (!found || (!on && !is_default(stream))) return cudaErrorInvalidResourceHandle;
  if (found->device != (on ? on->device : state.device)) {
    fault(format("an event of device %d is recorded on a stream of device %d", found->device, on ? on->device : state.device));
    return cudaErrorInvalidResourceHandle;
  }
  found->is_recorded = true;
  found->capture = on ? on->capture : nullptr;
  found->clock.clear();
  if (!found->capture) return cudaSuccess;
  if (found->capture->is_invalid) return cudaErrorStreamCaptureInvalidated;
  found->clock = found->capture->clocks[stream];
  found->clock[stream] = found->capture->counts[stream];
  return cudaSuccess;
}

EXPORT cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  Event* found = find_event(event);
  Stream* on = find_stream(stream);
  if (!found || !on) {
    fault("a wait for an event, or of a stream, that is not there");
    return cudaErrorInvalidResourceHandle;
  }
  if (!found->is_recorded) fault("a wait for an event that was never recorded");
  Capture* capture = found->capture;
  if (on->capture && !capture) {
    if (!found->is_recorded) return cudaSuccess;
    return invalidate(on->capture, cudaErrorStreamCaptureIsolation, "a wait for an event from outside of it");
  }
  if (!capture) return cudaSuccess;
  if (!capture->is_active) {
    fault("a wait for an event of a capture that is over");
    return cudaErrorCapturedEvent;
  }
  if (on->capture && on->capture != capture) return invalidate(on->capture, cudaErrorStreamCaptureMerge, "a wait for an event of another capture");
  on->capture = capture;
  Clock& clock = capture->clocks[stream];
  for (auto& known : found->clock)
    if (clock[known.first] < known.second) clock[known.first] = known.second;
  return cudaSuccess;
}

EXPORT cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  state.counts["the host waits for an event"]++;
  Event* found = find_event(event);
  if (!found) return cudaErrorInvalidResourceHandle;
  if (!found->is_recorded) fault("the host waits for an event that was never recorded");
  if (!found->capture) return cudaSuccess;
  if (found->capture->is_active) return invalidate(found->capture, cudaErrorCapturedEvent, "the host waits for an event");
  fault("the host waits for an event of a capture");
  return cudaErrorCapturedEvent;
}
EXPORT cudaError_t cudaEventQuery(cudaEvent_t event) { return cudaEventSynchronize(event); }

EXPORT cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t first, cudaEvent_t second) {
  Event *begin = find_event(first), *end = find_event(second);
  *milliseconds = 1;
  bool is_right = begin && end && begin->is_timed && end->is_timed && begin->is_recorded && end->is_recorded;
  if (is_right && begin->device == end->device && !begin->capture && !end->capture) return cudaSuccess;
  fault("a time between events that are not of one device, timed, recorded and outside of graphs");
  return cudaErrorInvalidResourceHandle;
}

// -- captures and graphs ---------------------------------------------------------------------------------------------

EXPORT cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  Stream* found = find_stream(stream);
  if (!found) return cudaErrorInvalidResourceHandle;
  if (found->capture) return cudaErrorIllegalState;
  Capture* made = new Capture{stream};
  made->clocks[stream] = {};
  found->capture = made;
  state.captures.insert(made);
  return cudaSuccess;
}

EXPORT cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  Stream* found = find_stream(stream);
  *graph = nullptr;
  if (!found || !found->capture) return cudaErrorIllegalState;
  Capture* capture = found->capture;
  if (capture->lead != stream) return cudaErrorStreamCaptureUnmatched;
  Clock& known = capture->clocks[stream];
  bool is_joined = true;
  for (auto& each : capture->counts) is_joined = is_joined && (each.first == stream || known[each.first] >= each.second);
  for (auto& each : state.streams)
    if (each.second->capture == capture) each.second->capture = nullptr;
  capture->is_active = false;
  state.captures.erase(capture);
  if (capture->is_invalid) return cudaErrorStreamCaptureInvalidated;
  if (!is_joined) {
    fault("a stream is not joined at the end of a capture");
    return cudaErrorStreamCaptureUnjoined;
  }
  *graph = (cudaGraph_t) new Graph{capture->works};
  return cudaSuccess;
}

EXPORT cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  Stream* found = find_stream(stream);
  bool is_it = found && found->capture;
  *status = !is_it                        ? cudaStreamCaptureStatusNone
            : found->capture->is_invalid ? cudaStreamCaptureStatusInvalidated
                                          : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}

EXPORT cudaError_t cudaGraphInstantiate(cudaGraphExec_t* made, cudaGraph_t graph, unsigned long long) {
  in_step("a graph is made");
  state.counts["graphs"]++;
  *made = (cudaGraphExec_t) new Graph(*(Graph*)graph);
  return cudaSuccess;
}
EXPORT cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete (Graph*)graph;
  return cudaSuccess;
}
EXPORT cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  state.counts["graphs"]--;
  delete (Graph*)graph;
  return cudaSuccess;
}
EXPORT cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) { return cudaSuccess; }

EXPORT cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  Stream* found = find_stream(stream);
  if (!found) {
    fault("a graph is launched on a default stream");
    return cudaErrorInvalidResourceHandle;
  }
  state.counts["launches of graphs"]++;
  for (auto& work : ((Graph*)graph)->works) {
    check_pointers(work);
    if (state.is_traced) state.trace.push_back(work.line);
  }
  return cudaSuccess;
}
