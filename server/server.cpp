#include "server/server.h"

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/log.h"
#include "server/listener.h"
#include "server/protobuf_connection.h"

namespace mneme::server {
namespace {

constexpr auto kDrainPoll = std::chrono::milliseconds(5);
// After the drain's cancel: a step, a commit and a write.
constexpr int64_t kAbortMs = 2000;
constexpr int64_t kCloseMs = 2000;

}  // namespace

struct Server::Parts {
  Parts(const ServerOptions& server_options, engine::Service& service, Clock& server_clock)
      : options(server_options),
        clock(server_clock),
        house(server_options.connection, server_options.version, service, server_clock) {}

  const ServerOptions options;
  Clock& clock;
  uint32_t connections_max = 0;
  House house;
  net::io_context io;  // after the house, which its coroutines use until it is destroyed
  std::optional<net::executor_work_guard<net::io_context::executor_type>> work;
  std::shared_ptr<Listener> listener;
  std::vector<std::thread> threads;

  // Waits until `done`, `deadline_us` or `now`; true for `done`.
  template <typename Done>
  bool WaitFor(Done done, int64_t wait_ms, const std::atomic<bool>& now) {
    const int64_t deadline_us = RealClock().MonotonicUs() + wait_ms * 1000;
    while (!done()) {
      if (now || RealClock().MonotonicUs() >= deadline_us) return false;
      std::this_thread::sleep_for(kDrainPoll);
    }
    return true;
  }

  void StopListening() {
    if (listener) listener->Stop();
    listener = nullptr;
  }

  void CloseConnections() {
    house.ForEach([](ProtobufConnection& connection) { connection.CloseNow(); });
  }
};

Server::Server(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}

Status Server::CheckCanListen(const ServerOptions& options) {
  return server::CheckCanListen(options.address, options.port);
}

Result<std::unique_ptr<Server>> Server::Make(const ServerOptions& options, engine::Service& service,
                                             Clock& clock) {
  auto parts = std::make_unique<Parts>(options, service, clock);
  parts->connections_max = ConnectionsAllowed(options.connections_max);
  auto listener = Listener::Make(parts->io, options.address, options.port, parts->connections_max,
                                 parts->house);
  if (!listener) return Fail(std::move(listener).error());
  parts->listener = *std::move(listener);
  parts->work.emplace(parts->io.get_executor());
  parts->listener->Start();
  std::unique_ptr<Server> made(new Server(std::move(parts)));  // joins threads, however many start
  made->StartThreads();
  return made;
}

void Server::StartThreads() {
  for (uint32_t i = 0; i < std::max(parts_->options.io_threads, 1u); ++i)
    parts_->threads.emplace_back([io = &parts_->io] { io->run(); });
}

Server::~Server() {
  const std::atomic<bool> never{false};
  parts_->house.draining = true;
  parts_->StopListening();
  // A connection accepted just before the listener stopped is met by a later round.
  parts_->WaitFor(
      [this] {
        parts_->CloseConnections();
        return parts_->house.connections() == 0;
      },
      kCloseMs, never);
  parts_->work.reset();
  parts_->io.stop();
  for (std::thread& thread : parts_->threads) thread.join();
  parts_->house.ForEach([](ProtobufConnection& connection) { connection.Abandon(); });
}

uint16_t Server::port() const { return parts_->listener ? parts_->listener->port() : 0; }
uint32_t Server::connections_max() const { return parts_->connections_max; }
uint32_t Server::connections() const { return parts_->house.connections(); }
uint32_t Server::requests_in_flight() const { return parts_->house.requests_in_flight; }

DrainEnd Server::Drain(const std::atomic<bool>& now) {
  Parts& parts = *parts_;
  parts.house.draining = true;
  parts.StopListening();
  MNEME_LOG(kInfo, "draining", "requests={} connections={} drain_ms={}", requests_in_flight(),
            connections(), parts.options.drain_ms);
  const auto nothing_in_flight = [this] { return requests_in_flight() == 0; };
  DrainEnd end = DrainEnd::kFinished;
  if (!parts.WaitFor(nothing_in_flight, parts.options.drain_ms, now)) {
    end = DrainEnd::kAborted;
    parts.house.ForEach([](ProtobufConnection& connection) { connection.CancelCalls(); });
    if (!parts.WaitFor(nothing_in_flight, kAbortMs, now)) end = DrainEnd::kCutShort;
  }
  parts.CloseConnections();
  const std::atomic<bool> never{false};
  parts.WaitFor([this] { return connections() == 0; }, kCloseMs, never);
  MNEME_LOG(kInfo, "drained", "end={}",
            end == DrainEnd::kFinished ? "finished"
                                       : (end == DrainEnd::kAborted ? "aborted" : "cut_short"));
  return end;
}

DrainEnd Server::RunUntilSignal() {
  std::mutex mutex;
  std::condition_variable changed;
  bool stop = false;
  std::atomic<bool> now{false};
  // Signals get a context and thread of their own: nothing delays them.
  net::io_context signals_io;
  net::signal_set signals(signals_io, SIGTERM, SIGINT);
  // The terminal is closed; but nohup had it ignored.
  struct sigaction hangup {};
  if (sigaction(SIGHUP, nullptr, &hangup) == 0 && hangup.sa_handler != SIG_IGN) signals.add(SIGHUP);
  signals.async_wait([&](const boost::system::error_code& error, int) {
    if (error) return;
    {
      std::lock_guard lock(mutex);
      stop = true;
    }
    changed.notify_one();
    signals.async_wait([&now](const boost::system::error_code& second_error, int) {
      if (!second_error) now = true;
    });
  });
  std::thread signals_thread([&signals_io] { signals_io.run(); });
  {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&stop] { return stop; });
  }
  const DrainEnd end = Drain(now);
  signals_io.stop();
  signals_thread.join();
  return end;
}

}  // namespace mneme::server
