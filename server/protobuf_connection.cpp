#include "server/protobuf_connection.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <exception>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "engine/request_check.h"
#include "proto/error_wire.h"

namespace mneme::server {
namespace {

using std::chrono::milliseconds;

constexpr auto kAwait = net::as_tuple(net::use_awaitable);
constexpr size_t kWriteBytesMax = 64 * 1024;  // so that progress is seen often
constexpr uint32_t kRetryDrainingMs = 1000;
constexpr uint32_t kRetryRequestsMs = 100;

v1::Event FailedEvent(const Error& error) {
  v1::Event event;
  event.set_final(true);
  *event.mutable_failed()->mutable_error() = proto::ToWire(error);
  return event;
}

// What a coroutine does with an exception, which only a bug can throw.
void LogEscaped(std::exception_ptr escaped) {
  if (!escaped) return;
  try {
    std::rethrow_exception(escaped);
  } catch (const std::exception& exception) {
    MNEME_LOG(kError, "connection_bug", "what={}", exception.what());
  } catch (...) {
    MNEME_LOG(kError, "connection_bug", "what=unknown");
  }
}

}  // namespace

void House::Enter(std::shared_ptr<ProtobufConnection> connection) {
  std::lock_guard lock(mutex_);
  ProtobufConnection* address = connection.get();
  connections_.emplace(address, std::move(connection));
}

void House::Leave(ProtobufConnection* connection) {
  std::lock_guard lock(mutex_);
  connections_.erase(connection);
}

uint32_t House::connections() const {
  std::lock_guard lock(mutex_);
  return static_cast<uint32_t>(connections_.size());
}

ProtobufConnection::ProtobufConnection(net::ip::tcp::socket socket, House& house)
    : house_(house),
      socket_(std::move(socket)),
      strand_(socket_.get_executor()),
      stream_(std::make_shared<engine::EventStream>(house.options.output, house.clock)),
      frames_(house.options.frame),
      read_timer_(strand_),
      stall_timer_(strand_),
      wake_timer_(strand_) {}

ProtobufConnection::~ProtobufConnection() { Abandon(); }

void ProtobufConnection::Abandon() { stream_->Detach(); }

void ProtobufConnection::Start() {
  // The engine may push until Detach returns, which End calls while the coroutines still hold us.
  stream_->SetWake([this, weak = weak_from_this()] {
    if (wake_posted_.exchange(true)) return;
    net::post(strand_, [weak] {
      if (const Self self = weak.lock()) self->OnWake();
    });
  });
  wake_timer_.expires_at(net::steady_timer::time_point::max());
  const auto on_end = [self = shared_from_this()](std::exception_ptr escaped) {
    LogEscaped(escaped);
    if (escaped) self->End();  // otherwise the coroutine has said what is to happen
  };
  net::co_spawn(strand_, Read(shared_from_this()), on_end);
  net::co_spawn(strand_, Write(shared_from_this()), on_end);
}

void ProtobufConnection::CancelCalls() {
  net::post(strand_, [self = shared_from_this()] {
    for (const auto& [id, call] : self->calls_) call->Cancel();
  });
}

void ProtobufConnection::CloseNow() {
  net::post(strand_, [self = shared_from_this()] { self->End(); });
}

net::awaitable<void> ProtobufConnection::Read(Self self) {
  while (!self->ended_) {
    self->ArmReadTimer();
    const MutableByteSpan space = self->frames_.Space();
    const auto [error, bytes] =
        co_await self->socket_.async_read_some(net::buffer(space.data(), space.size()), kAwait);
    if (error) break;  // the client has gone, or the timer closed the socket
    if (self->last_word_said_) continue;
    self->frames_.Received(bytes);
    self->TakeFrames();
  }
  self->End();
}

net::awaitable<void> ProtobufConnection::Write(Self self) {
  while (!self->ended_) {
    const std::vector<v1::Event> events = self->stream_->Take();
    if (events.empty()) {
      if (self->stream_->closed()) break;
      if (self->last_word_said_) {
        self->Linger();
        co_return;  // the reader ends the connection when the client has read, or has had its time
      }
      co_await self->wake_timer_.async_wait(kAwait);
      continue;
    }
    self->Encode(events);
    for (size_t sent = 0; sent < self->outbox_.size();) {
      self->ArmStallTimer();
      const size_t part = std::min(self->outbox_.size() - sent, kWriteBytesMax);
      const auto [error, bytes] = co_await self->socket_.async_write_some(
          net::buffer(self->outbox_.data() + sent, part), kAwait);
      if (error || self->ended_) {
        self->End();
        co_return;
      }
      sent += bytes;
      self->stream_->Sent(bytes);
    }
    self->stall_timer_.cancel();
    self->house_.requests_in_flight -= std::exchange(self->finals_in_outbox_, 0);
  }
  self->End();
}

void ProtobufConnection::TakeFrames() {
  while (!last_word_said_ && !ended_) {
    const auto message = frames_.Next();
    if (!message) return SayLastWord(message.error());
    if (!*message) return;
    auto request = proto::ParseRequest(**message, house_.options.frame);
    if (!request) return SayLastWord(request.error());
    frame_begun_ = false;
    TakeRequest(*std::move(request));
  }
}

void ProtobufConnection::TakeRequest(v1::Request request) {
  const uint64_t id = request.request_id();
  if (id == 0) return SayLastWord(Error(ErrorCode::kInvalidArgument, "a request has request_id 0"));
  if (calls_.contains(id) || answered_at_once_.contains(id)) {
    return SayLastWord(
        Error(ErrorCode::kInvalidArgument, fmt::format("request_id {} is still in flight", id)));
  }
  if (const Status status = engine::CheckRequest(request, house_.options.generated_tokens_max);
      !status) {
    return Refuse(id, status.error());
  }
  if (request.has_health()) {
    return AnswerAtOnce(id, HealthEvent());
  }
  if (request.has_cancel()) {
    const auto found = calls_.find(request.cancel().request_id());
    if (found != calls_.end()) found->second->Cancel();
    v1::Event event;
    event.set_final(true);
    event.mutable_cancelled()->set_request_id(request.cancel().request_id());
    event.mutable_cancelled()->set_found(found != calls_.end());
    return AnswerAtOnce(id, std::move(event));
  }
  StartCall(std::move(request));
}

void ProtobufConnection::StartCall(v1::Request request) {
  const uint64_t id = request.request_id();
  if (house_.draining) {
    return Refuse(id, Error(Reason::kDraining, "the server is stopping; ask the next one")
                          .RetryAfter(kRetryDrainingMs));
  }
  if (calls_.size() >= house_.options.requests_max) {
    return Refuse(id,
                  Error(ErrorCode::kResourceExhausted,
                        fmt::format("{} requests are in flight on this connection", calls_.size()))
                      .RetryAfter(kRetryRequestsMs));
  }
  const int64_t deadline_us =
      request.deadline_ms() == 0
          ? 0
          : house_.clock.MonotonicUs() + int64_t{request.deadline_ms()} * 1000;
  auto call = std::make_shared<engine::Call>(std::move(request), stream_, deadline_us);
  calls_.emplace(id, call);
  ++house_.requests_in_flight;
  if (const Status status = house_.service.Submit(call); !status) call->Fail(status.error());
}

v1::Event ProtobufConnection::HealthEvent() const {
  v1::Event event;
  event.set_final(true);
  v1::Health& health = *event.mutable_health();
  health = house_.service.Health();
  if (house_.draining) health.set_state("draining");
  health.set_version(house_.version);
  health.set_uptime_seconds(static_cast<double>(house_.clock.MonotonicUs() - house_.started_us) /
                            1e6);
  return event;
}

void ProtobufConnection::Refuse(uint64_t request_id, const Error& error) {
  AnswerAtOnce(request_id, FailedEvent(error));
}

void ProtobufConnection::AnswerAtOnce(uint64_t request_id, v1::Event event) {
  event.set_request_id(request_id);
  answered_at_once_.insert(request_id);
  stream_->Push(std::move(event));
}

void ProtobufConnection::SayLastWord(const Error& error) {
  if (last_word_said_ || ended_) return;
  MNEME_LOG(kInfo, "connection_refused", "code={} reason={} message=\"{}\"", NameOf(error.code()),
            NameOf(error.reason()), error.message());
  // Nobody will hear how these end.
  for (const auto& [id, call] : calls_) call->Cancel();
  stream_->Push(FailedEvent(error));
  last_word_said_ = true;
  wake_timer_.cancel();
}

// Closing a socket that holds unread bytes would reset the connection and could take the last word
// with it; so the client gets the end of the stream first, and what it still sends is read.
void ProtobufConnection::Linger() {
  boost::system::error_code ignored;
  socket_.shutdown(net::ip::tcp::socket::shutdown_send, ignored);
  read_timer_.expires_after(milliseconds(house_.options.linger_ms));
  read_timer_.async_wait([self = shared_from_this()](const boost::system::error_code& error) {
    if (!error) self->End();
  });
}

void ProtobufConnection::ArmReadTimer() {
  if (last_word_said_) return;
  const bool midway = frames_.midway();
  if (midway && frame_begun_) return;  // the whole frame has one time, however it trickles in
  frame_begun_ = midway;
  read_timer_.expires_after(
      milliseconds(midway ? house_.options.frame_ms : house_.options.idle_ms));
  read_timer_.async_wait([weak = weak_from_this()](const boost::system::error_code& error) {
    const Self self = weak.lock();
    if (!error && self) self->OnReadTimeout();
  });
}

void ProtobufConnection::OnReadTimeout() {
  if (last_word_said_ || ended_) return;
  if (read_timer_.expiry() > net::steady_timer::clock_type::now()) return;  // armed again meanwhile
  if (frames_.midway()) {
    return SayLastWord(
        Error(ErrorCode::kDeadlineExceeded,
              fmt::format("a frame was not finished within {} ms", house_.options.frame_ms)));
  }
  if (!calls_.empty()) return ArmReadTimer();
  SayLastWord(
      Error(ErrorCode::kUnavailable,
            fmt::format("nothing was asked for {} ms; connect again", house_.options.idle_ms)));
}

void ProtobufConnection::ArmStallTimer() {
  stall_timer_.expires_after(milliseconds(house_.options.output.stall_ms));
  stall_timer_.async_wait([weak = weak_from_this()](const boost::system::error_code& error) {
    const Self self = weak.lock();
    if (error || !self || self->ended_) return;
    if (self->stall_timer_.expiry() > net::steady_timer::clock_type::now()) return;
    MNEME_LOG(kInfo, "slow_reader_cut", "limit=output_stall_ms");
    self->End();
  });
}

void ProtobufConnection::OnWake() {
  wake_posted_ = false;
  if (ended_) return;
  if (const std::string_view limit = stream_->slow_for(); !limit.empty()) {
    MNEME_LOG(kInfo, "slow_reader_cut", "limit={}", limit);
    return End();
  }
  wake_timer_.cancel();
}

void ProtobufConnection::Encode(const std::vector<v1::Event>& events) {
  outbox_.clear();
  if (outbox_.capacity() > kWriteBytesMax) outbox_.shrink_to_fit();
  for (const v1::Event& event : events) {
    // The calls that the last word cut off end too, but nobody is told: it is the last event.
    if (!last_word_encoded_) proto::AppendFrame(event, outbox_);
    last_word_encoded_ = last_word_encoded_ || event.request_id() == 0;
    if (!event.final() || answered_at_once_.erase(event.request_id()) > 0) continue;
    if (calls_.erase(event.request_id()) > 0) ++finals_in_outbox_;
  }
}

void ProtobufConnection::End() {
  if (std::exchange(ended_, true)) return;
  stream_->Detach();  // the engine sees disconnected() at its next step
  house_.requests_in_flight -=
      static_cast<uint32_t>(calls_.size()) + std::exchange(finals_in_outbox_, 0);
  calls_.clear();
  boost::system::error_code ignored;
  socket_.close(ignored);
  read_timer_.cancel();
  stall_timer_.cancel();
  wake_timer_.cancel();
  house_.Leave(this);
}

}  // namespace mneme::server
