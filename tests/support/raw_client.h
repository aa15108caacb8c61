// A client made of a bare socket, for what a well-behaved one never sends.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "proto/frame.h"

namespace mneme::support {

class RawClient {
 public:
  // `receive_buffer_bytes` 0: the kernel's own choice.
  explicit RawClient(uint16_t port, int receive_buffer_bytes = 0);
  ~RawClient();
  RawClient(RawClient&& other) noexcept;
  RawClient(const RawClient&) = delete;

  bool connected() const { return socket_ >= 0; }
  // False once the other side has reset the connection.
  bool Send(std::string_view bytes);
  bool Send(const v1::Request& request);
  // The next event; nothing at the end of the stream or after `wait_ms`.
  std::optional<v1::Event> Receive(int wait_ms = 5000);
  // Events up to the final one of `request_id`.
  std::vector<v1::Event> ReceiveAll(uint64_t request_id, int wait_ms = 5000);
  // Bytes of events, at most `bytes_max`; 0 at the end of the stream.
  size_t ReadRaw(size_t bytes_max, int wait_ms = 5000);
  // The stream has ended: closed by the server, within `wait_ms`.
  bool AtEnd(int wait_ms = 5000);
  // Leaves with a reset instead of a goodbye.
  void Reset();
  void Close();

 private:
  int socket_ = -1;
  proto::FrameReader frames_{proto::kEventLimits};
};

v1::Request OpenOf(uint64_t id, const std::string& session);
v1::Request GenerateOf(uint64_t id, const std::string& session, const std::string& text);

}  // namespace mneme::support
