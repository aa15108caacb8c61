// Each rule for a request's fields: the last value that is allowed and the first that is not.
#include "engine/request_check.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>

namespace mneme::engine {
namespace {

constexpr uint32_t kTokensMax = 4096;

v1::Request Generate(const std::function<void(v1::GenerateRequest&)>& change = {}) {
  v1::Request request;
  request.mutable_generate()->set_session("harbour");
  if (change) change(*request.mutable_generate());
  return request;
}

std::string Complaint(const v1::Request& request) {
  const Status status = CheckRequest(request, kTokensMax);
  if (status) return "";
  EXPECT_EQ(status.error().code(), ErrorCode::kInvalidArgument);
  return status.error().message();
}

TEST(RequestCheckTest, TakesVisibleNamesUpTo128Bytes) {
  EXPECT_TRUE(CheckSessionName("a"));
  EXPECT_TRUE(CheckSessionName("demo~!#[]{}.2026:x"));
  EXPECT_TRUE(CheckSessionName(std::string(128, 'n')));
  for (const std::string& bad : {std::string(), std::string(129, 'n'), std::string("a/b"),
                                 std::string("a b"), std::string("a\n"), std::string("\x7f"),
                                 std::string("caf\xc3\xa9"), std::string("a\0b", 3)}) {
    EXPECT_FALSE(CheckSessionName(bad)) << bad;
  }
}

TEST(RequestCheckTest, SaysWhichNamesThereAreAndShowsTheOneThatIsNone) {
  const std::string rule =
      "; a name has 1 to 128 letters, digits and signs of ASCII, no spaces and no '/'";
  const auto complaint = [](const std::string& name) {
    v1::Request request;
    request.mutable_open()->set_session(name);
    return Complaint(request);
  };
  EXPECT_EQ(complaint(""), "the session has no name" + rule);
  EXPECT_EQ(complaint(std::string(129, 'n')), "a session name of 129 bytes" + rule);
  EXPECT_EQ(complaint("my trip"),
            "session name \"my trip\": its character 3 is not allowed" + rule);
  EXPECT_EQ(complaint("caf\xc3\xa9/\xf0\x9f\x98\x80"),
            "session name \"caf\\u{e9}/\\u{1f600}\": its character 4 is not allowed" + rule);
  EXPECT_EQ(complaint("\x1b[31m"),
            "session name \"\\u{1b}[31m\": its character 1 is not allowed" + rule);
  EXPECT_EQ(complaint("a\xff"), "session name \"a\\xff\": its character 2 is not allowed" + rule);
}

TEST(RequestCheckTest, RefusesARequestThatAsksForNothing) {
  EXPECT_EQ(Complaint(v1::Request()), "the request asks for nothing this server knows");
}

TEST(RequestCheckTest, BoundsTheTokensOfAnAnswer) {
  EXPECT_EQ(Complaint(Generate([](auto& g) { g.set_max_tokens(kTokensMax); })), "");
  EXPECT_EQ(Complaint(Generate([](auto& g) { g.set_max_tokens(kTokensMax + 1); })),
            "max_tokens is 4097; the most is 4096");
}

TEST(RequestCheckTest, RefusesSamplingOutOfRangeOrNotANumber) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  for (const float bad : {-0.1f, nan, inf, -inf, 101.0f}) {
    EXPECT_NE(Complaint(Generate([bad](auto& g) { g.mutable_sampling()->set_temperature(bad); })),
              "");
    EXPECT_NE(Complaint(Generate([bad](auto& g) { g.mutable_sampling()->set_top_p(bad); })), "");
    EXPECT_NE(Complaint(Generate([bad](auto& g) { g.mutable_sampling()->set_min_p(bad); })), "");
    EXPECT_NE(
        Complaint(Generate([bad](auto& g) { g.mutable_sampling()->set_repetition_penalty(bad); })),
        "");
  }
  EXPECT_EQ(Complaint(Generate([](auto& g) { g.mutable_sampling()->set_top_p(1.0f); })), "");
  EXPECT_EQ(
      Complaint(Generate([](auto& g) { g.mutable_sampling()->set_repetition_window(65'537); })),
      "sampling.repetition_window is 65537; the most is 65536");
}

TEST(RequestCheckTest, BoundsStopStrings) {
  EXPECT_EQ(Complaint(Generate([](auto& g) {
              for (int i = 0; i < 8; ++i) g.add_stop(std::string(128, 's'));
            })),
            "");
  EXPECT_NE(Complaint(Generate([](auto& g) {
              for (int i = 0; i < 9; ++i) g.add_stop("s");
            })),
            "");
  EXPECT_NE(Complaint(Generate([](auto& g) { g.add_stop(""); })), "");
  EXPECT_NE(Complaint(Generate([](auto& g) { g.add_stop(std::string(129, 's')); })), "");
}

TEST(RequestCheckTest, WantsInputThatHoldsSomething) {
  EXPECT_EQ(Complaint(Generate()), "");  // going on without input is fine
  EXPECT_NE(Complaint(Generate([](auto& g) { g.mutable_input(); })), "");
  EXPECT_NE(Complaint(Generate([](auto& g) { g.mutable_input()->set_text(""); })), "");
  EXPECT_NE(Complaint(Generate([](auto& g) { g.mutable_input()->mutable_tokens(); })), "");
  EXPECT_NE(Complaint(Generate([](auto& g) { g.mutable_input()->mutable_messages(); })), "");
}

TEST(RequestCheckTest, WantsMessagesWithARoleThatFitsThem) {
  const auto with = [](const std::function<void(v1::Message&)>& change) {
    return Complaint(Generate([&change](auto& g) {
      v1::Message& message = *g.mutable_input()->mutable_messages()->add_messages();
      message.set_content("hello");
      change(message);
    }));
  };
  EXPECT_EQ(with([](auto& m) { m.set_role(v1::ROLE_TOOL); }), "");
  EXPECT_NE(with([](auto&) {}), "");
  EXPECT_NE(with([](auto& m) { m.set_role(static_cast<v1::Role>(9)); }), "");
  EXPECT_NE(with([](auto& m) {
              m.set_role(v1::ROLE_USER);
              m.add_tool_calls()->set_name("look");
            }),
            "");
  EXPECT_NE(with([](auto& m) {
              m.set_role(v1::ROLE_ASSISTANT);
              m.add_tool_calls();
            }),
            "");
}

TEST(RequestCheckTest, BoundsKeysHashesAndCounts) {
  EXPECT_EQ(Complaint(Generate([](auto& g) { g.set_idempotency_key(std::string(64, 'k')); })), "");
  EXPECT_NE(Complaint(Generate([](auto& g) { g.set_idempotency_key(std::string(65, 'k')); })), "");
  EXPECT_NE(Complaint(Generate([](auto& g) { g.mutable_expected_head()->set_chain_hash("ab"); })),
            "");
  v1::Request request;
  request.mutable_transcript()->set_session("a");
  request.mutable_transcript()->set_turns_max(1001);
  EXPECT_NE(Complaint(request), "");
  request.mutable_explain()->set_session("a");
  request.mutable_explain()->set_tokens_max(1025);
  EXPECT_NE(Complaint(request), "");
  request.mutable_list()->set_sessions_max(1001);
  EXPECT_NE(Complaint(request), "");
  request.mutable_list()->set_sessions_max(1000);
  EXPECT_EQ(Complaint(request), "");
}

TEST(RequestCheckTest, RefusesEnumValuesItDoesNotKnow) {
  EXPECT_NE(
      Complaint(Generate([](auto& g) { g.set_on_disconnect(static_cast<v1::OnDisconnect>(3)); })),
      "");
  EXPECT_NE(Complaint(Generate([](auto& g) { g.set_prompt_form(static_cast<v1::PromptForm>(3)); })),
            "");
}

}  // namespace
}  // namespace mneme::engine
