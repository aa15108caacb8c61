// The client against a real server with a service that echoes, and against sockets that lie, hang
// up or say nothing.
#include "client/client.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <thread>

#include "base/clock.h"
#include "proto/error_wire.h"
#include "server/server.h"
#include "tests/support/fake_service.h"

namespace mneme::client {
namespace {

using support::FakeService;
using support::FakeServiceOptions;

v1::GenerateRequest Ask(const std::string& session, const std::string& text) {
  v1::GenerateRequest request;
  request.set_session(session);
  v1::Message& message = *request.mutable_input()->mutable_messages()->add_messages();
  message.set_role(v1::ROLE_USER);
  message.set_content(text);
  return request;
}

class ClientTest : public ::testing::Test {
 protected:
  void Start(FakeServiceOptions service = {}) {
    service_ = std::make_unique<FakeService>(service);
    server::ServerOptions options;
    options.port = 0;
    auto made = server::Server::Make(options, *service_);
    ASSERT_TRUE(made) << made.error().message();
    server_ = *std::move(made);
    client_ = Connect();
    ASSERT_TRUE(client_);
  }

  std::unique_ptr<Client> Connect(uint32_t request_ms = 0) {
    auto made = Client::Connect({.port = server_->port(), .request_ms = request_ms});
    EXPECT_TRUE(made) << made.error().message();
    return made ? *std::move(made) : nullptr;
  }

  std::unique_ptr<FakeService> service_;
  std::unique_ptr<server::Server> server_;
  std::unique_ptr<Client> client_;
};

// A server that accepts one client, reads its first bytes and does as it likes.
class OddServer {
 public:
  explicit OddServer(std::function<void(int socket)> act) {
    listener_ = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof(address);
    EXPECT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&address), bytes), 0);
    EXPECT_EQ(listen(listener_, 1), 0);
    getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &bytes);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this, act = std::move(act)] {
      const int accepted = accept(listener_, nullptr, nullptr);
      char buffer[256];
      if (recv(accepted, buffer, sizeof(buffer), 0) > 0) act(accepted);
      ::close(accepted);
    });
  }
  ~OddServer() {
    thread_.join();
    ::close(listener_);
  }
  uint16_t port() const { return port_; }

 private:
  int listener_ = -1;
  uint16_t port_ = 0;
  std::thread thread_;
};

TEST_F(ClientTest, RefusesTextThatIsNotUtf8BeforeAnythingIsSent) {
  Start();
  ASSERT_TRUE(client_->Open("harbour"));
  ::testing::internal::CaptureStderr();
  const auto answer = client_->Generate(Ask("harbour", "caf\xe9"));
  const auto stats = client_->Stats("caf\xe9");
  const auto deleted = client_->Delete("\xff");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "") << "protobuf complains by itself";
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(answer.error().message(),
            "generate.input.messages.messages[0].content: byte 4 is not UTF-8; convert the text, "
            "for example with iconv -f latin1 -t utf-8");
  ASSERT_FALSE(stats);
  EXPECT_EQ(stats.error().message().substr(0, 37), "stats.session: byte 4 is not UTF-8; c");
  ASSERT_FALSE(deleted);
  EXPECT_EQ(deleted.error().message().substr(0, 36), "delete.session: byte 1 is not UTF-8;");
  EXPECT_TRUE(client_->connected());
  EXPECT_TRUE(client_->Stats("harbour")) << "the connection is as good as before";
}

TEST_F(ClientTest, HoldsAConversation) {
  Start();
  const auto opened = client_->Open("harbour");
  ASSERT_TRUE(opened) << opened.error().message();
  EXPECT_TRUE(opened->created());

  v1::AppendRequest append;
  append.set_session("harbour");
  append.mutable_input()->set_text("the key is under the stone");
  const auto appended = client_->Append(append);
  ASSERT_TRUE(appended) << appended.error().message();
  EXPECT_EQ(appended->receipt().head().turn(), 1u);

  std::string streamed;
  const std::thread::id caller = std::this_thread::get_id();
  const auto done = client_->Generate(Ask("harbour", "where?"), [&](const v1::Event& event) {
    EXPECT_EQ(std::this_thread::get_id(), caller);
    streamed += event.token().text();
  });
  ASSERT_TRUE(done) << done.error().message();
  EXPECT_EQ(streamed, "you said: where?");
  EXPECT_EQ(done->text(), streamed);
  EXPECT_EQ(done->receipt().head().turn(), 2u);

  v1::TranscriptRequest transcript;
  transcript.set_session("harbour");
  const auto turns = client_->Transcript(transcript);
  ASSERT_TRUE(turns);
  EXPECT_EQ(turns->turns_size(), 2);
  const auto stats = client_->Stats("harbour");
  ASSERT_TRUE(stats);
  EXPECT_EQ(stats->turns(), 2u);
  v1::ExplainRequest explain;
  explain.set_session("harbour");
  const auto explanation = client_->Explain(explain);
  ASSERT_TRUE(explanation);
  EXPECT_EQ(explanation->tokens(0).contributions(0).tier(), "disk");
  const auto list = client_->List({});
  ASSERT_TRUE(list);
  EXPECT_EQ(list->sessions(0).session(), "harbour");
  EXPECT_TRUE(client_->Close("harbour"));
  EXPECT_EQ(client_->Health()->state(), "ready");
  const auto deleted = client_->Delete("harbour");
  ASSERT_TRUE(deleted);
  EXPECT_EQ(deleted->turns(), 2u);
  EXPECT_EQ(client_->Stats("harbour").error().code(), ErrorCode::kNotFound);
}

