#include "tests/support/raw_client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

namespace mneme::support {
namespace {

bool Readable(int socket, int wait_ms) {
  pollfd waiting{.fd = socket, .events = POLLIN, .revents = 0};
  return poll(&waiting, 1, wait_ms) > 0;
}

}  // namespace

RawClient::RawClient(uint16_t port, int receive_buffer_bytes) {
  socket_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (receive_buffer_bytes > 0) {
    setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &receive_buffer_bytes, sizeof(receive_buffer_bytes));
  }
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) Close();
}

RawClient::RawClient(RawClient&& other) noexcept : socket_(std::exchange(other.socket_, -1)) {}

RawClient::~RawClient() { Close(); }

void RawClient::Close() {
  if (socket_ >= 0) ::close(std::exchange(socket_, -1));
}

void RawClient::Reset() {
  const linger now{.l_onoff = 1, .l_linger = 0};
  setsockopt(socket_, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
  Close();
}

bool RawClient::Send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

bool RawClient::Send(const v1::Request& request) {
  std::string frame;
  proto::AppendFrame(request, frame);
  return Send(frame);
}

std::optional<v1::Event> RawClient::Receive(int wait_ms) {
  for (;;) {
    const auto message = frames_.Next();
    if (!message) return std::nullopt;
    if (*message) {
      auto event = proto::ParseEvent(**message, proto::kEventLimits);
      if (!event) return std::nullopt;
      return *std::move(event);
    }
    const MutableByteSpan space = frames_.Space();
    if (!Readable(socket_, wait_ms)) return std::nullopt;
    const ssize_t bytes = ::recv(socket_, space.data(), space.size(), 0);
    if (bytes <= 0) return std::nullopt;
    frames_.Received(static_cast<size_t>(bytes));
  }
}

std::vector<v1::Event> RawClient::ReceiveAll(uint64_t request_id, int wait_ms) {
  std::vector<v1::Event> events;
  while (auto event = Receive(wait_ms)) {
    events.push_back(*std::move(event));
    if (events.back().final() && events.back().request_id() == request_id) break;
  }
  return events;
}

size_t RawClient::ReadRaw(size_t bytes_max, int wait_ms) {
  if (!Readable(socket_, wait_ms)) return 0;
  std::string bytes(bytes_max, '\0');
  return static_cast<size_t>(std::max<ssize_t>(::recv(socket_, bytes.data(), bytes.size(), 0), 0));
}

bool RawClient::AtEnd(int wait_ms) {
  char byte = 0;
  while (Readable(socket_, wait_ms)) {
    if (::recv(socket_, &byte, 1, 0) <= 0) return true;
  }
  return false;
}

v1::Request OpenOf(uint64_t id, const std::string& session) {
  v1::Request request;
  request.set_request_id(id);
  request.mutable_open()->set_session(session);
  request.mutable_open()->set_create(true);
  return request;
}

v1::Request GenerateOf(uint64_t id, const std::string& session, const std::string& text) {
  v1::Request request;
  request.set_request_id(id);
  request.mutable_generate()->set_session(session);
  v1::Message& message =
      *request.mutable_generate()->mutable_input()->mutable_messages()->add_messages();
  message.set_role(v1::ROLE_USER);
  message.set_content(text);
  return request;
}

}  // namespace mneme::support
