#include "eval/retrieval.h"

#include "base/clock.h"

namespace mneme::eval {
namespace {

class GatesClosed {
 public:
  GatesClosed(model::Step& step, bool closed) : step_(step) { step_.CloseAllGates(closed); }
  ~GatesClosed() { step_.CloseAllGates(false); }
  GatesClosed(const GatesClosed&) = delete;
  GatesClosed& operator=(const GatesClosed&) = delete;

 private:
  model::Step& step_;
};

// The greedy answer to a question, without the token that ends it.
Result<std::string> Answer(model::LocalSession session, std::span<const int32_t> question,
                           const model::Tokenizer& tokenizer, const model::ChatTemplate& chat) {
  MNEME_TRY(session.Read(question));
  std::vector<int32_t> answer;
  while (answer.size() < static_cast<size_t>(kAnswerTokensMax)) {
    const auto token = session.Next({});
    MNEME_TRY(token);
    if (chat.IsStop(*token)) break;
    answer.push_back(*token);
    MNEME_TRY(session.Feed(*token));
  }
  return tokenizer.Decode(answer);
}

void Count(const Question& question, const std::string& answered, RetrievalCount& count) {
  const bool right = answered == question.answer;
  ++count.asked;
  count.right += right ? 1 : 0;
  if (question.kind == QuestionKind::kCorrected) {
    ++count.corrected_asked;
    count.corrected_right += right ? 1 : 0;
  } else if (question.kind == QuestionKind::kUntold) {
    ++count.untold_asked;
    count.untold_right += right ? 1 : 0;
  }
  if (!right) count.wrong.push_back({.question = question, .answered = answered});
}

}  // namespace

Result<RetrievalCount> MeasureRetrieval(model::LocalModel& model, const model::Tokenizer& tokenizer,
                                        const Corpus& corpus, const RetrievalOptions& options) {
  auto chat = model::ChatTemplate::Make(tokenizer);
  MNEME_TRY(chat);
  const GatesClosed gates(model.step(), options.close_gates);
  HistoryWriter writer(corpus, tokenizer, *chat, options.seed);
  const int total = options.histories * (options.history.facts + options.history.untold);
  RetrievalCount count;
  for (int index = 0; index < options.histories; ++index) {
    const auto history = writer.Write(options.history);
    MNEME_TRY(history);
    model::LocalSession session(model);
    const int64_t started_us = RealClock().MonotonicUs();
    MNEME_TRY(session.Read(history->ids));
    count.read_seconds += static_cast<double>(RealClock().MonotonicUs() - started_us) * 1e-6;
    count.tokens_read += history->ids.size();
    for (const Question& question : history->questions) {
      const auto ids = writer.QuestionIds(question);
      MNEME_TRY(ids);
      const auto answered = Answer(session.Fork(), *ids, tokenizer, *chat);
      MNEME_TRY(answered);
      Count(question, *answered, count);
      if (options.progress) options.progress(count.asked, total);
    }
  }
  return count;
}

}  // namespace mneme::eval
