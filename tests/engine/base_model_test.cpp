// A base model through the engine: the HLA layout, whose router is in the checkpoint, with a
// tokenizer in Llama 2's form and no chat form. Text and ids are served and come back after a
// restart; messages are refused.
#include <gtest/gtest.h>

#include "tests/engine/script.h"
#include "tests/support/hla_folder.h"

namespace mneme::engine {
namespace {

using support::Answer;
using support::EngineCase;
using support::RandomIds;

const std::string& Folder() {
  static const support::ScratchFolder folder;
  static const std::string path = [] {
    support::WriteHlaFolder(folder.path());
    support::WriteLlamaTokenizer(folder.path());
    return folder.path().string();
  }();
  return path;
}

v1::Request TextOf(const std::string& session, const std::string& text, uint32_t tokens) {
  v1::Request request = support::GenerateOf(session, {}, tokens);
  request.mutable_generate()->mutable_input()->set_text(text);
  return request;
}

uint64_t PositionOf(const Answer& answer) {
  return answer.last().has_opened() ? answer.last().opened().head().position()
                                    : answer.done().receipt().head().position();
}

TEST(BaseModelTest, ServesRoutedHistoryAndRestoresIt) {
  EngineCase engine(Folder());
  EXPECT_EQ(engine.model().layout().reader, memory::Reader::kHla);
  EXPECT_EQ(engine.model().layout().conv_tail_floats(), 0u);
  EngineCase whole(Folder());
  for (EngineCase* each : {&engine, &whole}) {
    each->Start();
    each->Open("a");
    ASSERT_FALSE(each->Append("a", RandomIds(900, 6)).failed());
    ASSERT_TRUE(support::WaitForChunks(*each, "a", 3));
  }
  engine.Restart(StopMode::kFinish);
  const Answer found = engine.Generate("a", RandomIds(20, 7), 30);
  ASSERT_FALSE(found.failed()) << found.last().failed().error().message();
  EXPECT_EQ(found.done().memory().restored_tokens(), 768u);
  EXPECT_EQ(found.done().memory().replayed_tokens(), 132u);
  EXPECT_EQ(found.tokens(), whole.Generate("a", RandomIds(20, 7), 30).tokens());
}

TEST(BaseModelTest, OnlyTheFirstTextBeginsWithTheTemplatesTokens) {
  EngineCase engine(Folder());
  engine.Start();
  engine.Open("a");
  const auto ids = engine.tokenizer().Encode("Once upon", model::SpecialTokens::kAsText);
  ASSERT_TRUE(ids);
  const Answer first = engine.Ask(TextOf("a", "Once upon", 0 + 1));
  ASSERT_FALSE(first.failed()) << first.last().failed().error().message();
  const uint64_t after_first = PositionOf(engine.Open("a"));
  EXPECT_EQ(after_first, 1 + ids->size() + first.tokens().size());
  const Answer second = engine.Ask(TextOf("a", "Once upon", 1));
  ASSERT_FALSE(second.failed());
  EXPECT_EQ(PositionOf(engine.Open("a")), after_first + ids->size() + second.tokens().size());
}

TEST(BaseModelTest, RefusesMessagesAndTheChatForm) {
  EngineCase engine(Folder());
  engine.Start();
  engine.Open("a");
  v1::Request messages = support::AppendOf("a", {});
  messages.mutable_append()->mutable_input()->mutable_messages()->add_messages()->set_content("Hi");
  const Answer refused = engine.Ask(std::move(messages));
  ASSERT_TRUE(refused.failed());
  EXPECT_NE(refused.last().failed().error().message().find("the model has no chat form"),
            std::string::npos)
      << refused.last().failed().error().message();
  v1::Request chat = TextOf("a", "Hi", 3);
  chat.mutable_generate()->set_prompt_form(v1::PROMPT_FORM_CHAT);
  const Answer also = engine.Ask(std::move(chat));
  ASSERT_TRUE(also.failed());
  EXPECT_NE(also.last().failed().error().message().find("ask for the raw prompt form"),
            std::string::npos);
  EXPECT_EQ(PositionOf(engine.Open("a")), 0u) << "a refusal writes nothing";
}

}  // namespace
}  // namespace mneme::engine
