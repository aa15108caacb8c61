// Listener accepts the sockets of one loopback address and hands each to a connection.
//
// Owns:     the listening socket. Its coroutine holds it until Stop.
// Threads:  its own strand; Stop from any thread, once.
// Limits:   beyond connections_max a client gets resource_exhausted and is closed. Descriptors are
//           kept back for the stores, so that they never starve.
// Errors:   as Server::Make
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"
#include "server/protobuf_connection.h"

namespace mneme::server {

// The address to bind; only loopback ones are.
Result<net::ip::address> LoopbackAddress(const std::string& address);

// Whether this address and port can be bound just now; gives them back at once. Errors as
// Server::Make.
Status CheckCanListen(const std::string& address, uint16_t port);

// At most `wanted`, leaving descriptors for the stores; raises the process's soft limit first.
uint32_t ConnectionsAllowed(uint32_t wanted);

class Listener : public std::enable_shared_from_this<Listener> {
 public:
  static Result<std::shared_ptr<Listener>> Make(net::io_context& io, const std::string& address,
                                                uint16_t port, uint32_t connections_max,
                                                House& house);

  Listener(net::io_context& io, uint32_t connections_max, House& house);

  void Start();
  void Stop();
  uint16_t port() const { return port_; }

 private:
  static net::awaitable<void> Accept(std::shared_ptr<Listener> self);
  static net::awaitable<void> TurnAway(std::shared_ptr<Listener> self, net::ip::tcp::socket socket);

  net::io_context& io_;
  net::ip::tcp::acceptor acceptor_;
  const uint32_t connections_max_;
  House& house_;
  uint16_t port_ = 0;
  uint32_t turning_away_ = 0;
  bool stopped_ = false;
};

}  // namespace mneme::server
