// ProtobufConnection is one native client: a coroutine that reads its frames, a coroutine that
// writes its events, and the calls it has in flight.
//
// Owns:     its socket and its event stream. Kept alive by its coroutines; the house only looks on.
// Threads:  everything on the connection's strand, except Start, CancelCalls and CloseNow, which
//           post to it, and the stream's wake, which comes from whoever pushes.
// Errors:   no exception leaves a coroutine. A request that fails gets its `failed` event; a frame
//           that cannot be read gets one with request_id 0, after which the connection ends. A
//           socket that fails ends the connection without words.
#pragma once

#include <atomic>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "engine/call.h"
#include "engine/event_stream.h"
#include "proto/frame.h"
#include "server/server.h"

namespace mneme::server {

namespace net = boost::asio;

class ProtobufConnection;

// House is what all connections of a server share.
//
// Threads:  any.
class House {
 public:
  House(ConnectionOptions connection_options, std::string server_version,
        engine::Service& answering_service, Clock& house_clock)
      : options(connection_options),
        version(std::move(server_version)),
        service(answering_service),
        clock(house_clock),
        started_us(house_clock.MonotonicUs()) {}

  void Enter(std::shared_ptr<ProtobufConnection> connection);
  void Leave(ProtobufConnection* connection);
  uint32_t connections() const;
  // Calls `visit` for each connection that is still there.
  template <typename Visit>
  void ForEach(Visit visit) const;

  const ConnectionOptions options;
  const std::string version;
  engine::Service& service;
  Clock& clock;
  const int64_t started_us;
  std::atomic<bool> draining{false};
  std::atomic<uint32_t> requests_in_flight{0};

 private:
  mutable std::mutex mutex_;
  std::unordered_map<ProtobufConnection*, std::weak_ptr<ProtobufConnection>> connections_;
};

class ProtobufConnection : public std::enable_shared_from_this<ProtobufConnection> {
 public:
  ProtobufConnection(net::ip::tcp::socket socket, House& house);
  ~ProtobufConnection();

  void Start();
  // The drain has lasted long enough: the engine is to end what is in flight.
  void CancelCalls();
  void CloseNow();
  // No push reaches the strand any more; for a server whose I/O threads have ended. Any thread.
  void Abandon();

 private:
  using Self = std::shared_ptr<ProtobufConnection>;

  static net::awaitable<void> Read(Self self);
  static net::awaitable<void> Write(Self self);

  void TakeFrames();
  void TakeRequest(v1::Request request);
  void StartCall(v1::Request request);
  v1::Event HealthEvent() const;
  void Refuse(uint64_t request_id, const Error& error);
  // The only event of a request that is no call.
  void AnswerAtOnce(uint64_t request_id, v1::Event event);

  // Sends `error` with request_id 0, stops reading requests, and ends once it is written.
  void SayLastWord(const Error& error);
  void ArmReadTimer();
  void OnReadTimeout();
  void ArmStallTimer();
  void OnWake();
  void Linger();
  // Frames of `events`, and the calls that end with them.
  void Encode(const std::vector<v1::Event>& events);
  void End();

  House& house_;
  net::ip::tcp::socket socket_;
  const net::any_io_executor strand_;
  const std::shared_ptr<engine::EventStream> stream_;
  proto::FrameReader frames_;
  net::steady_timer read_timer_;
  net::steady_timer stall_timer_;
  net::steady_timer wake_timer_;  // never expires: cancelled to wake the writer
  std::atomic<bool> wake_posted_{false};
  std::unordered_map<uint64_t, std::shared_ptr<engine::Call>> calls_;
  std::unordered_set<uint64_t> answered_at_once_;  // ids of no call, answered and not yet encoded
  std::string outbox_;
  uint32_t finals_in_outbox_ = 0;
  bool frame_begun_ = false;
  bool last_word_said_ = false;
  bool last_word_encoded_ = false;
  bool ended_ = false;
};

template <typename Visit>
void House::ForEach(Visit visit) const {
  std::vector<std::shared_ptr<ProtobufConnection>> here;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [address, connection] : connections_) {
      if (auto alive = connection.lock()) here.push_back(std::move(alive));
    }
  }
  for (const auto& connection : here) visit(*connection);
}

}  // namespace mneme::server
