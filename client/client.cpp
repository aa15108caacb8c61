#include "client/client.h"

#include <boost/asio/connect.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "proto/error_wire.h"

namespace mneme::client {
namespace {

namespace net = boost::asio;
using net::ip::tcp;
using std::chrono::milliseconds;

constexpr auto kStopPoll = milliseconds(20);
constexpr int64_t kAnswerGraceMs = 2'000;  // the server's own deadline answers first

// A request whose effect stays unknown when the connection is lost.
bool IsWrite(const v1::Request& request) {
  return request.has_append() || request.has_generate() || request.has_delete_() ||
         (request.has_open() && request.open().create());
}

v1::Event FailedEvent(uint64_t request_id, const Error& error) {
  v1::Event event;
  event.set_request_id(request_id);
  event.set_final(true);
  *event.mutable_failed()->mutable_error() = proto::ToWire(error);
  return event;
}

// Events between the client's thread and the one that waits for them.
struct Mailbox {
  std::mutex mutex;
  std::condition_variable arrived;
  std::deque<v1::Event> events;
};

}  // namespace

// The socket, and what is in flight on it. Everything below `mutex` is shared with callers; the
// rest belongs to the thread.
struct Client::Wire {
  explicit Wire(const ClientOptions& client_options) : options(client_options), socket(io) {}

  struct Waiting {
    OnEvent on_event;
    bool write = false;
  };

  Status Connect() {
    tcp::resolver resolver(io);
    std::optional<boost::system::error_code> outcome;
    resolver.async_resolve(
        options.address, std::to_string(options.port),
        [&](const boost::system::error_code& error, const tcp::resolver::results_type& found) {
          if (error) {
            outcome = error;
            return;
          }
          net::async_connect(socket, found,
                             [&](const boost::system::error_code& connect_error,
                                 const tcp::endpoint&) { outcome = connect_error; });
        });
    io.run_for(milliseconds(options.connect_ms));
    if (!outcome) {
      boost::system::error_code ignored;
      resolver.cancel();
      socket.close(ignored);
      io.restart();
      io.run_for(milliseconds(100));  // what was cancelled still refers to this frame
      return Fail(ErrorCode::kDeadlineExceeded, "connect to {} port {}: no answer within {} ms",
                  options.address, options.port, options.connect_ms);
    }
    if (*outcome) {
      return Fail(ErrorCode::kUnavailable, "connect to {} port {}: {}", options.address,
                  options.port, outcome->message());
    }
    boost::system::error_code ignored;
    socket.set_option(tcp::no_delay(true), ignored);
    return {};
  }

  void Start() {
    io.restart();
    work.emplace(io.get_executor());
    Read();
    thread = std::thread([this] { io.run(); });
  }

  void Stop() {
    net::post(io, [this] { Lose(Error(ErrorCode::kUnavailable, "the client was closed")); });
    work.reset();
    thread.join();
  }

  void Read() {
    const MutableByteSpan space = frames.Space();
    socket.async_read_some(net::buffer(space.data(), space.size()),
                           [this](const boost::system::error_code& error, size_t bytes) {
                             if (error) return Lose(LostError(error));
                             frames.Received(bytes);
                             if (TakeFrames()) Read();
                           });
  }

  static Error LostError(const boost::system::error_code& error) {
    const std::string why = error == net::error::eof ? "the server ended it" : error.message();
    return Error(ErrorCode::kUnavailable, "connection to the server lost: " + why);
  }

  bool TakeFrames() {
    for (;;) {
      const auto message = frames.Next();
      if (!message) return LoseAnd(Error(message.error()).Within("answer of the server"));
      if (!*message) return true;
      const auto event = proto::ParseEvent(**message, proto::kEventLimits);
      if (!event) return LoseAnd(Error(event.error()).Within("answer of the server"));
      if (event->request_id() == 0)
        return LoseAnd(proto::FromWire(event->failed().error()), /*said_by_server=*/true);
      Deliver(*event);
    }
  }

  bool LoseAnd(const Error& error, bool said_by_server = false) {
    Lose(error, said_by_server);
    return false;
  }

  void Deliver(const v1::Event& event) {
    OnEvent on_event;
    {
      std::lock_guard lock(mutex);
      const auto found = waiting.find(event.request_id());
      if (found == waiting.end()) return;  // ended here already
      if (event.final()) {
        on_event = std::move(found->second.on_event);
        waiting.erase(found);
      } else {
        on_event = found->second.on_event;
      }
    }
    on_event(event);
  }

  // What the server says of the whole connection holds for each request; a bare end of the stream
  // leaves writes in doubt.
  void Lose(const Error& error, bool said_by_server = false) {
    std::map<uint64_t, Waiting> ended;
    {
      std::lock_guard lock(mutex);
      if (lost) return;
      lost = error;
      ended.swap(waiting);
    }
    boost::system::error_code ignored;
    socket.close(ignored);
    for (const auto& [id, one] : ended) {
      const bool unknown = one.write && !said_by_server;
      one.on_event(FailedEvent(
          id, unknown ? Error(Reason::kOutcomeUnknown,
                              error.message() + "; whether the request was done is not known")
                      : error));
    }
  }