TEST_F(ClientTest, GivesTheRecordedAnswerForTheSameKeyAndRefusesAnotherRequestWithIt) {
  Start();
  ASSERT_TRUE(client_->Open("a"));
  v1::GenerateRequest request = Ask("a", "once");
  request.set_idempotency_key("k1");
  const auto first = client_->Generate(request);
  const auto second = client_->Generate(request);
  ASSERT_TRUE(first && second);
  EXPECT_EQ(first->receipt().commit(), second->receipt().commit());
  v1::GenerateRequest other = Ask("a", "twice");
  other.set_idempotency_key("k1");
  EXPECT_EQ(client_->Generate(other).error().reason(), Reason::kKeyReused);
}

TEST_F(ClientTest, TellsAWriterWhoseHeadHasMoved) {
  Start();
  ASSERT_TRUE(client_->Open("a"));
  ASSERT_TRUE(client_->Generate(Ask("a", "one")));
  v1::GenerateRequest request = Ask("a", "two");
  request.mutable_expected_head()->set_turn(0);
  EXPECT_EQ(client_->Generate(request).error().reason(), Reason::kHeadMoved);
}

TEST_F(ClientTest, RefusesToOpenWhatIsThereWhenAFreshOneIsWanted) {
  Start();
  ASSERT_TRUE(client_->Open("a"));
  v1::OpenRequest request;
  request.set_session("a");
  request.set_create(true);
  request.set_must_be_fresh(true);
  EXPECT_EQ(client_->Open(request).error().code(), ErrorCode::kConflict);
  EXPECT_EQ(client_->Open("b", /*create=*/false).error().code(), ErrorCode::kNotFound);
}

TEST_F(ClientTest, StopsAGenerationWhenItsFlagIsSet) {
  Start({.token_us = 2000});
  ASSERT_TRUE(client_->Open("a"));
  v1::GenerateRequest request = Ask("a", "count 100000");
  request.set_on_disconnect(v1::ON_DISCONNECT_KEEP);
  std::atomic<bool> stop{false};
  const auto done = client_->Generate(
      request, [&stop](const v1::Event& event) { stop = stop || event.has_token(); }, &stop);
  ASSERT_TRUE(done) << done.error().message();
  EXPECT_EQ(done->stop_reason(), "cancelled");
  EXPECT_GE(done->generated_tokens(), 1u);
  EXPECT_TRUE(client_->Health()) << "the connection goes on";
}

TEST_F(ClientTest, RunsRequestsOfSeveralThreadsOverOneConnection) {
  Start({.token_us = 200});
  std::vector<std::future<bool>> answers;
  for (int i = 0; i < 8; ++i) {
    answers.push_back(std::async(std::launch::async, [this, i] {
      const std::string name = "s" + std::to_string(i);
      if (!client_->Open(name)) return false;
      const auto done = client_->Generate(Ask(name, "count 50"));
      return done && done->generated_tokens() == 50;
    }));
  }
  for (auto& answer : answers) EXPECT_TRUE(answer.get());
}

TEST_F(ClientTest, SendsWithoutWaiting) {
  Start();
  ASSERT_TRUE(client_->Open("a"));
  v1::Request request;
  *request.mutable_generate() = Ask("a", "one two");
  std::promise<v1::Event> last;
  std::atomic<int> events{0};
  const auto id = client_->Send(request, [&](const v1::Event& event) {
    ++events;
    if (event.final()) last.set_value(event);
  });
  ASSERT_TRUE(id);
  const v1::Event event = last.get_future().get();
  EXPECT_EQ(event.request_id(), *id);
  EXPECT_EQ(event.done().text(), "you said: one two");
  EXPECT_EQ(events, 6);
}

TEST_F(ClientTest, GivesTheServersDeadlineAnswer) {
  Start({.token_us = 5000});
  const auto client = Connect(/*request_ms=*/60);
  ASSERT_TRUE(client->Open("a"));
  EXPECT_EQ(client->Generate(Ask("a", "count 100000")).error().code(),
            ErrorCode::kDeadlineExceeded);
}

