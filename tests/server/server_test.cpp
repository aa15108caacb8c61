// A server over real loopback sockets, with a service that echoes: what each client sees, and what
// it never sees of the others.
#include "server/server.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <thread>

#include "tests/support/fake_service.h"
#include "tests/support/raw_client.h"

namespace mneme::server {
namespace {

using support::FakeService;
using support::FakeServiceOptions;
using support::GenerateOf;
using support::OpenOf;
using support::RawClient;

// Polls until `done` or `wait_ms`; the milliseconds it took, -1 for never.
int64_t MsUntil(const std::function<bool()>& done, int64_t wait_ms = 5000) {
  const int64_t start_us = RealClock().MonotonicUs();
  for (;;) {
    const int64_t taken_ms = (RealClock().MonotonicUs() - start_us) / 1000;
    if (done()) return taken_ms;
    if (taken_ms > wait_ms) return -1;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

class ServerTest : public ::testing::Test {
 protected:
  void Start(FakeServiceOptions service = {}) {
    options_.port = 0;
    service_ = std::make_unique<FakeService>(service);
    auto made = Server::Make(options_, *service_);
    ASSERT_TRUE(made) << made.error().message();
    server_ = *std::move(made);
  }

  RawClient Connect() { return RawClient(server_->port()); }

  // A connection with `session` open.
  RawClient ConnectTo(const std::string& session, int receive_buffer_bytes = 0) {
    RawClient client(server_->port(), receive_buffer_bytes);
    EXPECT_TRUE(client.Send(OpenOf(1, session)));
    const auto opened = client.Receive();
    EXPECT_TRUE(opened && opened->has_opened());
    return client;
  }

  // Somebody else is still served.
  void ExpectServes() {
    RawClient other = Connect();
    v1::Request request;
    request.set_request_id(5);
    request.mutable_health();
    ASSERT_TRUE(other.Send(request));
    const auto event = other.Receive();
    ASSERT_TRUE(event);
    EXPECT_EQ(event->health().state(), "ready");
  }

  // The connection's last event, and that nothing comes after it.
  v1::Error LastWord(RawClient& client) {
    const auto event = client.Receive();
    EXPECT_TRUE(event && event->final() && event->has_failed());
    if (!event) return {};
    EXPECT_EQ(event->request_id(), 0u);
    EXPECT_TRUE(client.AtEnd());
    return event->failed().error();
  }

  ServerOptions options_;
  std::unique_ptr<FakeService> service_;
  std::unique_ptr<Server> server_;
};

TEST_F(ServerTest, StreamsAnAnswerTokenByToken) {
  Start();
  RawClient client = ConnectTo("harbour");
  ASSERT_TRUE(client.Send(GenerateOf(7, "harbour", "the blue stone")));
  const auto events = client.ReceiveAll(7);
  ASSERT_EQ(events.size(), 7u);  // started, five tokens, done
  EXPECT_TRUE(events[0].has_started());
  std::string text;
  for (size_t i = 1; i < 6; ++i) text += events[i].token().text();
  EXPECT_EQ(text, "you said: the blue stone");
  const v1::Done& done = events[6].done();
  EXPECT_EQ(done.text(), text);
  EXPECT_EQ(done.stop_reason(), "stop");
  EXPECT_EQ(done.receipt().head().turn(), 1u);
  EXPECT_EQ(done.receipt().durability(), "synced");
}

TEST_F(ServerTest, TakesAFrameInSingleBytes) {
  Start();
  RawClient client = Connect();
  std::string frame;
  proto::AppendFrame(OpenOf(3, "slowly"), frame);
  for (const char byte : frame) ASSERT_TRUE(client.Send(std::string_view(&byte, 1)));
  const auto event = client.Receive();
  ASSERT_TRUE(event);
  EXPECT_TRUE(event->opened().created());
}

TEST_F(ServerTest, OverlapsTheRequestsOfOneConnection) {
  Start({.token_us = 2000});
  RawClient client = ConnectTo("a");
  ASSERT_TRUE(client.Send(OpenOf(2, "b")));
  ASSERT_TRUE(client.Receive());
  ASSERT_TRUE(client.Send(GenerateOf(10, "a", "count 30")));
  ASSERT_TRUE(client.Send(GenerateOf(11, "b", "count 30")));
  v1::Request stats;
  stats.set_request_id(12);
  stats.mutable_stats();
  ASSERT_TRUE(client.Send(stats));
  std::string order;
  int ended = 0;
  while (ended < 3) {
    const auto event = client.Receive();
    ASSERT_TRUE(event);
    if (event->final()) ++ended;
    order.push_back("abS"[event->request_id() - 10]);
  }
  EXPECT_LT(order.find('S'), 10u) << "a read waits for no generation: " << order;
  EXPECT_LT(order.find("ab"), order.size()) << order;
  EXPECT_LT(order.find("ba"), order.size()) << order;
}

TEST_F(ServerTest, RefusesASecondWriterAtOnce) {
  Start({.token_us = 10'000});
  RawClient first = ConnectTo("one");
  RawClient second = ConnectTo("one");
  ASSERT_TRUE(first.Send(GenerateOf(2, "one", "count 50")));
  ASSERT_TRUE(first.Receive());
  ASSERT_TRUE(second.Send(GenerateOf(2, "one", "hello")));
  const auto refused = second.Receive();
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->failed().error().reason(), "session_busy");
  EXPECT_EQ(refused->failed().error().code(), "conflict");
}

TEST_F(ServerTest, CancelsOneRequestAndLeavesTheOther) {
  Start({.token_us = 2000});
  RawClient client = ConnectTo("a");
  ASSERT_TRUE(client.Send(OpenOf(2, "b")));
  ASSERT_TRUE(client.Receive());
  ASSERT_TRUE(client.Send(GenerateOf(10, "a", "count 100000")));
  ASSERT_TRUE(client.Send(GenerateOf(11, "b", "count 40")));
  v1::Request cancel;
  cancel.set_request_id(12);
  cancel.mutable_cancel()->set_request_id(10);
  ASSERT_TRUE(client.Send(cancel));
  std::string ended;
  while (ended.size() < 3) {
    const auto event = client.Receive();
    ASSERT_TRUE(event);
    if (!event->final()) continue;
    if (event->has_cancelled()) {
      EXPECT_TRUE(event->cancelled().found());
    }
    if (event->request_id() == 10) {
      EXPECT_EQ(event->failed().error().code(), "cancelled");
    }
    if (event->request_id() == 11) {
      EXPECT_EQ(event->done().generated_tokens(), 40u);
    }
    ended.push_back(static_cast<char>('a' + event->request_id() - 10));
  }
  EXPECT_EQ(ended.back(), 'b') << "the cancelled one ended first";
}

TEST_F(ServerTest, KeepsWhatWasGeneratedWhenACancelAsksForThat) {
  Start({.token_us = 2000});
  RawClient client = ConnectTo("a");
  v1::Request generate = GenerateOf(10, "a", "count 100000");
  generate.mutable_generate()->set_on_disconnect(v1::ON_DISCONNECT_KEEP);
  ASSERT_TRUE(client.Send(generate));
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(client.Receive());
  v1::Request cancel;
  cancel.set_request_id(12);
  cancel.mutable_cancel()->set_request_id(10);
  ASSERT_TRUE(client.Send(cancel));
  const auto events = client.ReceiveAll(10);
  ASSERT_FALSE(events.empty());
  EXPECT_EQ(events.back().done().stop_reason(), "cancelled");
  EXPECT_TRUE(events.back().done().truncated());
  EXPECT_EQ(events.back().done().receipt().head().turn(), 1u);
}

TEST_F(ServerTest, SaysThatThereIsNothingToCancel) {
  Start();
  RawClient client = Connect();
  v1::Request cancel;
  cancel.set_request_id(1);
  cancel.mutable_cancel()->set_request_id(99);
  ASSERT_TRUE(client.Send(cancel));
  const auto event = client.Receive();
  ASSERT_TRUE(event && event->has_cancelled());
  EXPECT_FALSE(event->cancelled().found());
}

TEST_F(ServerTest, HandsTheDeadlineToTheService) {
  Start({.token_us = 5000});
  RawClient client = ConnectTo("a");
  v1::Request generate = GenerateOf(10, "a", "count 100000");
  generate.set_deadline_ms(50);
  const int64_t start_us = RealClock().MonotonicUs();
  ASSERT_TRUE(client.Send(generate));
  const auto events = client.ReceiveAll(10);
  ASSERT_FALSE(events.empty());
  EXPECT_EQ(events.back().failed().error().code(), "deadline_exceeded");
  const int64_t taken_ms = (RealClock().MonotonicUs() - start_us) / 1000;
  EXPECT_GE(taken_ms, 50);
  EXPECT_LT(taken_ms, 2000);
}

TEST_F(ServerTest, RefusesAnOversizedFrameAndServesTheOthers) {
  Start({.token_us = 2000});
  RawClient other = ConnectTo("other");
  ASSERT_TRUE(other.Send(GenerateOf(2, "other", "count 30")));
  RawClient client = Connect();
  ASSERT_TRUE(client.Send(std::string("\xff\xff\xff\x7f", 4)));
  const v1::Error error = LastWord(client);
  EXPECT_EQ(error.reason(), "too_large");
  EXPECT_EQ(error.message(), "a frame of 2147483647 bytes; the most is 1048576");
  EXPECT_EQ(other.ReceiveAll(2).back().done().generated_tokens(), 30u);
}

TEST_F(ServerTest, GetsItsLastWordThroughToAClientThatGoesOnSending) {
  Start();
  RawClient client = Connect();
  ASSERT_TRUE(client.Send(std::string("\xff\xff\xff\x7f", 4)));
  for (int i = 0; i < 50; ++i) client.Send(std::string(4096, 'x'));
  EXPECT_EQ(LastWord(client).reason(), "too_large");
}

TEST_F(ServerTest, RefusesAMalformedFrame) {
  Start();
  RawClient client = Connect();
  ASSERT_TRUE(client.Send(std::string("\x03\x00\x00\x00\x0b\x0b\x0b", 7)));
  EXPECT_EQ(LastWord(client).code(), "invalid_argument");
  ExpectServes();
}

TEST_F(ServerTest, RefusesARequestWithoutANumberOrWithOneInFlight) {
  Start({.token_us = 10'000});
  RawClient client = Connect();
  ASSERT_TRUE(client.Send(OpenOf(0, "a")));
  EXPECT_EQ(LastWord(client).message(), "a request has request_id 0");
  RawClient second = ConnectTo("a");
  ASSERT_TRUE(second.Send(GenerateOf(2, "a", "count 1000")));
  ASSERT_TRUE(second.Receive());
  ASSERT_TRUE(second.Send(OpenOf(2, "a")));
  const auto events = second.ReceiveAll(0);
  ASSERT_FALSE(events.empty());
  EXPECT_EQ(events.back().failed().error().message(), "request_id 2 is still in flight");
  std::string packet;  // else the refusal's end would take the answer out of the books
  proto::AppendFrame(OpenOf(7, "\n"), packet);
  proto::AppendFrame(GenerateOf(7, "a", "count 1000"), packet);
  RawClient third = ConnectTo("a");
  ASSERT_TRUE(third.Send(packet));
  ASSERT_TRUE(third.Receive()->has_failed());
  EXPECT_EQ(LastWord(third).message(), "request_id 7 is still in flight");
}

TEST_F(ServerTest, NothingFollowsTheLastWord) {
  Start({.token_us = 50});
  for (int round = 0; round < 20; ++round) {
    std::vector<RawClient> clients;
    for (int number = 0; number < 8; ++number) {
      const std::string session = fmt::format("s{}", number);
      clients.push_back(ConnectTo(session));
      ASSERT_TRUE(clients.back().Send(GenerateOf(2, session, "count 100000")));
    }
    for (RawClient& client : clients) ASSERT_TRUE(client.Send(OpenOf(2, "a")));
    for (RawClient& client : clients) {
      const auto events = client.ReceiveAll(0);
      ASSERT_FALSE(events.empty());
      EXPECT_EQ(events.back().request_id(), 0u);
      EXPECT_FALSE(client.Receive());
      EXPECT_TRUE(client.AtEnd());
    }
  }
}

TEST_F(ServerTest, RefusesFieldsOutOfRangeAndGoesOn) {
  Start();
  RawClient client = Connect();
  ASSERT_TRUE(client.Send(OpenOf(1, "a/b")));
  const auto refused = client.Receive();
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->request_id(), 1u);
  EXPECT_EQ(refused->failed().error().code(), "invalid_argument");
  ASSERT_TRUE(client.Send(OpenOf(2, "ab")));
  const auto opened = client.Receive();
  ASSERT_TRUE(opened);
  EXPECT_TRUE(opened->has_opened());
}

TEST_F(ServerTest, EndsAFrameThatIsNeverFinished) {
  options_.connection.frame_ms = 100;
  Start();
  RawClient client = Connect();
  for (int i = 0; i < 4; ++i) {  // trickling does not win more time
    client.Send(std::string("\x40\x00\x00\x00", 4).substr(static_cast<size_t>(i), 1));
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_EQ(LastWord(client).code(), "deadline_exceeded");
}

TEST_F(ServerTest, EndsAConnectionOnWhichNothingIsAsked) {
  options_.connection.idle_ms = 50;
  Start({.token_us = 5000});
  RawClient idle = Connect();
  RawClient busy = ConnectTo("a");
  ASSERT_TRUE(busy.Send(GenerateOf(2, "a", "count 40")));  // 200 ms without a request
  EXPECT_EQ(LastWord(idle).code(), "unavailable");
  EXPECT_EQ(busy.ReceiveAll(2).back().done().generated_tokens(), 40u);
}

TEST_F(ServerTest, BoundsTheRequestsInFlightOnAConnection) {
  options_.connection.requests_max = 4;
  Start();
  service_->SetStuck(true);
  RawClient client = Connect();
  for (uint64_t id = 1; id <= 5; ++id) ASSERT_TRUE(client.Send(OpenOf(id, "a")));
  const auto refused = client.Receive();
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->request_id(), 5u);
  EXPECT_EQ(refused->failed().error().code(), "resource_exhausted");
  EXPECT_GT(refused->failed().error().retry_after_ms(), 0u);
  service_->SetStuck(false);
  EXPECT_EQ(client.ReceiveAll(4).size(), 4u);
}

TEST_F(ServerTest, RefusesAtOnceWhenTheQueueIsFullAndStillAnswersHealth) {
  Start({.queue_max = 2});
  service_->SetStuck(true);
  RawClient client = Connect();
  for (uint64_t id = 1; id <= 3; ++id) ASSERT_TRUE(client.Send(OpenOf(id, "a")));
  const auto refused = client.Receive(100);
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->request_id(), 3u);
  EXPECT_EQ(refused->failed().error().code(), "resource_exhausted");
  EXPECT_GT(refused->failed().error().retry_after_ms(), 0u);
  const int64_t start_us = RealClock().MonotonicUs();
  ExpectServes();
  EXPECT_LT(RealClock().MonotonicUs() - start_us, 500'000);
  service_->SetStuck(false);
  EXPECT_EQ(client.ReceiveAll(2).size(), 2u);
}

TEST_F(ServerTest, PausesForASlowReaderCutsItAndLeavesTheOthersTheirPace) {
  options_.connection.output.stall_ms = 1500;
  Start({.token_us = 500, .token_bytes = 8000});
  RawClient slow = ConnectTo("slow", /*receive_buffer_bytes=*/4096);
  RawClient quick = ConnectTo("quick");
  const auto pace_us = [&quick](uint64_t id) {
    const int64_t start_us = RealClock().MonotonicUs();
    EXPECT_TRUE(quick.Send(GenerateOf(id, "quick", "count 100")));
    EXPECT_EQ(quick.ReceiveAll(id).back().done().generated_tokens(), 100u);
    return RealClock().MonotonicUs() - start_us;
  };
  const int64_t alone_us = pace_us(2);
  const uint64_t generated_before = service_->tokens_generated();

  v1::Request endless = GenerateOf(2, "slow", "count 4096");
  endless.mutable_generate()->set_max_tokens(4096);  // 32 MB, none of which is ever read
  ASSERT_TRUE(slow.Send(endless));
  ASSERT_GE(MsUntil([this] { return service_->steps_paused() > 0; }), 0);
  EXPECT_LT((service_->tokens_generated() - generated_before) * 8000, 1'000'000u)
      << "paused, not buffered";

  // Wide, because this machine may be busy with other things; waiting for the slow one would take
  // the whole stall.
  EXPECT_LT(pace_us(3), 3 * alone_us + 1'000'000);

  EXPECT_GE(MsUntil([this] { return service_->clients_lost() == 1; }), 0);
  EXPECT_GE(MsUntil([this] { return server_->connections() == 1; }), 0);
}

TEST_F(ServerTest, CutsAReaderThatFillsItsBufferByAskingOnly) {
  options_.connection.output.bytes_max = 64 * 1024;
  options_.connection.send_buffer_bytes = 4096;
  Start();
  RawClient client(server_->port(), /*receive_buffer_bytes=*/4096);
  v1::Request health;
  health.set_request_id(1);
  health.mutable_health();
  std::string frames;
  for (int i = 0; i < 1000; ++i) proto::AppendFrame(health, frames);
  for (int i = 0; i < 200 && client.Send(frames); ++i) {
  }
  EXPECT_GE(MsUntil([this] { return server_->connections() == 0; }), 0);
  ExpectServes();
}

TEST_F(ServerTest, GivesAReaderThatCatchesUpEveryToken) {
  Start({.token_bytes = 4000});
  RawClient client = ConnectTo("a", /*receive_buffer_bytes=*/4096);
  v1::Request generate = GenerateOf(2, "a", "count 400");
  generate.mutable_generate()->set_max_tokens(400);  // 1.6 MB
  ASSERT_TRUE(client.Send(generate));
  ASSERT_GE(MsUntil([this] { return service_->steps_paused() > 0; }), 0);
  const auto events = client.ReceiveAll(2);
  ASSERT_EQ(events.size(), 402u);
  // The answer as a whole is longer than the stream may hold, so the end says that.
  EXPECT_EQ(events.back().failed().error().reason(), "too_large");
}

TEST_F(ServerTest, NoticesAClientThatLeftWithinAQuarterOfASecond) {
  Start({.token_us = 5000});
  for (const bool with_reset : {false, true}) {
    RawClient client = ConnectTo("a");
    ASSERT_TRUE(client.Send(GenerateOf(2, "a", "count 100000")));
    ASSERT_TRUE(client.Receive());
    ASSERT_TRUE(client.Receive());
    const uint64_t lost = service_->clients_lost();
    if (with_reset) {
      client.Reset();
    } else {
      client.Close();
    }
    const int64_t taken_ms = MsUntil([&] { return service_->clients_lost() == lost + 1; });
    EXPECT_GE(taken_ms, 0);
    EXPECT_LE(taken_ms, 250);
    EXPECT_GE(MsUntil([this] { return server_->requests_in_flight() == 0; }), 0);
  }
}

TEST_F(ServerTest, ServesFiveHundredConnectionsAtOnce) {
  Start();
  std::vector<RawClient> clients;
  for (int i = 0; i < 500; ++i) {
    clients.push_back(Connect());
    ASSERT_TRUE(clients.back().connected());
  }
  for (size_t i = 0; i < clients.size(); ++i)
    ASSERT_TRUE(clients[i].Send(OpenOf(i + 1, "session-" + std::to_string(i))));
  for (size_t i = 0; i < clients.size(); ++i) {
    const auto event = clients[i].Receive();
    ASSERT_TRUE(event) << i;
    EXPECT_EQ(event->request_id(), i + 1);
    EXPECT_EQ(event->opened().session(), "session-" + std::to_string(i));
  }
  EXPECT_EQ(server_->connections(), 500u);
  clients.clear();
  EXPECT_GE(MsUntil([this] { return server_->connections() == 0; }), 0);
}

TEST_F(ServerTest, TurnsAConnectionTooManyAwayWithTheReason) {
  options_.connections_max = 2;
  Start();
  RawClient first = ConnectTo("a");
  RawClient second = ConnectTo("a");
  RawClient third = Connect();
  third.Send(OpenOf(1, "a"));
  const v1::Error error = LastWord(third);
  EXPECT_EQ(error.code(), "resource_exhausted");
  EXPECT_GT(error.retry_after_ms(), 0u);
  first.Close();
  ASSERT_GE(MsUntil([this] { return server_->connections() == 1; }), 0);
  ExpectServes();
}

TEST_F(ServerTest, DrainsByFinishingWhatIsInFlightAndRefusingTheRest) {
  Start({.token_us = 5000});
  RawClient busy = ConnectTo("a");
  RawClient other = ConnectTo("b");
  ASSERT_TRUE(busy.Send(GenerateOf(2, "a", "count 60")));
  ASSERT_TRUE(busy.Receive());
  const uint16_t port = server_->port();
  std::atomic<bool> now{false};
  DrainEnd end = DrainEnd::kCutShort;
  std::thread drain([&] { end = server_->Drain(now); });
  std::this_thread::sleep_for(std::chrono::milliseconds(60));
  ASSERT_TRUE(other.Send(OpenOf(2, "b")));
  const auto refused = other.Receive(200);
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->failed().error().reason(), "draining");
  EXPECT_EQ(refused->failed().error().code(), "unavailable");
  EXPECT_GT(refused->failed().error().retry_after_ms(), 0u);
  v1::Request health;
  health.set_request_id(3);
  health.mutable_health();
  ASSERT_TRUE(other.Send(health));
  EXPECT_EQ(other.Receive()->health().state(), "draining");
  EXPECT_FALSE(RawClient(port).connected());
  EXPECT_EQ(busy.ReceiveAll(2).back().done().generated_tokens(), 60u);
  drain.join();
  EXPECT_EQ(end, DrainEnd::kFinished);
  EXPECT_TRUE(other.AtEnd());
  EXPECT_EQ(server_->connections(), 0u);
}

TEST_F(ServerTest, AbortsWithAnAnswerWhatADrainCannotWaitFor) {
  options_.drain_ms = 100;
  Start({.token_us = 5000});
  RawClient client = ConnectTo("a");
  v1::Request generate = GenerateOf(2, "a", "count 100000");
  generate.mutable_generate()->set_on_disconnect(v1::ON_DISCONNECT_KEEP);
  ASSERT_TRUE(client.Send(generate));
  ASSERT_TRUE(client.Receive());
  EXPECT_EQ(server_->Drain(std::atomic<bool>(false)), DrainEnd::kAborted);
  const auto events = client.ReceiveAll(2);
  ASSERT_FALSE(events.empty());
  EXPECT_EQ(events.back().done().stop_reason(), "cancelled");
  EXPECT_TRUE(events.back().done().has_receipt());
}

TEST_F(ServerTest, CutsADrainShortWhenTold) {
  Start({.token_us = 5000});
  RawClient client = ConnectTo("a");
  ASSERT_TRUE(client.Send(GenerateOf(2, "a", "count 100000")));
  ASSERT_TRUE(client.Receive());
  std::atomic<bool> now{false};
  std::thread second([&now] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    now = true;
  });
  const int64_t start_us = RealClock().MonotonicUs();
  EXPECT_EQ(server_->Drain(now), DrainEnd::kCutShort);
  EXPECT_LT(RealClock().MonotonicUs() - start_us, 2'000'000);
  second.join();
}

TEST_F(ServerTest, StopsWithClientsInTheMiddleOfThings) {
  Start({.token_us = 100});
  std::vector<RawClient> clients;
  for (int i = 0; i < 20; ++i) {
    const std::string name = "s" + std::to_string(i);
    clients.push_back(ConnectTo(name));
    ASSERT_TRUE(clients.back().Send(GenerateOf(2, name, "count 100000")));
  }
  server_.reset();
  for (RawClient& client : clients) EXPECT_TRUE(client.AtEnd());
}

TEST_F(ServerTest, CarriesEveryCodeAndReasonOfTheService) {
  Start();
  RawClient client = ConnectTo("a");
  uint64_t id = 10;
  for (int value = 0; value <= static_cast<int>(ErrorCode::kInternal); ++value) {
    const std::string name(NameOf(static_cast<ErrorCode>(value)));
    ASSERT_TRUE(client.Send(GenerateOf(++id, "a", "fail " + name)));
    const auto event = client.Receive();
    ASSERT_TRUE(event);
    EXPECT_EQ(event->failed().error().code(), name);
  }
  for (int value = 1; value <= static_cast<int>(Reason::kDraining); ++value) {
    const std::string name(NameOf(static_cast<Reason>(value)));
    ASSERT_TRUE(client.Send(GenerateOf(++id, "a", "fail " + name)));
    const auto event = client.Receive();
    ASSERT_TRUE(event);
    EXPECT_EQ(event->failed().error().reason(), name);
    EXPECT_EQ(event->failed().error().code(), NameOf(CodeOf(static_cast<Reason>(value))));
  }
}

TEST_F(ServerTest, BindsThisMachineOnlyAndSaysWhy) {
  FakeService service;
  for (const char* address : {"0.0.0.0", "::", "192.0.2.1", "10.0.0.1"}) {
    options_.address = address;
    const auto made = Server::Make(options_, service);
    ASSERT_FALSE(made) << address;
    EXPECT_EQ(made.error().code(), ErrorCode::kPermissionDenied);
    EXPECT_NE(made.error().message().find("until keys and TLS exist"), std::string::npos);
  }
  options_.address = "harbour";
  EXPECT_EQ(Server::Make(options_, service).error().code(), ErrorCode::kInvalidArgument);
  options_.port = 0;
  options_.address = "localhost";
  EXPECT_TRUE(Server::Make(options_, service));
}

TEST_F(ServerTest, SaysThatThePortIsTaken) {
  Start();
  FakeService service;
  options_.port = server_->port();
  const auto made = Server::Make(options_, service);
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code(), ErrorCode::kUnavailable);
  EXPECT_NE(made.error().message().find("is another server running?"), std::string::npos);
}

}  // namespace
}  // namespace mneme::server
