#include "server/listener.h"

#include <netinet/tcp.h>
#include <sys/resource.h>

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/log.h"
#include "proto/error_wire.h"

namespace mneme::server {
namespace {

using net::ip::tcp;
using std::chrono::milliseconds;

constexpr auto kAwait = net::as_tuple(net::use_awaitable);
constexpr uint32_t kReservedFiles = 256;  // RocksDB's files, logs, and a few to spare
constexpr uint32_t kTurningAwayMax = 64;  // clients that are being told we are full
constexpr auto kTurnAwayTime = milliseconds(500);
constexpr auto kAcceptPause = milliseconds(100);  // after an accept failed, say for want of memory
constexpr uint32_t kRetryFullMs = 1000;

// A peer that vanished without a word is noticed within about half a minute.
void SetKeepAlive(tcp::socket& socket) {
  boost::system::error_code ignored;
  socket.set_option(net::socket_base::keep_alive(true), ignored);
  using Seconds = net::detail::socket_option::integer<IPPROTO_TCP, TCP_KEEPIDLE>;
  using Interval = net::detail::socket_option::integer<IPPROTO_TCP, TCP_KEEPINTVL>;
  using Probes = net::detail::socket_option::integer<IPPROTO_TCP, TCP_KEEPCNT>;
  socket.set_option(Seconds(15), ignored);
  socket.set_option(Interval(5), ignored);
  socket.set_option(Probes(3), ignored);
}

tl::unexpected<Error> CannotListen(const std::string& address, uint16_t port,
                                   const boost::system::error_code& error) {
  return Fail(ErrorCode::kUnavailable, "listen on {} port {}: {}; is another server running?",
              address, port, error.message());
}

// A bound socket refuses clients until it listens.
Status Bind(tcp::acceptor& acceptor, const std::string& address, uint16_t port) {
  const Result<net::ip::address> loopback = LoopbackAddress(address);
  MNEME_TRY(loopback);
  const tcp::endpoint endpoint(*loopback, port);
  boost::system::error_code error;
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(net::socket_base::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (error) return CannotListen(address, port, error);
  return {};
}

uint32_t OpenFiles() {
  std::error_code error;
  uint32_t files = 0;
  for (std::filesystem::directory_iterator entry("/proc/self/fd", error), end;
       !error && entry != end; entry.increment(error))
    ++files;
  return files;
}

}  // namespace

Result<net::ip::address> LoopbackAddress(const std::string& address) {
  if (address == "localhost") return net::ip::address(net::ip::address_v4::loopback());
  boost::system::error_code error;
  const net::ip::address parsed = net::ip::make_address(address, error);
  if (error) {
    return Fail(ErrorCode::kInvalidArgument,
                "listen address {} cannot be read; 127.0.0.1 and ::1 are this machine", address);
  }
  if (!parsed.is_loopback()) {
    return Fail(ErrorCode::kPermissionDenied,
                "listen address {} is not of this machine alone; until keys and TLS exist only "
                "127.0.0.1 and ::1 are served",
                address);
  }
  return parsed;
}

Status CheckCanListen(const std::string& address, uint16_t port) {
  net::io_context io;
  tcp::acceptor acceptor(io);
  return Bind(acceptor, address, port);
}

uint32_t ConnectionsAllowed(uint32_t wanted) {
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return wanted;
  const rlim_t needed = rlim_t{wanted} + kReservedFiles;
  if (files.rlim_cur < needed) {
    files.rlim_cur = std::min(files.rlim_max, needed);
    setrlimit(RLIMIT_NOFILE, &files);
    getrlimit(RLIMIT_NOFILE, &files);
  }
  if (files.rlim_cur >= needed) return wanted;
  const auto files_max = static_cast<uint32_t>(files.rlim_cur);
  const uint32_t free = files_max - std::min(files_max, OpenFiles());
  // The stores open files as they grow; half of what is left is theirs, however little it is.
  const uint32_t allowed = std::max({free / 2, free - std::min(free, kReservedFiles), 1u});
  MNEME_LOG(kWarning, "connections_lowered", "wanted={} allowed={} files={}", wanted, allowed,
            files_max);
  return allowed;
}

Result<std::shared_ptr<Listener>> Listener::Make(net::io_context& io, const std::string& address,
                                                 uint16_t port, uint32_t connections_max,
                                                 House& house) {
  auto listener = std::make_shared<Listener>(io, connections_max, house);
  tcp::acceptor& acceptor = listener->acceptor_;
  MNEME_TRY(Bind(acceptor, address, port));
  boost::system::error_code error;
  acceptor.listen(net::socket_base::max_listen_connections, error);
  if (error) return CannotListen(address, port, error);
  listener->port_ = acceptor.local_endpoint(error).port();
  return listener;
}

Listener::Listener(net::io_context& io, uint32_t connections_max, House& house)
    : io_(io), acceptor_(net::make_strand(io)), connections_max_(connections_max), house_(house) {}

void Listener::Start() {
  net::co_spawn(acceptor_.get_executor(), Accept(shared_from_this()), net::detached);
}

void Listener::Stop() {
  net::post(acceptor_.get_executor(), [self = shared_from_this()] {
    self->stopped_ = true;
    boost::system::error_code ignored;
    self->acceptor_.close(ignored);
  });
}

net::awaitable<void> Listener::Accept(std::shared_ptr<Listener> self) {
  while (!self->stopped_) {
    tcp::socket socket(net::make_strand(self->io_));
    const auto [error] = co_await self->acceptor_.async_accept(socket, kAwait);
    if (self->stopped_) break;
    if (error) {
      MNEME_LOG(kWarning, "accept_failed", "why=\"{}\"", error.message());
      net::steady_timer pause(self->acceptor_.get_executor(), kAcceptPause);
      co_await pause.async_wait(kAwait);
      continue;
    }
    boost::system::error_code ignored;
    socket.set_option(tcp::no_delay(true), ignored);
    socket.set_option(net::socket_base::send_buffer_size(self->house_.options.send_buffer_bytes),
                      ignored);
    SetKeepAlive(socket);
    if (self->house_.connections() >= self->connections_max_) {
      if (self->turning_away_ < kTurningAwayMax) {
        ++self->turning_away_;
        net::co_spawn(self->acceptor_.get_executor(), TurnAway(self, std::move(socket)),
                      net::detached);
      }
      continue;
    }
    auto connection = std::make_shared<ProtobufConnection>(std::move(socket), self->house_);
    self->house_.Enter(connection);
    connection->Start();
  }
}

net::awaitable<void> Listener::TurnAway(std::shared_ptr<Listener> self, tcp::socket socket) {
  v1::Event event;
  event.set_final(true);
  *event.mutable_failed()->mutable_error() = proto::ToWire(
      Error(ErrorCode::kResourceExhausted,
            fmt::format("{} connections are open, the most there may be", self->connections_max_))
          .RetryAfter(kRetryFullMs));
  std::string frame;
  proto::AppendFrame(event, frame);
  boost::system::error_code ignored;
  socket.non_blocking(true, ignored);
  socket.write_some(net::buffer(frame), ignored);  // fits into any fresh send buffer
  socket.shutdown(tcp::socket::shutdown_send, ignored);
  net::steady_timer time(self->acceptor_.get_executor(), kTurnAwayTime);
  co_await time.async_wait(kAwait);
  --self->turning_away_;
}

}  // namespace mneme::server
