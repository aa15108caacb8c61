// Client is one connection to a Mneme server.
//
//   auto client = Client::Connect({.port = 7411});
//   auto opened = (*client)->Open("harbour");
//   auto done = (*client)->Generate(request, [](const v1::Event& event) { ... });
//
// Owns:     the socket and one thread that serves it.
// Threads:  any, also several at once: requests overlap. Events of Send arrive on the client's own
//           thread, which must not be made to wait for another request of this client; events of
//           the other functions arrive on the thread that called.
// Errors:   what the server answered, and
//           kUnavailable      nobody listens, or the connection was lost
//           outcome_unknown   it was lost while a write was in flight: ask again with the same
//                             idempotency key, or read the head
//           kDeadlineExceeded connecting took too long, or no answer came in time
//           too_large         the request is longer than the server takes
//           kInvalidArgument  a text of the request is not UTF-8; nothing was sent
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "proto/frame.h"
#include "proto/mneme/v1/event.pb.h"
#include "proto/mneme/v1/session.pb.h"

namespace mneme::client {

struct ClientOptions {
  std::string address = "127.0.0.1";
  uint16_t port = 7411;
  int64_t connect_ms = 5'000;
  uint32_t request_ms = 0;  // deadline of every request that names none; 0: none
  uint32_t frame_bytes_max = proto::FrameLimits().frame_bytes_max;  // of a request
  size_t unsent_bytes_max = 16 * 1024 * 1024;
};

// HOST:PORT, HOST or :PORT, [::1]:PORT; what is not named stays as in ClientOptions.
Result<ClientOptions> ParseServerAddress(const std::string& text);

class Client {
 public:
  using OnEvent = std::function<void(const v1::Event&)>;

  static Result<std::unique_ptr<Client>> Connect(const ClientOptions& options);
  // Requests in flight end with a `failed` event.
  ~Client();

  bool connected() const;

  // Sends a request and returns the id it was given. `on_event` gets each of its events, the final
  // one exactly once, also when the connection is lost.
  Result<uint64_t> Send(v1::Request request, OnEvent on_event);
  // Asks the server to stop a request, which then ends with its own final event.
  Status Cancel(uint64_t request_id);

  // Each waits for its final event. `on_event`, where given, gets those before it.
  Result<v1::Opened> Open(const std::string& session, bool create = true,
                          const OnEvent& on_event = {});
  Result<v1::Opened> Open(v1::OpenRequest request, const OnEvent& on_event = {});
  Result<v1::Appended> Append(v1::AppendRequest request, const OnEvent& on_event = {});
  // While it runs, `*stop` becoming true cancels it.
  Result<v1::Done> Generate(v1::GenerateRequest request, const OnEvent& on_event = {},
                            const std::atomic<bool>* stop = nullptr);
  // Of the server where `session` is empty.
  Result<v1::StatsReply> Stats(const std::string& session);
  Result<v1::Explanation> Explain(v1::ExplainRequest request);
  Result<v1::Transcript> Transcript(v1::TranscriptRequest request);
  Result<v1::SessionList> List(v1::ListRequest request);
  Result<v1::Closed> Close(const std::string& session);
  Result<v1::Deleted> Delete(const std::string& session);
  Result<v1::Health> Health();

  // The final event of any request; a `failed` one is the error.
  Result<v1::Event> Call(v1::Request request, const OnEvent& on_event = {},
                         const std::atomic<bool>* stop = nullptr);

 private:
  struct Wire;
  Client(const ClientOptions& options, std::unique_ptr<Wire> wire);

  const ClientOptions options_;
  const std::unique_ptr<Wire> wire_;
};

}  // namespace mneme::client