  void Flush() {
    if (!sending.empty()) return;
    {
      std::lock_guard lock(mutex);
      sending.swap(unsent);
    }
    if (sending.empty()) return;
    net::async_write(socket, net::buffer(sending),
                     [this](const boost::system::error_code& error, size_t) {
                       sending.clear();
                       if (error) return;  // the read that is waiting tells, after the last word
                       Flush();
                     });
  }

  const ClientOptions options;
  net::io_context io;
  tcp::socket socket;
  std::optional<net::executor_work_guard<net::io_context::executor_type>> work;
  proto::FrameReader frames{proto::kEventLimits};
  std::string sending;
  std::thread thread;

  std::mutex mutex;
  std::map<uint64_t, Waiting> waiting;
  std::string unsent;
  uint64_t next_id = 1;
  std::optional<Error> lost;
};

Result<ClientOptions> ParseServerAddress(const std::string& text) {
  ClientOptions options;
  const size_t bracket = text.rfind(']');
  const size_t colon = text.rfind(':');
  const bool has_port = colon != text.npos && (bracket == text.npos || colon > bracket);
  std::string host = text.substr(0, has_port ? colon : text.npos);
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']')
    host = host.substr(1, host.size() - 2);
  else if (host.find(':') != host.npos)
    return Fail(ErrorCode::kInvalidArgument, "server \"{}\": write [ADDRESS]:PORT for IPv6", text);
  if (!host.empty()) options.address = host;
  if (has_port) {
    const char* end = text.data() + text.size();
    const auto [at, error] = std::from_chars(text.data() + colon + 1, end, options.port);
    if (error != std::errc() || at != end || options.port == 0) {
      return Fail(ErrorCode::kInvalidArgument,
                  "server \"{}\": after the colon comes a port, 1 to 65535", text);
    }
  }
  return options;
}

Client::Client(const ClientOptions& options, std::unique_ptr<Wire> wire)
    : options_(options), wire_(std::move(wire)) {}

Result<std::unique_ptr<Client>> Client::Connect(const ClientOptions& options) {
  auto wire = std::make_unique<Wire>(options);
  MNEME_TRY(wire->Connect());
  wire->Start();
  return std::unique_ptr<Client>(new Client(options, std::move(wire)));
}

Client::~Client() { wire_->Stop(); }

bool Client::connected() const {
  std::lock_guard lock(wire_->mutex);
  return !wire_->lost;
}

Result<uint64_t> Client::Send(v1::Request request, OnEvent on_event) {
  if (request.deadline_ms() == 0) request.set_deadline_ms(options_.request_ms);
  MNEME_TRY(proto::CheckTexts(request));
  Wire& wire = *wire_;
  uint64_t id = 0;
  {
    std::lock_guard lock(wire.mutex);
    if (wire.lost) return Fail(*wire.lost);
    id = wire.next_id++;
    request.set_request_id(id);
    const size_t bytes = proto::FrameBytes(request);
    if (bytes - proto::kFrameHeaderBytes > options_.frame_bytes_max) {
      return Fail(Reason::kTooLarge, "a request of {} bytes; the most is {}", bytes,
                  options_.frame_bytes_max);
    }
    if (wire.unsent.size() + bytes > options_.unsent_bytes_max) {
      return Fail(ErrorCode::kResourceExhausted, "{} bytes wait to be sent already",
                  wire.unsent.size());
    }
    const size_t before = wire.unsent.size();
    proto::AppendFrame(request, wire.unsent);
    // What a server cannot read ends the connection, and with it the requests of others on it.
    const ByteSpan message =
        AsBytes(std::string_view(wire.unsent).substr(before + proto::kFrameHeaderBytes));
    const auto readable =
        proto::ParseRequest(message, {.frame_bytes_max = options_.frame_bytes_max});
    if (!readable) {
      wire.unsent.resize(before);
      return Fail(readable.error());
    }
    wire.waiting.emplace(id, Wire::Waiting{std::move(on_event), IsWrite(request)});
  }
  net::post(wire.io, [&wire] { wire.Flush(); });
  return id;
}

Status Client::Cancel(uint64_t request_id) {
  v1::Request request;
  request.mutable_cancel()->set_request_id(request_id);
  const auto sent = Send(std::move(request), [](const v1::Event&) {});
  if (!sent) return Fail(sent.error());
  return {};
}

