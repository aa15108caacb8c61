#include "engine/call.h"

#include "base/check.h"
#include "proto/error_wire.h"
#include "proto/frame.h"

namespace mneme::engine {

bool Call::Emit(v1::Event event) {
  MNEME_CHECK(!finished(), "request {} has ended", request_.request_id());
  event.set_request_id(request_.request_id());
  return stream_->Push(std::move(event));
}

void Call::Finish(v1::Event event) {
  MNEME_CHECK(!finished_.exchange(true), "request {} has ended", request_.request_id());
  event.set_request_id(request_.request_id());
  event.set_final(true);
  const size_t bytes = proto::FrameBytes(event);
  if (bytes > stream_->event_bytes_max()) {
    *event.mutable_failed()->mutable_error() = proto::ToWire(Error(
        Reason::kTooLarge, fmt::format("the answer has {} bytes; the most is {}: ask for less",
                                       bytes, stream_->event_bytes_max())));
  }
  stream_->Push(std::move(event));
}

void Call::Fail(const Error& error) {
  v1::Event event;
  *event.mutable_failed()->mutable_error() = proto::ToWire(error);
  Finish(std::move(event));
}

void Call::Fail(const Error& error, const v1::Head& head) {
  v1::Event event;
  *event.mutable_failed()->mutable_error() = proto::ToWire(error);
  *event.mutable_failed()->mutable_head() = head;
  Finish(std::move(event));
}

}  // namespace mneme::engine