TEST_F(ClientTest, EndsEveryRequestWhenItIsClosed) {
  Start({.token_us = 5000});
  ASSERT_TRUE(client_->Open("a"));
  v1::Request request;
  *request.mutable_generate() = Ask("a", "count 100000");
  int finals = 0;
  ASSERT_TRUE(
      client_->Send(request, [&finals](const v1::Event& event) { finals += event.final(); }));
  client_.reset();
  EXPECT_EQ(finals, 1);
}

TEST_F(ClientTest, RefusesARequestTheServerWouldNotTake) {
  Start();
  v1::AppendRequest append;
  append.set_session("a");
  append.mutable_input()->set_text(std::string(2 << 20, 'x'));
  EXPECT_EQ(client_->Append(append).error().reason(), Reason::kTooLarge);
  append.mutable_input()->set_text("caf\xe9");
  const auto refused = client_->Append(append);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), ErrorCode::kInvalidArgument);
  EXPECT_TRUE(client_->connected());
  EXPECT_TRUE(client_->Health());
}

TEST_F(ClientTest, SaysThatNobodyListens) {
  Start();
  const uint16_t port = server_->port();
  server_.reset();
  const auto made = Client::Connect({.port = port});
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code(), ErrorCode::kUnavailable);
}

TEST_F(ClientTest, LeavesAWriteInDoubtAndAReadNotWhenTheConnectionIsLost) {
  for (const bool write : {true, false}) {
    OddServer server([](int) {});  // hangs up
    auto client = Client::Connect({.port = server.port()});
    ASSERT_TRUE(client);
    const Error error =
        write ? (*client)->Generate(Ask("a", "hello")).error() : (*client)->Stats("a").error();
    EXPECT_EQ(error.code(), ErrorCode::kUnavailable);
    EXPECT_EQ(error.reason(), write ? Reason::kOutcomeUnknown : Reason::kNone);
    EXPECT_FALSE((*client)->connected());
    EXPECT_EQ((*client)->Health().error().code(), ErrorCode::kUnavailable);
  }
}

TEST_F(ClientTest, PassesTheServersLastWordOn) {
  OddServer server([](int socket) {
    v1::Event event;
    event.set_final(true);
    *event.mutable_failed()->mutable_error() =
        proto::ToWire(Error(ErrorCode::kResourceExhausted, "10 connections are open"));
    std::string frame;
    proto::AppendFrame(event, frame);
    send(socket, frame.data(), frame.size(), MSG_NOSIGNAL);
  });
  auto client = Client::Connect({.port = server.port()});
  ASSERT_TRUE(client);
  const Error error = (*client)->Generate(Ask("a", "hello")).error();
  EXPECT_EQ(error.code(), ErrorCode::kResourceExhausted);
  EXPECT_EQ(error.message(), "10 connections are open");
}

TEST_F(ClientTest, SurvivesAServerThatSendsNonsense) {
  for (const std::string& bytes :
       {std::string("\xff\xff\xff\xff", 4), std::string("\x03\x00\x00\x00\x0b\x0b\x0b", 7),
        std::string("HTTP/1.1 400 Bad Request\r\n\r\n")}) {
    OddServer server([&bytes](int socket) {
      send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      char wait = 0;
      while (recv(socket, &wait, 1, 0) > 0) {
      }
    });
    auto client = Client::Connect({.port = server.port()});
    ASSERT_TRUE(client);
    const auto health = (*client)->Health();
    ASSERT_FALSE(health);
    EXPECT_TRUE(health.error().message().starts_with("answer of the server"))
        << health.error().message();
  }
}

TEST_F(ClientTest, GivesUpOnAServerThatSaysNothing) {
  std::promise<void> done;
  OddServer server([&done](int) { done.get_future().wait(); });
  auto client = Client::Connect({.port = server.port(), .request_ms = 20});
  ASSERT_TRUE(client);
  const int64_t start_us = RealClock().MonotonicUs();
  EXPECT_EQ((*client)->Health().error().code(), ErrorCode::kDeadlineExceeded);
  EXPECT_LT(RealClock().MonotonicUs() - start_us, 4'000'000);
  done.set_value();
}

TEST(ServerAddressTest, ReadsHostAndPortAndSaysWhatIsWrong) {
  EXPECT_EQ(ParseServerAddress("127.0.0.1:7000")->port, 7000);
  EXPECT_EQ(ParseServerAddress("127.0.0.1:7000")->address, "127.0.0.1");
  EXPECT_EQ(ParseServerAddress(":7000")->address, "127.0.0.1");
  EXPECT_EQ(ParseServerAddress("localhost")->port, 7411);
  EXPECT_EQ(ParseServerAddress("[::1]:7000")->address, "::1");
  EXPECT_EQ(ParseServerAddress("[::1]")->port, 7411);
  for (const char* bad : {"a:", "a:0", "a:70000", "a:x", "a:1x", "::1", "::1:7000"})
    EXPECT_FALSE(ParseServerAddress(bad)) << bad;
}

}  // namespace
}  // namespace mneme::client
