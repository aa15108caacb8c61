// Frames against the byte form written in frame.h: whole, in pieces, hostile by hand, and 100,000
// seeded mutations of good ones, which must give a message or a typed error within bounded memory.
#include "proto/frame.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

namespace mneme::proto {
namespace {

v1::Request GenerateRequestOf(const std::string& text) {
  v1::Request request;
  request.set_request_id(7);
  request.set_deadline_ms(1000);
  v1::GenerateRequest& generate = *request.mutable_generate();
  generate.set_session("harbour");
  v1::Message& message = *generate.mutable_input()->mutable_messages()->add_messages();
  message.set_role(v1::ROLE_USER);
  message.set_content(text);
  generate.mutable_sampling()->set_temperature(0.7f);
  generate.add_stop("end");
  return request;
}

std::string FrameOf(const google::protobuf::MessageLite& message) {
  std::string frame;
  AppendFrame(message, frame);
  return frame;
}

void Feed(FrameReader& reader, std::string_view bytes) {
  while (!bytes.empty()) {
    const MutableByteSpan space = reader.Space();
    const size_t part = std::min(space.size(), bytes.size());
    std::memcpy(space.data(), bytes.data(), part);
    reader.Received(part);
    bytes.remove_prefix(part);
  }
}

// A length-delimited field around `content`.
std::string Field(int number, const std::string& content) {
  std::string out;
  const auto put = [&out](uint64_t value) {
    for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
    out.push_back(static_cast<char>(value));
  };
  put(static_cast<uint64_t>(number) << 3 | 2);
  put(content.size());
  return out + content;
}

TEST(FrameTest, IsALengthInLittleEndianAndTheMessage) {
  v1::Request request;
  request.set_request_id(300);
  EXPECT_EQ(FrameOf(request), std::string("\x03\x00\x00\x00\x08\xac\x02", 7));
  EXPECT_EQ(FrameBytes(request), 7u);
}

TEST(FrameTest, ComesBackAsItWasSent) {
  const v1::Request sent = GenerateRequestOf("where is the key?");
  FrameReader reader{FrameLimits()};
  Feed(reader, FrameOf(sent));
  const auto message = reader.Next();
  ASSERT_TRUE(message && *message);
  const auto received = ParseRequest(**message, FrameLimits());
  ASSERT_TRUE(received) << received.error().message();
  EXPECT_EQ(received->SerializeAsString(), sent.SerializeAsString());
  EXPECT_FALSE(reader.midway());
}

TEST(FrameTest, ComesBackFromSingleBytesAndFromManyAtOnce) {
  std::string stream;
  for (int i = 0; i < 20; ++i) AppendFrame(GenerateRequestOf(std::string(i * 997, 'x')), stream);
  for (const size_t piece : {size_t{1}, size_t{3}, stream.size()}) {
    FrameReader reader{FrameLimits()};
    int frames = 0;
    for (size_t at = 0; at < stream.size(); at += piece) {
      Feed(reader, std::string_view(stream).substr(at, piece));
      for (;;) {
        const auto message = reader.Next();
        ASSERT_TRUE(message);
        if (!*message) break;
        const auto request = ParseRequest(**message, FrameLimits());
        ASSERT_TRUE(request);
        EXPECT_EQ(request->generate().input().messages().messages(0).content().size(),
                  static_cast<size_t>(frames * 997));
        ++frames;
      }
    }
    EXPECT_EQ(frames, 20) << "pieces of " << piece;
  }
}

TEST(FrameTest, RefusesALongFrameAtItsHeader) {
  FrameReader reader{FrameLimits()};
  Feed(reader, std::string("\x01\x00\x10\x00", 4));  // 1 MiB and one
  const auto message = reader.Next();
  ASSERT_FALSE(message);
  EXPECT_EQ(message.error().reason(), Reason::kTooLarge);
  EXPECT_EQ(message.error().message(), "a frame of 1048577 bytes; the most is 1048576");
}

TEST(FrameTest, AllocatesForWhatArrivedAndNotForWhatIsPromised) {
  FrameReader reader{FrameLimits()};
  Feed(reader, std::string("\x00\x00\x10\x00half", 8));
  ASSERT_TRUE(reader.Next());
  EXPECT_TRUE(reader.midway());
  EXPECT_LE(reader.Space().size(), 4096u);
}

TEST(FrameTest, RefusesMoreRepeatedItemsThanAllowed) {
  v1::Request request = GenerateRequestOf("hello");
  for (int i = 0; i < 4096; ++i) request.mutable_generate()->add_stop("");
  const auto parsed = ParseRequest(AsBytes(request.SerializeAsString()), FrameLimits());
  ASSERT_FALSE(parsed);
  EXPECT_EQ(parsed.error().message(), "GenerateRequest: more than 4096 repeated or unknown fields");
}

TEST(FrameTest, LetsPackedTokensBeMany) {
  v1::Request request;
  request.mutable_append()->set_session("a");
  for (uint32_t i = 0; i < 200'000; ++i)
    request.mutable_append()->mutable_input()->mutable_tokens()->add_ids(i);
  const auto parsed = ParseRequest(AsBytes(request.SerializeAsString()), FrameLimits());
  ASSERT_TRUE(parsed) << parsed.error().message();
  EXPECT_EQ(parsed->append().input().tokens().ids_size(), 200'000);
}

TEST(FrameTest, CountsUnknownFieldsAsItems) {
  std::string bytes;
  for (int i = 0; i < 5000; ++i) bytes += "\xf8\x07\x01";  // field 127
  const auto parsed = ParseRequest(AsBytes(bytes), FrameLimits());
  ASSERT_FALSE(parsed);
  EXPECT_EQ(parsed.error().code(), ErrorCode::kInvalidArgument);
  EXPECT_TRUE(ParseRequest(AsBytes(bytes.substr(0, 3000)), FrameLimits()));
}

TEST(FrameTest, RefusesDepthBeyondItsLimit) {
  const std::string bytes = Field(12, Field(2, Field(1, Field(1, Field(4, Field(1, "name"))))));
  EXPECT_TRUE(ParseRequest(AsBytes(bytes), FrameLimits()));  // six messages in each other
  FrameLimits limits;
  limits.depth_max = 5;
  const auto parsed = ParseRequest(AsBytes(bytes), limits);
  ASSERT_FALSE(parsed);
  EXPECT_EQ(parsed.error().message(), "ToolCall: messages are nested deeper than 5");
}

TEST(FrameTest, RefusesDamageByHand) {
  const std::pair<const char*, std::string> cases[] = {
      {"tag zero", std::string("\x00\x01", 2)},
      {"endless tag", std::string(11, '\xff')},
      {"tag cut short", "\x88"},
      {"value cut short", "\x08\x88"},
      {"length beyond the end", "\x52\x7f"},
      {"length of 2^63", "\x52\xff\xff\xff\xff\xff\xff\xff\xff\x7f"},
      {"group start", "\x0b"},
      {"group end", "\x0c"},
      {"unknown group", "\xfb\x07\xfc\x07"},
      {"wire type 6", std::string("\xfe\x07\x00", 3)},
      {"request_id as bytes", Field(1, "x")},
      {"open as a number", "\x50\x01"},
      {"fixed32 cut short", "\x95\x01\x01\x02"},
      {"not UTF-8", Field(10, Field(1, "\xff\xfe"))},
  };
  for (const auto& [name, bytes] : cases) {
    const auto parsed = ParseRequest(AsBytes(bytes), FrameLimits());
    ASSERT_FALSE(parsed) << name;
    EXPECT_EQ(parsed.error().code(), ErrorCode::kInvalidArgument) << name;
    EXPECT_FALSE(parsed.error().message().empty()) << name;
  }
}

TEST(FrameTest, SurvivesAHundredThousandMutations) {
  std::vector<std::string> seeds = {FrameOf(GenerateRequestOf("a question")),
                                    FrameOf(GenerateRequestOf(std::string(3000, 'q')))};
  v1::Request append;
  append.set_request_id(1);
  append.mutable_append()->set_session("s");
  for (uint32_t i = 0; i < 500; ++i)
    append.mutable_append()->mutable_input()->mutable_tokens()->add_ids(i * 31);
  seeds.push_back(FrameOf(append));

  std::mt19937_64 random(20261129);
  int whole = 0;
  int refused = 0;
  for (int round = 0; round < 100'000; ++round) {
    std::string bytes = seeds[random() % seeds.size()];
    for (uint64_t edits = 1 + random() % 4; edits > 0; --edits) {
      const size_t at = random() % bytes.size();
      switch (random() % 5) {
        case 0:
          bytes[at] = static_cast<char>(random());
          break;
        case 1:
          bytes[at] = static_cast<char>(bytes[at] ^ (1 << random() % 8));
          break;
        case 2:
          bytes.resize(at + 1);
          break;
        case 3:
          bytes.insert(at, bytes, 0, random() % bytes.size());
          break;
        default:
          bytes.insert(at, 1 + random() % 8, static_cast<char>(random()));
      }
    }
    FrameReader reader{FrameLimits()};
    Feed(reader, bytes);
    for (;;) {
      const auto message = reader.Next();
      if (!message) {
        ++refused;
        EXPECT_EQ(message.error().reason(), Reason::kTooLarge);
        break;
      }
      if (!*message) break;
      const auto request = ParseRequest(**message, FrameLimits());
      ++(request ? whole : refused);
    }
  }
  EXPECT_GT(whole, 1000);  // the mutations are not so coarse that everything is refused at once
  EXPECT_GT(refused, 10'000);
}

}  // namespace
}  // namespace mneme::proto
