#include "eval/retrieval.h"

#include <algorithm>

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

void AddSince(const std::vector<model::GateCount>& before, const std::vector<model::GateCount>& now,
              std::vector<model::GateCount>& total) {
  total.resize(now.size());
  for (size_t layer = 0; layer < now.size(); ++layer) {
    total[layer].open += now[layer].open - before[layer].open;
    total[layer].asked += now[layer].asked - before[layer].asked;
  }
}

// The greedy answer after a question, without the token that ends it.
Result<std::string> Answer(model::LocalSession& session, const model::Tokenizer& tokenizer,
                           const model::ChatTemplate& chat) {
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

void Count(Answered answered, RetrievalCount& count) {
  const bool right = answered.right();
  count.all.Add(right);
  if (answered.question.kind == QuestionKind::kCorrected) count.corrected.Add(right);
  if (answered.question.kind == QuestionKind::kUntold) count.untold.Add(right);
  if (answered.question.depth >= 0)
    count.by_depth[static_cast<size_t>(DepthBin(answered.question.depth))].Add(right);
  count.answers.push_back(std::move(answered));
}

// What reads histories and asks their questions.
struct Asking {
  model::LocalModel& model;
  const model::Tokenizer& tokenizer;
  const model::ChatTemplate& chat;
  const HistoryWriter& writer;
  int total = 0;  // questions
  const std::function<void(int done, int total)>& progress;
};

Status AskHistory(const Asking& asking, const History& history, RetrievalCount& count) {
  model::LocalSession session(asking.model);
  const std::vector<model::GateCount>& gates_now = asking.model.step().counters().gates;
  std::vector<model::GateCount> gates_before = gates_now;
  const int64_t started_us = RealClock().MonotonicUs();
  MNEME_TRY(session.Read(history.ids));
  count.read_seconds += static_cast<double>(RealClock().MonotonicUs() - started_us) * 1e-6;
  count.tokens_read += history.ids.size();
  AddSince(gates_before, gates_now, count.history_gates);
  for (const Question& question : history.questions) {
    const auto ids = asking.writer.QuestionIds(question);
    MNEME_TRY(ids);
    model::LocalSession fork = session.Fork();
    MNEME_TRY(fork.Read(*ids));
    gates_before = gates_now;
    auto answer = Answer(fork, asking.tokenizer, asking.chat);
    MNEME_TRY(answer);
    AddSince(gates_before, gates_now, count.answer_gates);
    Count({.question = question, .answer = std::move(*answer)}, count);
    if (asking.progress) asking.progress(count.all.asked, asking.total);
  }
  return {};
}

}  // namespace

int DepthBin(double depth) {
  return std::clamp(static_cast<int>(depth * kDepthBins), 0, kDepthBins - 1);
}

Result<RetrievalCount> MeasureRetrieval(model::LocalModel& model, const model::Tokenizer& tokenizer,
                                        const Corpus& corpus, const RetrievalOptions& options) {
  auto chat = model::ChatTemplate::Make(tokenizer);
  MNEME_TRY(chat);
  const GatesClosed closed(model.step(), options.close_gates);
  HistoryWriter writer(corpus, tokenizer, *chat, options.seed);
  const Asking asking = {
      .model = model,
      .tokenizer = tokenizer,
      .chat = *chat,
      .writer = writer,
      .total = options.histories * (options.history.facts + options.history.untold),
      .progress = options.progress};
  RetrievalCount count;
  for (int index = 0; index < options.histories; ++index) {
    const auto history = writer.Write(options.history);
    MNEME_TRY(history);
    MNEME_TRY(AskHistory(asking, *history, count));
  }
  return count;
}

Result<RetrievalCount> MeasureQuestions(model::LocalModel& model, const model::Tokenizer& tokenizer,
                                        const Corpus& corpus,
                                        const std::vector<WrittenQuestion>& questions,
                                        const QuestionsOptions& options) {
  auto chat = model::ChatTemplate::Make(tokenizer);
  MNEME_TRY(chat);
  const GatesClosed closed(model.step(), options.close_gates);
  HistoryWriter writer(corpus, tokenizer, *chat, options.seed);
  const auto history = writer.Write(questions, options.tokens);
  MNEME_TRY(history);
  RetrievalCount count;
  MNEME_TRY(AskHistory({.model = model,
                        .tokenizer = tokenizer,
                        .chat = *chat,
                        .writer = writer,
                        .total = static_cast<int>(questions.size()),
                        .progress = options.progress},
                       *history, count));
  return count;
}

}  // namespace mneme::eval