Result<v1::Event> Client::Call(v1::Request request, const OnEvent& on_event,
                               const std::atomic<bool>* stop) {
  MNEME_CHECK(std::this_thread::get_id() != wire_->thread.get_id(),
              "a callback waits for another request of its client");
  const uint32_t deadline_ms =
      request.deadline_ms() == 0 ? options_.request_ms : request.deadline_ms();
  const int64_t give_up_us =
      deadline_ms == 0 ? INT64_MAX
                       : RealClock().MonotonicUs() + (deadline_ms + kAnswerGraceMs) * 1000;
  const auto mailbox = std::make_shared<Mailbox>();
  const auto id = Send(std::move(request), [mailbox](const v1::Event& event) {
    {
      std::lock_guard lock(mailbox->mutex);
      mailbox->events.push_back(event);
    }
    mailbox->arrived.notify_one();
  });
  if (!id) return Fail(id.error());
  bool stopping = false;
  for (;;) {
    std::deque<v1::Event> events;
    {
      std::unique_lock lock(mailbox->mutex);
      const auto some = [&mailbox] { return !mailbox->events.empty(); };
      mailbox->arrived.wait_for(lock, kStopPoll, some);
      events.swap(mailbox->events);
    }
    for (v1::Event& event : events) {
      if (event.final()) {
        if (event.has_failed()) return Fail(proto::FromWire(event.failed().error()));
        return std::move(event);
      }
      if (on_event) on_event(event);
    }
    if (stop != nullptr && *stop && !std::exchange(stopping, true)) {
      // When this fails the connection is lost, and the final event says so.
      static_cast<void>(Cancel(*id));
    }
    if (RealClock().MonotonicUs() > give_up_us) {
      static_cast<void>(Cancel(*id));
      return Fail(ErrorCode::kDeadlineExceeded, "no answer within {} ms", deadline_ms);
    }
  }
}

Result<v1::Opened> Client::Open(const std::string& session, bool create, const OnEvent& on_event) {
  v1::OpenRequest request;
  request.set_session(session);
  request.set_create(create);
  return Open(std::move(request), on_event);
}

Result<v1::Opened> Client::Open(v1::OpenRequest request, const OnEvent& on_event) {
  v1::Request whole;
  *whole.mutable_open() = std::move(request);
  auto event = Call(std::move(whole), on_event);
  if (!event) return Fail(std::move(event).error());
  return std::move(*event->mutable_opened());
}

Result<v1::Appended> Client::Append(v1::AppendRequest request, const OnEvent& on_event) {
  v1::Request whole;
  *whole.mutable_append() = std::move(request);
  auto event = Call(std::move(whole), on_event);
  if (!event) return Fail(std::move(event).error());
  return std::move(*event->mutable_appended());
}

Result<v1::Done> Client::Generate(v1::GenerateRequest request, const OnEvent& on_event,
                                  const std::atomic<bool>* stop) {
  v1::Request whole;
  *whole.mutable_generate() = std::move(request);
  auto event = Call(std::move(whole), on_event, stop);
  if (!event) return Fail(std::move(event).error());
  return std::move(*event->mutable_done());
}

Result<v1::StatsReply> Client::Stats(const std::string& session) {
  v1::Request whole;
  whole.mutable_stats()->set_session(session);
  auto event = Call(std::move(whole));
  if (!event) return Fail(std::move(event).error());
  return std::move(*event->mutable_stats());
}

Result<v1::Explanation> Client::Explain(v1::ExplainRequest request) {
  v1::Request whole;
  *whole.mutable_explain() = std::move(request);
  auto event = Call(std::move(whole));
  if (!event) return Fail(std::move(event).error());
  return std::move(*event->mutable_explanation());
}

Result<v1::Transcript> Client::Transcript(v1::TranscriptRequest request) {
  v1::Request whole;
  *whole.mutable_transcript() = std::move(request);
  auto event = Call(std::move(whole));
  if (!event) return Fail(std::move(event).error());
  return std::move(*event->mutable_transcript());
}

Result<v1::SessionList> Client::List(v1::ListRequest request) {
  v1::Request whole;
  *whole.mutable_list() = std::move(request);
  auto event = Call(std::move(whole));
  if (!event) return Fail(std::move(event).error());
  return std::move(*event->mutable_list());
}

Result<v1::Closed> Client::Close(const std::string& session) {
  v1::Request whole;
  whole.mutable_close()->set_session(session);
  auto event = Call(std::move(whole));
  if (!event) return Fail(std::move(event).error());
  return std::move(*event->mutable_closed());
}

Result<v1::Deleted> Client::Delete(const std::string& session) {
  v1::Request whole;
  whole.mutable_delete_()->set_session(session);
  auto event = Call(std::move(whole));
  if (!event) return Fail(std::move(event).error());
  return std::move(*event->mutable_deleted());
}

Result<v1::Health> Client::Health() {
  v1::Request whole;
  whole.mutable_health();
  auto event = Call(std::move(whole));
  if (!event) return Fail(std::move(event).error());
  return std::move(*event->mutable_health());
}

}  // namespace mneme::client
